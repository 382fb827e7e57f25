"""What a plugin author may add to a scanner: inherit a class, write its one method.

Abstract classes and not protocols, so that a misspelt method fails when the object is created. Each
method may be `def` (runs in a thread, may block) or `async def` (runs on the loop, must not).
`plugin.hooks` is the one place that recognises and calls them.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from kubedevices.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
)

if TYPE_CHECKING:
    from kubedevices.cdi import ContainerEdits


class UseDefault(enum.Enum):
    """The type of `USE_DEFAULT`."""

    USE_DEFAULT = "USE_DEFAULT"

    def __repr__(self) -> str:
        return self.name


USE_DEFAULT: Final = UseDefault.USE_DEFAULT
"""What `Allocator.allocate` returns to leave this request to the framework."""

AllocateAnswer: TypeAlias = AllocateResponse | UseDefault


class Allocator(ABC):
    """Answers Allocate itself."""

    @abstractmethod
    def allocate(self, request: AllocateRequest) -> AllocateAnswer | Awaitable[AllocateAnswer]:
        """Return the whole answer, which is sent unchanged, or `USE_DEFAULT`.

        May be called several times for the same devices; an exception fails the call.
        """


class PostAllocator(ABC):
    """Edits the framework's answer to Allocate before it is sent."""

    @abstractmethod
    def post_allocate(
        self, response: AllocateResponse, request: AllocateRequest
    ) -> Awaitable[None] | None:
        """Change `response` in place; an exception fails the call.

        Not called for an answer of the plugin's own `allocate`. A method that takes only the
        response works too.
        """


class PreferredAllocator(ABC):
    """Prefers some of the available devices for an allocation."""

    @abstractmethod
    def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse | Awaitable[PreferredAllocationResponse]:
        """Return the preferred device IDs per container; advice that a kubelet may ignore."""


class ContainerPreStarter(ABC):
    """Is called before each start of a container that holds devices."""

    @abstractmethod
    def pre_start_container(self, request: PreStartContainerRequest) -> Awaitable[object] | None:
        """Make the devices ready; an exception fails the container start. Returns nothing.

        A kubelet waits for 30 seconds.
        """


class TypeStarter(ABC):
    """Is called before a device type is served, also if it was served before."""

    @abstractmethod
    def on_type_added(self, device_type: str) -> Awaitable[None] | None:
        """Prepare what the type needs; an exception fails its server."""


class TypeStopper(ABC):
    """Is called when a device type is no longer served: it went away, or the plugin ends."""

    @abstractmethod
    def on_type_removed(self, device_type: str) -> Awaitable[None] | None:
        """Release what the type needed.

        An exception is logged. The framework waits at most half a second (`Timing.removed_grace`),
        because a plugin that was told to stop must end.
        """


class ClaimPreparer(ABC):
    """Makes devices ready for a claim, and undoes it. In mode `dra` only.

    Both methods are called for each request of a claim and each device type in it, never two at
    once. `parameters` is a dataclass, if the preparer can be configured: a DeviceClass and a claim
    may say its fields, in camelCase. In `ClaimedDevices` it is an instance.
    """

    parameters: ClassVar[type | None] = None

    @abstractmethod
    def prepare_claim(
        self, claimed: ClaimedDevices
    ) -> "ContainerEdits | Awaitable[ContainerEdits | None] | None":
        """Make the devices ready; return what a container gets besides that of the devices.

        Called again for the same claim when the driver was killed meanwhile, and after a reboot.
        An exception fails the claim; then, and after a timeout, `unprepare_claim` is called.
        """

    @abstractmethod
    def unprepare_claim(self, claimed: ClaimedDevices) -> Awaitable[None] | None:
        """Undo it, also where it was done in part or not at all.

        `parameters` is None if what the claim configured is not valid any more. An exception keeps
        the devices in the hands of the claim; the kubelet tries again.
        """


class StandIn(
    Allocator, PostAllocator, PreferredAllocator, ContainerPreStarter, TypeStarter, TypeStopper
):
    """Stands for another object: has every method, and says which of them count.

    For objects that pass calls on: which abilities they have is known when they are made.
    """

    offered: frozenset[type]
    """The abilities that count: classes of this module."""

    stands_for: str
    """The name of the author's class, for messages."""

    unknown_options: bytes = b""
    """What this version does not know of the options of another plugin, see `PluginOptions`."""
