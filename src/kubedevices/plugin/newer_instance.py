"""One newer instance of a plugin: whether it has taken our resource over, and whether we trust it.

Every process with access to the plugin directory can pretend to be a newer instance. So an instance
to which we left the resource must soon say that a kubelet has registered it. Otherwise we register
again, and do not leave to this instance a second time. `other_instances` follows the instances.
"""

import asyncio
import math

from kubedevices.errors import WireError
from kubedevices.values.socket_paths import InstanceSocket
from kubedevices.wire.unix_grpc import GrpcChannel


class NewerInstance:
    """A newer instance, which lives as far as we know.

    `patience` is the time in seconds for which it may have the resource and no kubelet.
    """

    def __init__(self, name: InstanceSocket, patience: float) -> None:
        self.name, self._patience = name, patience
        self.task: asyncio.Task[None] | None = None
        # `answered`: its Watch stream sent a state, so the instance serves. `is_registered`: the
        # last state. `took_over`: it asked us to leave, or was registered when our stream ended.
        self.answered = self.is_registered = self.took_over = False
        self.failed_to_serve = False
        """Whether it took over once, and no kubelet had the resource from it."""

        self._trusted_until = math.inf

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

    def _start_clock(self) -> None:
        self._trusted_until = asyncio.get_running_loop().time() + self._patience

    @property
    def trust_ends(self) -> float:
        """The loop's time at which we register again if nothing changes; `inf`: never."""
        return self._trusted_until if self.took_over and not self.is_registered else math.inf

    def loses_trust(self, now: float) -> bool:
        """Return True once when the time is over, and forget that the instance took over."""
        if now < self.trust_ends:
            return False
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
