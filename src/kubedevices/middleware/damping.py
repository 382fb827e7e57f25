"""Health that does not bounce: a change counts when it lasts; what flaps goes out. Pure.

`health_gate` counts looks in a row; this counts seconds, for words that come when they like.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class DampingRule:
    """When a change counts; times in seconds."""

    unhealthy_after: float = 0.0
    """A device must be unhealthy for so long without a break."""

    healthy_after: float = 0.0
    """A device must be healthy again for so long without a break."""

    max_flaps: int | None = None
    """How often a device may turn Unhealthy within an hour; once more, and it is out."""

    recover_after: float | None = None
    """A device that is out comes back after so long; None: not by itself."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        times = (self.unhealthy_after, self.healthy_after, self.recover_after or 0.0)
        if min(*times, self.max_flaps or 0) < 0:
            raise ValueError("times and numbers of flaps are 0 or more")


@dataclass
class _Device:
    is_ok: bool
    """As it is reported."""

    against_since: float | None = None
    """Since when it has been otherwise, without a break."""

    turns: list[float] = field(default_factory=list)
    """When it turned Unhealthy, in the last hour."""

    out_since: float | None = None


class Damper:
    """The health to report of devices, by ID; every method takes the time.

    The first word about a device decides at once.
    """

    def __init__(self, rule: DampingRule) -> None:
        self.rule = rule
        self._devices: dict[str, _Device] = {}

    def observe(self, device_id: str, is_ok: bool, now: float) -> bool:
        """Take the word of the moment; return whether to report the device as healthy."""
        device = self._devices.setdefault(device_id, _Device(is_ok))
        device.against_since = (
            None
            if is_ok is device.is_ok
            else (now if device.against_since is None else device.against_since)
        )
        # What is said while a device is out still sets `against_since`, so that it comes back with
        # the health that it has by then.
        if device.out_since is not None:
            recovers_at = self._recovers_at(device)
            if recovers_at is None or now < recovers_at:
                return False
            device.out_since = None
            device.turns.clear()
        turns_at = self._turns_at(device)
        if turns_at is not None and now >= turns_at:
            device.is_ok, device.against_since = is_ok, None
            if not is_ok:
                self._note_turn(device, now)
        return device.is_ok

    def _note_turn(self, device: _Device, now: float) -> None:
        device.turns = [*(each for each in device.turns if each > now - HOUR), now]
        # Only turns to Unhealthy count: a flap is a pair of turns.
        if self.rule.max_flaps is not None and len(device.turns) > self.rule.max_flaps:
            device.out_since = now

    def is_out(self, device_id: str) -> bool:
        """Whether a device has flapped too often, so that its word does not count now."""
        device = self._devices.get(device_id)
        return device is not None and device.out_since is not None

    def put_back(self, device_id: str) -> None:
        """Let the word of a device that is out count again."""
        if (device := self._devices.get(device_id)) is not None:
            device.out_since = None
            device.turns.clear()

    def next_at(self) -> float | None:
        """Return when the reported health would change if no other word came."""
        times = (
            self._turns_at(each) if each.out_since is None else self._recovers_at(each)
            for each in self._devices.values()
        )
        return min((at for at in times if at is not None), default=None)

    def _turns_at(self, device: _Device) -> float | None:
        if device.against_since is None:
            return None
        is_worse = device.is_ok
        pause = self.rule.unhealthy_after if is_worse else self.rule.healthy_after
        return device.against_since + pause

    def _recovers_at(self, device: _Device) -> float | None:
        if device.out_since is None or self.rule.recover_after is None:
            return None
        return device.out_since + self.rule.recover_after

    def keep_only(self, device_ids: Collection[str]) -> None:
        """Forget every other device but those that are out: they are not back by unplugging."""
        for device_id in self._devices.keys() - set(device_ids):
            if self._devices[device_id].out_since is None:
                del self._devices[device_id]
