"""Asks our plugins whether they follow the list of cordoned devices; for `kubedevices cordon`.

Each plugin socket of ours answers, also that of a proxy or of a plugin in a container. The plugins
of other vendors have no such method. The name of a socket has a checksum of its resource.
"""

import asyncio
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import WireError
from kubedevices.host import listing
from kubedevices.kubelet_api.clients import call_once
from kubedevices.kubelet_api.services import JsonObject, json_methods
from kubedevices.values.socket_paths import InstanceSocket, plugin_socket
from kubedevices.wire.unix_grpc import Methods

SERVICE = "kubedevices.Maintenance"
METHOD = "Describe"
DEADLINE = 5.0
"""Seconds for connection and answer of one plugin."""

_ANSWER_LIMIT = 2**26


class Follower(NamedTuple):
    """A plugin of ours: which list it follows, and which devices it has.

    `file` is the path of the list of cordoned devices as the plugin sees it, empty if the plugin
    follows no list.
    """

    resource: str
    file: str = ""
    devices: frozenset[str] = frozenset()


def cordon_methods(describe: Callable[[], Follower]) -> Methods:
    """Return the methods of a plugin server."""

    async def answer(_: JsonObject) -> JsonObject:
        said = describe()
        return {"resource": said.resource, "file": said.file, "devices": [*said.devices]}

    return json_methods(SERVICE, {METHOD: answer}, {})


async def ask_followers(socket_dir: Path, resource: str) -> tuple[Follower, ...]:
    """Return what our plugins of `resource` in `socket_dir` answer, the newest instance first.

    Sockets on which nobody listens, and plugins that do not answer, are left out. Raises `OSError`
    if the directory cannot be read.
    """
    mark = f"{binascii.crc32(resource.encode()):08x}"
    plain = plugin_socket(socket_dir, resource).name  # of a plugin that does not register

    def is_ours(name: str) -> bool:
        found = InstanceSocket.parse(name)
        return name == plain or (found is not None and found.mark == mark)

    names = await asyncio.to_thread(listing.names, socket_dir, is_ours)
    names.sort(key=lambda name: name.rpartition(".sock")[0].rpartition(".")[2], reverse=True)
    answers = await asyncio.gather(*(_ask(socket_dir / name) for name in names))
    return tuple(each for each in answers if each is not None and each.resource == resource)


async def _ask(socket: Path) -> Follower | None:
    try:
        said = await call_once(socket, SERVICE, METHOD, deadline=DEADLINE, limit=_ANSWER_LIMIT)
        devices = said["devices"]
        return Follower(
            str(said["resource"]), str(said["file"]), frozenset(map(str, list(devices)))
        )
    except (WireError, OSError, KeyError, TypeError):  # TimeoutError is an OSError
        return None
