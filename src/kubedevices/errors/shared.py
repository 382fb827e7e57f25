"""The root of all errors, wrong usage, sockets and files, and gRPC calls."""

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple


class KubedevicesError(Exception):
    """Root of all exceptions that kubedevices defines."""

    exit_code = 1


class _OfReason(KubedevicesError):
    """The form of errors whose `text` names a reason, in braces."""

    text: str

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(self.text.format(reason=reason))


class _OfPath(KubedevicesError):
    """The form of errors whose `text` names a path and a reason, in braces."""

    text: str

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(self.text.format(path=path, reason=reason))


class _OfResource(KubedevicesError):
    """The form of errors whose `text` names a resource, in braces."""

    text: str

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(self.text.format(resource=resource))


# ---------------------------------------------------------------- usage


class UsageError(KubedevicesError):
    """The user made an error: in an argument, a module, or the content of a file."""

    exit_code = 2


@contextmanager
def needs_h11(what: str) -> Iterator[None]:
    """Raise `UsageError` if an import inside the block fails because h11 is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise UsageError(f"{what} needs h11: pip install 'kubedevices[dra]'") from error


class ConfigProblem(NamedTuple):
    """One error in a configuration, its place and a suggestion.

    `line` and `column` count from 1; both are 0 for a source without lines (an environment
    variable).
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
    """All errors of one configuration, in the order of the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InvalidResourceName(UsageError):
    """A name that kubelets do not accept as an extended resource."""

    def __init__(self, name: str, rule: str) -> None:
        self.name, self.rule = name, rule
        super().__init__(f"resource name {name!r} is invalid: {rule}")


class InvalidDevice(UsageError):
    """A `Device`, `DeviceSpec` or `Mount` that cannot be sent to a kubelet."""

    def __init__(self, device_id: str, rule: str) -> None:
        self.device_id, self.rule = device_id, rule
        super().__init__(f"device {device_id!r}: {rule}")


# ---------------------------------------------------------------- sockets and files


class CannotAsk(KubedevicesError):
    """A socket, a file or a missing permission prevents the action."""

    exit_code = 3


class SocketPathTooLong(CannotAsk):
    """The path of a Unix socket has more than 107 bytes, the limit of Linux."""

    limit = 107

    def __init__(self, path: str, advice: str = "choose a shorter path") -> None:
        self.path, self.length = path, len(path.encode(errors="surrogateescape"))
        super().__init__(
            f"socket path has {self.length} bytes, Linux allows {self.limit}: {path} ({advice})"
        )


class SocketInUse(CannotAsk):
    """Another process listens on the path where we want to listen."""

    def __init__(self, path: str, hint: str = "stop the other process first") -> None:
        self.path = path
        super().__init__(f"Socket {path} is already in use ({hint})")


class CannotRead(CannotAsk, _OfPath):
    """A file that the user named is missing or not readable."""

    text = "cannot read {path}: {reason}"


class OtherVersion(CannotRead):
    """A state file of ours with a version that only a newer program can read; it is not damaged."""

    def __init__(self, path: str, version: int, newest: int) -> None:
        self.version, self.newest = version, newest
        super().__init__(
            path,
            f"it has version {version}, of a newer kubedevices; this program reads versions up to "
            f"{newest} (upgrade again to use it)",
        )


class NoNode(CannotAsk):
    """No `kubedevices node` serves a directory; a kubelet may serve it.

    `options` are the options of the command line that name the node. `may_have_state` says that a
    program serves there, which may be a node with another state directory.
    """

    def __init__(self, socket_dir: str, options: str, *, may_have_state: bool = False) -> None:
        self.socket_dir, self.options, self.may_have_state = socket_dir, options, may_have_state
        super().__init__(
            f"no kubedevices node is running for {options}: start one with "
            f"`kubedevices node {options}`"
            + " (if one runs with a --state-dir of its own, name it here too)"
            * may_have_state
        )


class NotPermitted(CannotAsk):
    """The user has no permission for a file or socket; `what` says which."""

    def __init__(self, what: str, advice: str = "ask again as root") -> None:
        self.what = what
        super().__init__(f"no permission to {what}: {advice}")


class KubeletSilent(CannotAsk):
    """A kubelet accepts connections, but did not answer within `seconds`."""

    def __init__(self, path: str, seconds: float, reason: str) -> None:
        self.path, self.seconds = path, seconds
        super().__init__(f"the kubelet at {path} did not answer within {seconds:g} s: {reason}")


class DirectoryInUse(CannotAsk):
    """Another process holds the lock of a state directory."""

    def __init__(self, path: str, holder: str = "", program: str = "node") -> None:
        self.path, self.holder, self.program = path, holder, program
        process = f", {holder}," if holder else ""
        super().__init__(
            f"another kubedevices {program}{process} uses the state directory {path}: stop it, or "
            "choose another --state-dir"
        )


class BadSocketPath(CannotAsk):
    """A registration socket must have an absolute path."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"bad socketPath, must be an absolute path: {path}")


