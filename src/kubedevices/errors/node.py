"""Errors of the device manager. Texts of kubelet errors are unchanged, because tools match them."""

from kubedevices.errors.shared import CannotAsk, KubedevicesError, _OfPath, _OfReason, _OfResource


class NodeError(KubedevicesError):
    """The device manager refuses. The text is the kubelet's, if the kubelet has this error."""


class ListenFailed(NodeError, CannotAsk, _OfReason):
    """The node could not listen on kubelet.sock, so no plugin can register."""

    text = "failed to listen to socket while starting device plugin registry, with error {reason}"


class LedgerUnusable(CannotAsk, _OfPath):
    """The node could not open its state file; the content may be intact."""

    text = "cannot use the ledger {path}: {reason}"


class LedgerDamaged(NodeError, _OfPath):
    """The content of the node's state file is invalid."""

    text = "the ledger {path} is damaged: {reason}"


class LedgerWriteFailed(NodeError, _OfReason):
    """The node could not write an allocation or release to disk; the text is the kubelet's."""

    text = 'failed to write checkpoint file "kubelet_internal_checkpoint": {reason}'


class NotInTime(NodeError):
    """A resource did not reach the wanted state in time; `seen` is the last state."""

    def __init__(self, resource: str, wanted: str, timeout: float, seen: str) -> None:
        self.resource, self.wanted, self.timeout, self.seen = resource, wanted, timeout, seen
        super().__init__(f"{resource}: not {wanted} within {timeout:g} s, it is: {seen}")


class RegistrationError(NodeError):
    """A plugin was not accepted."""


class UnsupportedVersion(RegistrationError):
    """Register named a version of the device plugin API that the node does not support."""

    def __init__(self, version: str, supported: str) -> None:
        self.version, self.supported = version, supported
        super().__init__(
            f'requested API version "{version}" is not supported by kubelet. '
            f'Supported version is ["{supported}"]'
        )


class BadResourceName(RegistrationError, _OfResource):
    """Register named a resource that is not an extended resource."""

    text = 'the ResourceName "{resource}" is invalid'


class BadEndpoint(RegistrationError):
    """Register named a socket outside the plugin directory, which a kubelet would accept."""

    def __init__(
        self, endpoint: str, rule: str = "it must be a file name in the plugin directory"
    ) -> None:
        self.endpoint, self.rule = endpoint, rule
        super().__init__(f'the endpoint "{endpoint}" is invalid: {rule}')


class TooManyPlugins(RegistrationError):
    """The node serves its maximum number of resources and refuses a new one."""

    def __init__(self, resource: str, limit: int, whose: str = "") -> None:
        self.resource, self.limit = resource, limit
        super().__init__(f"{resource} is refused: {limit} plugins{whose} are connected already")


class ListsUseTooMuch(NodeError):
    """The lists of all plugins use their share of memory, and this plugin's list has to go."""

    def __init__(self, resource: str, limit: int) -> None:
        self.resource, self.limit = resource, limit
        super().__init__(
            f"{resource}: its device list is refused for now: the lists of all plugins may use "
            f"{limit // 2**20} MiB of memory, and its process has most (report fewer devices, "
            "or raise the memory limit)"
        )


class TooManyRegistrations(RegistrationError):
    """A registration did not end, and newer registrations took its place; it may pass."""

    def __init__(self, resource: str, limit: int) -> None:
        self.resource, self.limit = resource, limit
        super().__init__(
            f"{resource} is refused: its plugin did not answer, and others wait to register"
        )


class DialPluginFailed(RegistrationError, _OfReason):
    """The plugin's socket could not be reached within the dial timeout."""

    text = "failed to dial device plugin: {reason}"


class PluginOptionsFailed(RegistrationError, _OfReason):
    """GetDevicePluginOptions failed right after the dial."""

    text = "failed to get device plugin options: {reason}"


class RegistrationServerFailed(NodeError):
    """The Registration service ended without a stop of the node."""

    def __init__(self) -> None:
        super().__init__(
            "device plugin registration gRPC server failed and no device plugins can register"
        )


