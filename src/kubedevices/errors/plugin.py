"""Errors of a plugin process: of its scanner, its hooks, its requests from the kubelet."""

from collections.abc import Sequence

from kubedevices.errors.shared import KubedevicesError, RpcError, StatusCode, UsageError
from kubedevices.errors.words import counted, some_of


class PluginError(KubedevicesError):
    """A plugin, or one call to it, failed."""


class ScanFailed(PluginError):
    """The scanner raised before its first device tree; `__cause__` is the exception."""

    def __init__(self, scanner: str, reason: str) -> None:
        self.scanner, self.reason = scanner, reason
        super().__init__(f"scanner {scanner} failed: {reason}")


class RegistrationRefused(PluginError):
    """The kubelet answered Register with an error that would come again after a retry."""

    def __init__(self, resource: str, error: RpcError) -> None:
        self.resource, self.code, self.message = resource, error.code, error.message
        super().__init__(f"{resource}: the kubelet refused the registration: {error.message}")


class DeviceListTooLarge(PluginError):
    """A device list exceeds the kubelet's gRPC receive limit; a kubelet would drop the plugin."""

    def __init__(self, resource: str, devices: int, size: int, limit: int) -> None:
        self.resource, self.devices, self.size, self.limit = resource, devices, size, limit
        super().__init__(
            f"{resource}: a list of {counted(devices, 'device')} has {size} bytes, "
            f"a kubelet accepts {limit} (report fewer devices or shorter IDs)"
        )


class AllocationRefused(PluginError):
    """Allocate named an unknown or unhealthy device; `code` is the status to send."""

    def __init__(self, device_id: str, code: StatusCode) -> None:
        self.device_id, self.code = device_id, code
        kind = "unhealthy" if code is StatusCode.FAILED_PRECONDITION else "non-existing"
        super().__init__(f"Invalid allocation request with {kind} device {device_id}")


class NoDevicesNamed(AllocationRefused):
    """Allocate had a container without devices."""

    def __init__(self) -> None:
        self.device_id, self.code = "", StatusCode.INVALID_ARGUMENT
        PluginError.__init__(self, "Invalid allocation request without devices")


class DeviceCordoned(AllocationRefused):
    """Allocate named a device that an operator cordoned; `reason` is the operator's."""

    def __init__(self, device_id: str, reason: str) -> None:
        self.device_id, self.code, self.reason = device_id, StatusCode.FAILED_PRECONDITION, reason
        PluginError.__init__(self, f"device {device_id} is cordoned: {reason}")


class ConflictingDevices(AllocationRefused):
    """Devices of one container have conflicting settings, and the options do not allow this."""

    def __init__(self, device_id: str, problem: str) -> None:
        self.device_id, self.code, self.problem = device_id, StatusCode.INVALID_ARGUMENT, problem
        PluginError.__init__(self, f"Invalid allocation request: {problem}")


class SharesRefused(AllocationRefused):
    """A container requested more replicas than `limit`; without a limit, two of one device."""

    def __init__(self, device_type: str, ids: Sequence[str], limit: int | None = None) -> None:
        self.device_type, self.ids, self.limit = device_type, tuple(ids), limit
        self.device_id, self.code = ids[0], StatusCode.INVALID_ARGUMENT
        if limit is None:
            text = (
                f"{some_of(self.ids)} are shares of one device, and a container may have only one "
                f"share of a device: request at most as many {device_type} as devices exist"
            )
        else:
            most = "one" if limit == 1 else limit
            text = f"a container may have only {most} {device_type}, not {len(ids)}: request fewer"
        PluginError.__init__(self, text)


class BadHookAnswer(PluginError):
    """A method of the plugin author returned a value of a wrong type."""

    def __init__(self, plugin: str, method: str, expected: str, answer: object) -> None:
        self.plugin, self.method, self.expected, self.answer = plugin, method, expected, answer
        super().__init__(f"{plugin}.{method}() must return {expected}, not {_what(answer)}")


class HookFailed(PluginError):
    """A method of the plugin author raised an exception, which is `__cause__`."""

    def __init__(self, plugin: str, method: str, error: Exception, reason: str) -> None:
        self.plugin, self.method, self.error, self.reason = plugin, method, error, reason
        super().__init__(f"{plugin}.{method}() failed: {reason}")


class HookHangs(PluginError):
    """Too many calls of a method of the plugin author hang: it is not called until one ends."""

    def __init__(self, hook: str, calls: int) -> None:
        self.hook, self.calls = hook, calls
        super().__init__(f"{hook} hangs in {calls} calls: not called again until one call ends")


class HookTimedOut(PluginError):
    """A method of the plugin author did not return in time; `code` is the status to send."""

    code = StatusCode.DEADLINE_EXCEEDED

    def __init__(self, resource: str, hook: str, seconds: float, option: str) -> None:
        self.resource, self.hook, self.seconds, self.option = resource, hook, seconds, option
        flag = f"--{option.replace('_', '-')}"
        super().__init__(
            f"{resource}: {hook} did not answer within {seconds:g} s (the plugin's author has to "
            f"find out why {hook} waits; {option} or {flag} gives {hook} more time)"
        )


class ImpossiblePreference(PluginError):
    """No set of devices can satisfy a GetPreferredAllocation request."""

    def __init__(self, size: int, available: int, reason: str) -> None:
        self.size, self.available, self.reason = size, available, reason
        super().__init__(f"cannot prefer {size} of {available} available devices: {reason}")


class NotADeviceTree(UsageError):
    """A scanner reported a wrong type, most often None because of a forgotten `return`."""

    def __init__(self, source: str, value: object) -> None:
        self.source, self.value = source, value
        verb = "takes" if source == "notify()" else "must return"
        super().__init__(f"{source} {verb} a DeviceTree, not {_what(value)}")


def _what(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {value!r:.60}"
