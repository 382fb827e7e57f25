"""Every exception of kubedevices. For whoever catches one; each carries fields, not only text.

::

    KubedevicesError                       exit_code 1: the answer is no
    ├── UsageError                         exit_code 2: wrong usage, config, module or YAML
    │   ├── ConfigError                    one or more mistakes with file, line, column and key
    │   ├── InvalidResourceName
    │   └── InvalidDevice
    ├── CannotAsk                          exit_code 3: socket, file or permission
    │   ├── SocketPathTooLong
    │   ├── SocketInUse
    │   └── BadSocketPath
    ├── WireError                          what happens on a connection
    │   ├── DialError
    │   ├── ProtocolError                  the peer broke HTTP/2, gRPC or protobuf
    │   └── RpcError                       a status that is not OK, with its code
    ├── PluginError                        a plugin process
    │   ├── ScanFailed
    │   ├── RegistrationRefused
    │   ├── DeviceListTooLarge
    │   └── AllocationRefused              unknown or unhealthy device in Allocate
    └── NodeError                          the device manager, in the kubelet's words
        ├── RegistrationError              …UnsupportedVersion, …InvalidResourceName, dial, options
        ├── AllocationError                …why a container gets no devices
        └── EndpointStopped
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class KubedevicesError(Exception):
    """Root of everything this package raises on purpose."""

    exit_code = 1


# ---------------------------------------------------------------- usage


class UsageError(KubedevicesError):
    """The caller gave something wrong: an argument, a module, a file's content."""

    exit_code = 2


@dataclass(frozen=True)
class ConfigProblem:
    """One mistake in a configuration, where it is and what to do about it.

    `line` and `column` count from 1; 0 where the source has none (an environment variable).
    """

    file: str
    line: int
    column: int
    key: str
    problem: str
    suggestion: str = ""

    def __str__(self) -> str:
        """Render as `file:line:column: key: problem (suggestion)`."""
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f"{self.key}: " if self.key else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{where}: {key}{self.problem}{hint}"


class ConfigError(UsageError):
    """All mistakes found in one configuration, in the order of the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InvalidResourceName(UsageError):
    """A name that no kubelet accepts as an extended resource."""

    def __init__(self, name: str, rule: str) -> None:
        self.name, self.rule = name, rule
        super().__init__(f"resource name {name!r} is invalid: {rule}")


class InvalidDevice(UsageError):
    """A `Device`, `DeviceSpec` or `Mount` that cannot go over the wire."""

    def __init__(self, device_id: str, rule: str) -> None:
        self.device_id, self.rule = device_id, rule
        super().__init__(f"device {device_id!r}: {rule}")


# ---------------------------------------------------------------- sockets and files


class CannotAsk(KubedevicesError):
    """A socket, a file or a permission stood in the way: the question was never answered."""

    exit_code = 3


class SocketPathTooLong(CannotAsk):
    """Linux takes at most 107 bytes for the path of a Unix socket."""

    limit = 107

    def __init__(self, path: str) -> None:
        self.path, self.length = path, len(path.encode())
        super().__init__(
            f"socket path has {self.length} bytes, Linux allows {self.limit}: {path} "
            "(choose a shorter --socket-dir)"
        )


class SocketInUse(CannotAsk):
    """Somebody accepts connections on the path we were to bind."""

    def __init__(self, path: str, hint: str = "stop the other process first") -> None:
        self.path = path
        super().__init__(f"Socket {path} is already in use ({hint})")


class BadSocketPath(CannotAsk):
    """A registration socket must have an absolute path."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"bad socketPath, must be an absolute path: {path}")


# ---------------------------------------------------------------- the wire


class StatusCode(enum.IntEnum):
    """gRPC status codes, by their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def camel(self) -> str:
        """`NotFound` for NOT_FOUND: how Go, and so the kubelet's texts, spell a code."""
        if self is StatusCode.OK:
            return "OK"
        return "Canceled" if self is StatusCode.CANCELLED else self.name.title().replace("_", "")


class WireError(KubedevicesError):
    """Something went wrong between two ends of a socket."""


class DialError(WireError):
    """No usable connection: refused, missing, or no HTTP/2 SETTINGS within the deadline."""

    exit_code = 3

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot connect to {path}: {reason}")


class ProtocolError(WireError):
    """The peer sent what HTTP/2, gRPC or protobuf do not allow."""


class RpcError(WireError):
    """A call that ended with a status other than OK, sent by the peer or made by us."""

    def __init__(self, code: StatusCode, message: str = "") -> None:
        self.code, self.message = code, message
        super().__init__(f"rpc error: code = {code.camel} desc = {message}")


# ---------------------------------------------------------------- a plugin process


class PluginError(KubedevicesError):
    """A plugin process cannot go on."""


class ScanFailed(PluginError):
    """The scanner raised before it ever reported a device tree; `__cause__` has the reason."""

    def __init__(self, scanner: str, reason: str) -> None:
        self.scanner, self.reason = scanner, reason
        super().__init__(f"scanner {scanner} failed: {reason}")


