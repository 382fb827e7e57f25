"""Damps changes of health: a change counts when it lasts; a flapping device is taken out. Pure.

"Out" means: reported Unhealthy whatever the plugin says. Here seconds count, because the plugin
reports health at any time; `health_gate` counts the results of regular checks.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from kubedevices.rules.health_rule import DampingRule

HOUR = 3600.0


@dataclass
class _Device:
    is_ok: bool
    """The reported health."""

    was_ok: bool
    """The last observed health."""

    turns: list[float] = field(default_factory=list)
    """The times at which it was observed to turn Unhealthy, in the last hour."""

    against_since: float | None = None
    """Since when the plugin has been saying the opposite, without a break."""

    out_since: float | None = None


class Damper:
    """Decides which health to report of each device, by ID; `now` in seconds.

    The first observation of a device counts at once.
    """

    def __init__(self, rule: DampingRule) -> None:
        self.rule = rule
        self._devices: dict[str, _Device] = {}

    def observe(self, device_id: str, is_ok: bool, now: float) -> bool:
        """Record the present health; return whether to report the device as healthy."""
        device = self._devices.setdefault(device_id, _Device(is_ok, is_ok))
        device.against_since = (
            None
            if is_ok is device.is_ok
            else (now if device.against_since is None else device.against_since)
        )
        # `against_since` is set also while a device is out, so that the device comes back with its
        # present health.
        if device.out_since is not None:
            recovers_at = self._recovers_at(device)
            if recovers_at is None or now < recovers_at:
                return False
            self.put_back(device_id)
        turned_bad, device.was_ok = device.was_ok and not is_ok, is_ok
        # Also a turn that is too short to be reported: somebody who sets both wants short breaks to
        # stay unseen, and a device that has many of them to go out.
        if turned_bad and self._is_one_too_many(device, now):
            device.is_ok, device.against_since, device.out_since = False, None, now
        turns_at = self._turns_at(device)
        if turns_at is not None and now >= turns_at:
            device.is_ok, device.against_since = is_ok, None
        return device.is_ok

    def _is_one_too_many(self, device: _Device, now: float) -> bool:
        # Only changes to Unhealthy count: a flap is a change to Unhealthy and back.
        device.turns = [*(each for each in device.turns if each > now - HOUR), now]
        return self.rule.max_flaps is not None and len(device.turns) > self.rule.max_flaps

    def is_out(self, device_id: str) -> bool:
        """Whether a device has flapped too often, so that it is reported Unhealthy."""
        device = self._devices.get(device_id)
        return device is not None and device.out_since is not None

    def put_back(self, device_id: str) -> None:
        """End that a device is out; its next observation counts."""
        if (device := self._devices.get(device_id)) is not None:
            device.out_since, device.turns, device.was_ok = None, [], False

    def next_at(self) -> float | None:
        """Return when a reported health will change if the observed health stays; None: never."""
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
        """Forget all other devices, except devices that are out: unplugging must not end that."""
        for device_id in self._devices.keys() - set(device_ids):
            if self._devices[device_id].out_since is None:
                del self._devices[device_id]
