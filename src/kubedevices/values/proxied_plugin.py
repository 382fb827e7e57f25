"""The report of a proxy about the plugins behind it: values, and their JSON. Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar

from kubedevices.errors import ProtocolError

HIDDEN = "hidden from the kubelet"
"""The text of the rule that hides a resource."""

AWAY = "its plugin is away"
"""Why `hold` makes free devices Unhealthy."""

MOST_REASONS = 100
"""Devices with reasons in one report: thousands may have the same reason."""

_CONNECTED, _MISSING = "connected", "missing"

_Kind = TypeVar("_Kind")


class OutsideResource(NamedTuple):
    """A resource that the kubelet gets, with the number of devices of each health."""

    resource: str
    healthy: int
    unhealthy: int


class DeviceReason(NamedTuple):
    """A device, with the names that the kubelet knows, and why it is cordoned or Unhealthy."""

    resource: str
    id: str
    reason: str


class ProxiedPlugin(NamedTuple):
    """One resource behind the proxy: its plugin, its devices in the last list, the rules in words.

    `socket` is empty while the plugin is away. `outside` has the resources that the kubelet gets.
    `reasons` has devices that a rule made Unhealthy, at most `MOST_REASONS`, without cordoned ones:
    a plugin itself gives no reason.
    """

    resource: str
    socket: str
    is_here: bool
    healthy: int
    unhealthy: int
    rules: tuple[str, ...] = ()
    outside: tuple[OutsideResource, ...] = ()
    cordoned: tuple[DeviceReason, ...] = ()
    reasons: tuple[DeviceReason, ...] = ()

    def serves(self, resource: str) -> bool:
        """Whether the kubelet gets `resource` from this plugin."""
        return any(each.resource == resource for each in self.outside)

    @property
    def is_hidden(self) -> bool:
        """Whether the rules say that the kubelet gets nothing of this plugin."""
        return HIDDEN in self.rules

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON; `kubedevices devices` prints it, so the keys must not change."""
        return {
            "resource": self.resource,
            "plugin": _CONNECTED if self.is_here else _MISSING,
            "socket": self.socket,
            "healthy": self.healthy,
            "unhealthy": self.unhealthy,
            "rules": [*self.rules],
            "outside": [each._asdict() for each in self.outside],
            "cordoned": [each._asdict() for each in self.cordoned],
            "reasons": [each._asdict() for each in self.reasons],
        }

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read what `as_dict` returned; raises `ProtocolError`."""
        try:
            return cls(
                _is(str, document["resource"]),
                _is(str, document["socket"]),
                _is(str, document["plugin"]) == _CONNECTED,
                _is(int, document["healthy"]),
                _is(int, document["unhealthy"]),
                tuple(_is(str, each) for each in _is(list, document["rules"])),
                _rows(OutsideResource, document["outside"]),
                _rows(DeviceReason, document["cordoned"]),
                # A proxy of an older version has no reasons.
                _rows(DeviceReason, document.get("reasons", [])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"this is no plugin behind a proxy: {error!r}") from error


def _rows(row: Callable[..., _Kind], found: Any) -> tuple[_Kind, ...]:
    types = row.__annotations__.items()
    return tuple(
        row(**{name: _is(kind, each[name]) for name, kind in types}) for each in _is(list, found)
    )


def _is(kind: type[_Kind], value: Any) -> _Kind:
    if type(value) is not kind:  # not isinstance: True is no number
        raise TypeError(f"{value!r} is no {kind.__name__}")
    if isinstance(value, str):
        value.encode()  # refuses half of a surrogate pair, which JSON allows
    return value