class CommandNotStarted(KubedevicesError):
    """The user's command did not start; the exit codes are a shell's: 126 and 127."""

    def __init__(self, command: str, reason: str, *, found: bool) -> None:
        self.command, self.reason = command, reason
        self.exit_code = 126 if found else 127
        super().__init__(f"cannot start {command}: {reason}")


class NotJson(KubedevicesError, ValueError):
    """A text is not JSON, or it is larger or deeper than we read (`is_beyond_limits`)."""

    def __init__(self, problem: str, *, is_beyond_limits: bool = False) -> None:
        self.problem, self.is_beyond_limits = problem, is_beyond_limits
        super().__init__(problem)


class WrongShape(KubedevicesError, ValueError):
    """A value of a JSON or YAML text has another type than `wanted`, or is missing."""

    def __init__(self, place: str, wanted: str) -> None:
        self.place, self.wanted = place, wanted
        super().__init__(f"{place} must be {wanted}")


class NotYaml(KubedevicesError, ValueError):
    """A text is not YAML, or it is larger or deeper than we read (`is_beyond_limits`).

    `line` and `column` count from 1.
    """

    def __init__(
        self, problem: str, line: int = 1, column: int = 1, *, is_beyond_limits: bool = False
    ) -> None:
        self.problem, self.line, self.column = problem, line, column
        self.is_beyond_limits = is_beyond_limits
        super().__init__(f"{problem} (line {line}, column {column})")


# ---------------------------------------------------------------- gRPC calls


class StatusCode(enum.IntEnum):
    """The status codes of gRPC."""

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
        """The name in Go and in the kubelet's texts: `NotFound` for NOT_FOUND."""
        if self is StatusCode.OK:
            return "OK"
        return "Canceled" if self is StatusCode.CANCELLED else self.name.title().replace("_", "")


class WireError(KubedevicesError):
    """A connection or a call over a socket failed."""


class DialError(WireError):
    """Connecting failed: no socket, refused, or no HTTP/2 SETTINGS within the deadline."""

    exit_code = 3

    def __init__(self, path: str, reason: str, errno: int = 0) -> None:
        self.path, self.reason, self.errno = path, reason, errno
        super().__init__(f"cannot connect to {path}: {reason}")


class ProtocolError(WireError):
    """The peer broke the protocol: HTTP/2, gRPC or protobuf. `code` is the HTTP/2 error code."""

    def __init__(self, text: str = "", code: int = 1) -> None:
        self.code = code
        super().__init__(text)


class RpcError(WireError):
    """A call ended with a status other than OK; the peer or we have set it."""

    def __init__(self, code: StatusCode, message: str = "") -> None:
        self.code, self.message = code, message
        super().__init__(f"rpc error: code = {code.camel} desc = {message}")