class RegistrationRefused(PluginError):
    """The kubelet answered Register with an error that a retry cannot mend."""

    def __init__(self, resource: str, error: RpcError) -> None:
        self.resource, self.code, self.message = resource, error.code, error.message
        super().__init__(f"{resource}: the kubelet refused the registration: {error.message}")


class DeviceListTooLarge(PluginError):
    """A kubelet silently drops a plugin whose list exceeds its gRPC receive limit."""

    def __init__(self, resource: str, devices: int, size: int, limit: int) -> None:
        self.resource, self.devices, self.size, self.limit = resource, devices, size, limit
        super().__init__(
            f"{resource}: a list of {devices} devices has {size} bytes, "
            f"a kubelet accepts {limit} (report fewer devices or shorter IDs)"
        )


class AllocationRefused(PluginError):
    """Allocate named a device that is unknown or unhealthy; carries the status to send."""

    def __init__(self, device_id: str, code: StatusCode) -> None:
        self.device_id, self.code = device_id, code
        kind = "unhealthy" if code is StatusCode.FAILED_PRECONDITION else "non-existing"
        super().__init__(f"Invalid allocation request with {kind} device {device_id}")


# ---------------------------------------------------------------- the device manager


class NodeError(KubedevicesError):
    """The device manager says no. Texts are the kubelet's, because tools match them."""


class RegistrationError(NodeError):
    """A plugin was not accepted."""


class UnsupportedVersion(RegistrationError):
    """Register named a device plugin API version that is not served."""

    def __init__(self, version: str, supported: str) -> None:
        self.version, self.supported = version, supported
        super().__init__(
            f'requested API version "{version}" is not supported by kubelet. '
            f'Supported version is ["{supported}"]'
        )


class BadResourceName(RegistrationError):
    """Register named something that is not an extended resource."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(f'the ResourceName "{resource}" is invalid')


class BadEndpoint(RegistrationError):
    """Register named a socket outside the plugin directory; strict where the kubelet is not."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        super().__init__(
            f'the endpoint "{endpoint}" is invalid: it must be a file name in the plugin directory'
        )


class DialPluginFailed(RegistrationError):
    """The plugin's socket could not be reached within the dial timeout."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"failed to dial device plugin: {reason}")


class PluginOptionsFailed(RegistrationError):
    """GetDevicePluginOptions failed right after the dial."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"failed to get device plugin options: {reason}")


class EndpointStopped(NodeError):
    """A call to a plugin that is gone and has not come back."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        super().__init__(f"endpoint {endpoint} has been stopped")


class AllocationError(NodeError):
    """A container does not get its devices."""


class UnregisteredResource(AllocationError):
    """A resource that is held by pods but that no plugin has reported since our start."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(f"cannot allocate unregistered device {resource}")


class UnknownPlugin(AllocationError):
    """Devices are known, the plugin that could allocate them is not."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(f"unknown Device Plugin {resource}")


class NoHealthyDevices(AllocationError):
    """Every device of the resource is unhealthy, or the plugin is gone."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        )


class DevicesNoLongerHealthy(AllocationError):
    """The container holds devices that meanwhile turned unhealthy or vanished."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )


class DevicesUnavailable(AllocationError):
    """Fewer free healthy devices than requested."""

    def __init__(self, resource: str, requested: int, available: int) -> None:
        self.resource, self.requested, self.available = resource, requested, available
        super().__init__(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {requested}, Available: {available}"
        )


class RequestChanged(AllocationError):
    """A container that holds devices is admitted again with another count."""

    def __init__(
        self, pod_uid: str, container: str, resource: str, held: int, requested: int
    ) -> None:
        self.pod_uid, self.container, self.resource = pod_uid, container, resource
        self.held, self.requested = held, requested
        super().__init__(
            f'pod "{pod_uid}" container "{container}" changed request for resource '
            f'"{resource}" from {held} to {requested}'
        )


class UnexpectedlyFewDevices(AllocationError):
    """Devices vanished between the decision and its second half."""

    def __init__(self, requested: int, got: int) -> None:
        self.requested, self.got = requested, got
        super().__init__(
            "unexpectedly allocated less resources than required. "
            f"Requested: {requested}, Got: {got}"
        )


class NoContainerResponse(AllocationError):
    """Allocate was answered with OK and without an answer."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(f"no containers return in allocation response for {resource}")


class EndpointNotFound(AllocationError):
    """A resource with devices, whose plugin was removed after the grace period."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(f"endpoint not found in cache for a registered resource: {resource}")


class PreferredAllocationFailed(AllocationError):
    """GetPreferredAllocation answered with an error."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"device plugin GetPreferredAllocation rpc failed with err: {reason}")


class PreStartFailed(AllocationError):
    """PreStartContainer answered with an error."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"device plugin PreStartContainer rpc failed with err: {reason}")


class NothingAllocated(AllocationError):
    """PreStartContainer is required, but the container holds no device of the resource."""

    def __init__(self, pod_uid: str, container: str, resource: str) -> None:
        self.pod_uid, self.container, self.resource = pod_uid, container, resource
        super().__init__(
            f"no devices found allocated in local cache for pod {pod_uid}, "
            f"container {container}, resource {resource}"
        )


class AdmissionRejected(NodeError):
    """A pod is refused as a whole; nothing of it stays allocated."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(message)
