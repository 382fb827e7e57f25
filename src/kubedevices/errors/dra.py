"""Errors of a DRA driver, of its calls to the API server, and of the node's DRA half."""

from kubedevices.errors.node import NodeError, RegistrationError
from kubedevices.errors.shared import CannotAsk, KubedevicesError, UsageError, _OfPath


class DraError(KubedevicesError):
    """A DRA driver cannot fulfil a request."""


class ClaimRefused(DraError):
    """A ResourceClaim cannot be prepared; the event of its pod has this text."""

    def __init__(self, claim: str, problem: str) -> None:
        self.claim, self.problem = claim, problem
        super().__init__(f"claim {claim}: {problem}")


class DeviceStillHeld(ClaimRefused):
    """Another claim, `holder`, has the device of a claim and is not unprepared."""

    def __init__(self, claim: str, holder: str, device: str) -> None:
        self.holder, self.device = holder, device
        super().__init__(claim, f"the claim {holder} still holds device {device}")


class ClaimNotReleased(DraError):
    """`release --claim` cannot free the devices of a claim."""

    def __init__(self, claim: str, problem: str) -> None:
        self.claim, self.problem = claim, problem
        super().__init__(f"the claim {claim} is not released: {problem}")


class DriverTaken(DraError):
    """Another deployment is the driver of this domain on the node."""

    def __init__(self, driver: str, deployment: str, types: tuple[str, ...]) -> None:
        self.driver, self.deployment, self.types = driver, deployment, types
        who = f"the deployment {deployment}" if deployment else "another process"
        super().__init__(
            f"{who} is the DRA driver {driver} on this node, for {', '.join(types)}: a domain has "
            "one deployment in mode dra, so choose another domain, or serve all device types in "
            "one deployment"
        )


class PreparedUnwritable(DraError, _OfPath):
    """A file of prepared claims cannot be written, so no claim is prepared or unprepared."""

    text = "cannot write {path}: {reason}"


class BadSelector(DraError):
    """A device selector that cannot be compiled, or that fails for a device.

    `kind` is compilation, length, evaluation, result (no bool), cost, or unsupported: the selector
    may be right, but cannot be evaluated here.
    """

    def __init__(self, kind: str, problem: str) -> None:
        self.kind, self.problem = kind, problem
        names = {"compilation": "compilation failed", "evaluation": "CEL runtime error"}
        super().__init__(f"device selector: {names.get(kind, kind)}: {problem}")


class UnusableCredentials(UsageError):
    """Credentials or an address that no HTTP request can have; the text shows neither."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class ApiRefused(DraError):
    """The API server answered with an error; `reason` is from the answer, such as `NotFound`.

    Status 0: the answer is not what was asked for. `retry_after` is in seconds.
    """

    def __init__(
        self,
        what: str,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after: float | None = None,
        missing_rule: str = "",
    ) -> None:
        self.what, self.status, self.reason, self.message = what, status, reason, message
        self.retry_after, self.missing_rule = retry_after, missing_rule
        hint = f" (the service account needs the RBAC rule {missing_rule})" if missing_rule else ""
        super().__init__(f"cannot {what}: {message or reason or f'status {status}'}{hint}")

    @property
    def is_definite(self) -> bool:
        """Whether the same call would be refused again: not for a server in trouble."""
        return 0 < self.status < 500 and self.status != 429


class ApiUnreachable(CannotAsk):
    """The API server did not answer."""

    def __init__(self, server: str, reason: str) -> None:
        self.server, self.reason = server, reason
        super().__init__(f"the API server {server} cannot be reached: {reason}")


class DriverNotAccepted(RegistrationError):
    """The node refuses to register a DRA driver that its plugin watcher found."""

    def __init__(self, driver: str, endpoint: str, problem: str) -> None:
        self.driver, self.endpoint, self.problem = driver, endpoint, problem
        super().__init__(problem)


class DynamicResourcesFailed(NodeError):
    """The claims of a pod cannot be prepared or unprepared; the text is the kubelet's."""

    def __init__(self, verb: str, problem: str) -> None:
        self.verb, self.problem = verb, problem
        super().__init__(f"{verb} dynamic resources: {problem}")
