"""The abilities that a plugin author may add to a scanner: inherit a class, write its method.

They are abstract classes, not protocols: so a misspelt method fails when the object is created.
Each method may be `def` (runs in a thread, may block) or `async def` (runs on the loop, must not
block). Only `plugin.hooks` recognises and calls these methods.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
)

if TYPE_CHECKING:
    from kubedevices.values.cdi import ContainerEdits


class UseDefault(enum.Enum):
    """The type of `USE_DEFAULT`."""

    USE_DEFAULT = "USE_DEFAULT"

    def __repr__(self) -> str:
        return self.name


USE_DEFAULT: Final = UseDefault.USE_DEFAULT
"""`Allocator.allocate` returns it to leave this request to the framework."""

AllocateAnswer: TypeAlias = AllocateResponse | UseDefault


class Allocator(ABC):
    """Answers Allocate itself."""

    @abstractmethod
    def allocate(self, request: AllocateRequest) -> AllocateAnswer | Awaitable[AllocateAnswer]:
        """Return the whole answer, which is sent unchanged, or `USE_DEFAULT`.

        It may be called several times for the same devices. An exception fails the call.
        """


class PostAllocator(ABC):
    """Edits the framework's answer to Allocate before it is sent."""

    @abstractmethod
    def post_allocate(
        self, response: AllocateResponse, request: AllocateRequest
    ) -> Awaitable[None] | None:
        """Change `response` in place; an exception fails the call.

        Not called for an answer of the plugin's own `allocate`. The method may leave out the
        parameter `request`.
        """


class PreferredAllocator(ABC):
    """Prefers some of the available devices for an allocation."""

    @abstractmethod
    def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse | Awaitable[PreferredAllocationResponse]:
        """Return the preferred device IDs per container; a kubelet may ignore them."""


class ContainerPreStarter(ABC):
    """Is called before each start of a container that holds devices."""

    @abstractmethod
    def pre_start_container(self, request: PreStartContainerRequest) -> Awaitable[object] | None:
        """Make the devices ready; an exception fails the container start. Returns nothing.

        A kubelet waits for 30 seconds.
        """


class TypeStarter(ABC):
    """Is called each time before a device type is served."""

    @abstractmethod
    def on_type_added(self, device_type: str) -> Awaitable[None] | None:
        """Prepare what the type needs; an exception fails its server."""


class TypeStopper(ABC):
    """Is called when a device type is no longer served: it disappeared, or the plugin ends."""

    @abstractmethod
    def on_type_removed(self, device_type: str) -> Awaitable[None] | None:
        """Release what the type needed.

        An exception is logged. The framework waits at most half a second (`Timing.removed_grace`),
        because a plugin must end soon after a stop signal.
        """


class ClaimPreparer(ABC):
    """Makes devices ready for a claim, and undoes this. Only in mode `dra`.

    Both methods are called for each request of a claim and each device type of the request, never
    two at the same time. `parameters` is a dataclass if claims can configure the preparer: a
    DeviceClass and a claim may set its fields, in camelCase. `ClaimedDevices.parameters` is then
    an instance.
    """

    parameters: ClassVar[type | None] = None

    @abstractmethod
    def prepare_claim(
        self, claimed: ClaimedDevices
    ) -> "ContainerEdits | Awaitable[ContainerEdits | None] | None":
        """Make the devices ready; return what a container gets in addition to its devices.

        It is called again for the same claim after a kill of the driver, and after a reboot. An
        exception fails the claim. After an exception or a timeout, `unprepare_claim` is called.
        """

    @abstractmethod
    def unprepare_claim(self, claimed: ClaimedDevices) -> Awaitable[None] | None:
        """Undo `prepare_claim`, also if it was done in part or not at all.

        `parameters` is None if the configuration of the claim is not valid any more. After an
        exception the claim keeps its devices, and the kubelet tries again.
        """


class StandIn(
    Allocator, PostAllocator, PreferredAllocator, ContainerPreStarter, TypeStarter, TypeStopper
):
    """Passes calls on to another object: has every method, and `offered` says which of them count.

    The abilities of such an object depend on the other object, not on its class.
    """

    offered: frozenset[type]
    """The abilities that count: classes of this module."""

    stands_for: str
    """The name of the author's class, for messages."""

    unknown_options: bytes = b""
    """Unknown protobuf fields in the options of another plugin, see `PluginOptions`."""
