"""Why a plugin process cannot go on."""

from kubedevices.errors.shared import KubedevicesError, RpcError, StatusCode


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