class EndpointStopped(NodeError):
    """A call to a plugin that disconnected and has not registered again."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        super().__init__(f"endpoint {endpoint} has been stopped")


class ListAndWatchEnded(NodeError):
    """A plugin ended its ListAndWatch stream."""

    def __init__(self, resource: str, reason: str) -> None:
        self.resource, self.reason = resource, reason
        super().__init__(
            f"listAndWatch ended unexpectedly for device plugin {resource} with error {reason}"
        )


class AllocationError(NodeError):
    """A container does not get its devices."""


class UnregisteredResource(AllocationError, _OfResource):
    """Pods hold devices of a resource that no plugin has reported since the node started."""

    text = "cannot allocate unregistered device {resource}"


class UnknownPlugin(AllocationError, _OfResource):
    """The node knows devices of the resource, but not their plugin."""

    text = "unknown Device Plugin {resource}"


class NoHealthyDevices(AllocationError, _OfResource):
    """All devices of the resource are unhealthy, or the plugin disconnected."""

    text = "no healthy devices present; cannot allocate unhealthy devices {resource}"


class DevicesNoLongerHealthy(AllocationError, _OfResource):
    """The container holds devices that have become unhealthy or disappeared."""

    text = (
        "previously allocated devices are no longer healthy; "
        "cannot allocate unhealthy devices {resource}"
    )


class DevicesUnavailable(AllocationError):
    """Fewer devices are available than requested."""

    def __init__(self, resource: str, requested: int, available: int) -> None:
        self.resource, self.requested, self.available = resource, requested, available
        super().__init__(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {requested}, Available: {available}"
        )


class RequestChanged(AllocationError):
    """A container that holds devices now requests another number of devices."""

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
    """Devices disappeared while the node was choosing devices for a container."""

    def __init__(self, requested: int, got: int) -> None:
        self.requested, self.got = requested, got
        super().__init__(
            "unexpectedly allocated less resources than required. "
            f"Requested: {requested}, Got: {got}"
        )


class NoContainerResponse(AllocationError, _OfResource):
    """The plugin answered Allocate with OK, but without a container response."""

    text = "no containers return in allocation response for {resource}"


class EndpointNotFound(AllocationError, _OfResource):
    """The resource has devices, but the node removed its plugin after the grace period."""

    text = "endpoint not found in cache for a registered resource: {resource}"


class PreferredAllocationFailed(AllocationError, _OfReason):
    """The plugin answered GetPreferredAllocation with an error."""

    text = "device plugin GetPreferredAllocation rpc failed with err: {reason}"


class PreStartFailed(AllocationError, _OfReason):
    """The plugin answered PreStartContainer with an error."""

    text = "device plugin PreStartContainer rpc failed with err: {reason}"


class NothingAllocated(AllocationError):
    """PreStartContainer is required, but the container holds no device of the resource."""

    def __init__(self, pod_uid: str, container: str, resource: str) -> None:
        self.pod_uid, self.container, self.resource = pod_uid, container, resource
        super().__init__(
            f"no devices found allocated in local cache for pod {pod_uid}, "
            f"container {container}, resource {resource}"
        )


class PluginNotBack(AllocationError):
    """A container cannot start yet: no plugin has reported its devices since the node started."""

    def __init__(self, resource: str, waited: float) -> None:
        self.resource, self.waited = resource, waited
        super().__init__(
            f"{resource}: its plugin has not reported the container's devices since the node "
            f"started (waited {waited:g} s); start the container again later"
        )


class AdmissionRejected(NodeError):
    """The node refuses a whole pod; no device stays allocated to the pod."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(message)


class HoldInUse(NodeError):
    """A command runs with the devices of this pod; a second command needs another pod name."""

    def __init__(self, pod_uid: str, pid: int, command: str) -> None:
        self.pod_uid, self.pid, self.command = pod_uid, pid, command
        by = f" (process {pid}: {command})" if pid else ""
        super().__init__(
            f"a command runs with the devices of pod {pod_uid}{by}: wait for its end, or choose "
            "another --pod-name"
        )


class GivenUp(NodeError):
    """The node stopped before it handled the request; nothing has changed."""

    def __init__(self) -> None:
        super().__init__(
            "the node stopped before this request was done, and nothing has changed; repeat the "
            "request when the node runs"
        )
