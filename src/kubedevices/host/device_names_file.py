"""Where `expose` keeps the IDs of its devices: `expose-DOMAIN.json` in a state directory. Blocking.

    {"version": 1, "resources": {"serial": {"id": "stable", "devices": [
      {"id": "ttyUSB0", "path": "/dev/ttyUSB0", "file": "/dev/ttyUSB0", "names": [], "port": "",
       "number": 0, "replica": false, "listed": true}]}}}

`expose` writes and reads the file; `explain` reads which device file each ID means.
"""

import re
from pathlib import Path

from kubedevices.host import listing
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.host.state_file import StateFile

_LIMIT = 16 * 2**20
_VERSION = 1
_NAME = re.compile(r"expose-(.+)\.json")


def names_file(directory: SharedDirectory, domain: str) -> StateFile:
    """Return the file of one domain."""
    return StateFile(directory, f"expose-{domain}.json", limit=_LIMIT, version=_VERSION)


def domains_in(state_dir: Path) -> list[str]:
    """Return the domains that have a file, in order; raises `OSError`."""
    found = map(_NAME.fullmatch, listing.names(state_dir, _NAME.fullmatch))
    return sorted(each[1] for each in found if each)


def served_id(name: str, id_style: str, device_id: str, number: int) -> str:
    """Return the ID that the kubelet knows, without the number of a replica.

    `name` is that of the resource, `id_style` its key `id`, the others are from the file.
    """
    return f"{name}-{number}" if id_style == "index" else device_id
