"""One newer instance of a plugin: whether it has taken our resource over, and whether we trust it.

Every process with access to the plugin directory can pretend to be a newer instance. There are
three cases for an instance to which we left the resource:

* It says that no kubelet has it. After a short time we register again, and do not leave to this
  instance a second time before a kubelet has it.
* It says that a kubelet has it, and the kubelet's checkpoint lists devices of the resource. We
  stand by.
* It says that a kubelet has it, and nothing else does. After a long time we register again. From
  then on a newer instance gets the resource only when a kubelet ends our stream: kubelets up to
  1.36 do so when they accept the newer instance, and nobody else can make them do so.

`other_instances` follows the instances.
"""

import asyncio
import math
from collections.abc import Iterable
from pathlib import Path

from kubedevices.errors import CannotRead, WireError
from kubedevices.plugin.timing import Timing
from kubedevices.values.socket_paths import InstanceSocket
from kubedevices.wire.unix_grpc import GrpcChannel

_CHECKPOINT = "kubelet_internal_checkpoint"
_CHECKPOINT_LIMIT = 2**26


class NewerInstance:
    """A newer instance, which lives as far as we know.

    `must_prove`: whether a kubelet must end our stream before we leave the resource to it.
    """

    def __init__(self, name: InstanceSocket, timing: Timing, *, must_prove: bool) -> None:
        self.name, self._timing, self.must_prove = name, timing, must_prove
        self.task: asyncio.Task[None] | None = None
        # `answered`: its Watch stream sent a state, so the instance serves. `is_registered`: the
        # last state. `took_over`: it asked us to leave, or was registered when our stream ended.
        self.answered = self.is_registered = self.took_over = False
        self.failed_to_serve = False
        """Whether it took over once, and no kubelet had the resource from it."""

        self._trusted_until = self._doubted_from = math.inf
        self._is_refuted = False

    def note_state(self, *, registered: bool) -> None:
        """Record whether the instance says that a kubelet has registered it."""
        self.answered = True
        if self.is_registered and not registered:
            self._start_clock()
        self.is_registered = registered

    def take_over(self) -> None:
        """Record that we leave the resource to the instance."""
        self.took_over = True
        self._start_clock()
        self.believe()

    def believe(self) -> None:
        """Do not doubt for a while what the instance says about a kubelet."""
        self._is_refuted = False
        now = asyncio.get_running_loop().time()
        self._doubted_from = now + self._timing.stand_by_limit

    def _start_clock(self) -> None:
        now = asyncio.get_running_loop().time()
        self._trusted_until = now + self._timing.take_over_timeout

    @property
    def trust_ends(self) -> float:
        """The loop's time at which we register again if nothing changes; `inf`: never."""
        if not self.took_over:
            return math.inf
        return self._doubted_from if self.is_registered else self._trusted_until

    def refute(self) -> None:
        """Record that no kubelet has the resource, though the instance says so."""
        self._is_refuted = True

    def is_doubtful(self, now: float) -> bool:
        """Whether the instance has said for a long time that a kubelet has it."""
        return self.is_registered and now >= self.trust_ends

    def loses_trust(self, now: float) -> bool:
        """Return True once when the time is over, and forget that the instance took over."""
        if now < self.trust_ends or (self.is_registered and not self._is_refuted):
            return False
        self.must_prove |= self.is_registered
        self.took_over, self.failed_to_serve = False, True
        return True


async def ping(channel: GrpcChannel, interval: float) -> None:
    """Close the connection to an instance that does not answer a ping within `interval` seconds."""
    # A stopped process, or a process with a blocked event loop, keeps its sockets open.
    try:
        while True:
            await asyncio.sleep(interval)
            await channel.ping(timeout=interval)
    except WireError:
        await channel.close()


async def doubt(instances: Iterable[NewerInstance], directory: Path, resource: str) -> None:
    """Look whether a kubelet has the resource, if an instance has said so for a long time."""
    now = asyncio.get_running_loop().time()
    doubtful = [each for each in instances if each.is_doubtful(now)]
    if not doubtful:
        return
    is_listed = await asyncio.to_thread(kubelet_lists, directory, resource)
    for each in doubtful:
        each.believe() if is_listed else each.refute()


def kubelet_lists(directory: Path, resource: str) -> bool:
    """Whether the checkpoint of the kubelet in `directory` has healthy devices of the resource.

    The kubelet writes the file anew after each change of a list. Blocking.
    """
    # A plugin loads these modules only if it has to.
    from kubedevices.config.documents import json_text  # noqa: PLC0415
    from kubedevices.host import untrusted_files  # noqa: PLC0415

    try:
        path = directory / _CHECKPOINT
        data = untrusted_files.read_bytes(path, limit=_CHECKPOINT_LIMIT)
        found = json_text.read_json_object(data, limit=_CHECKPOINT_LIMIT)
        return bool(found["Data"]["RegisteredDevices"][resource])
    except (CannotRead, OSError, KeyError, TypeError, ValueError):
        return False
