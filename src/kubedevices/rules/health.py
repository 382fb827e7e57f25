"""The health rule, `Damped`: changes are damped, checks are run, wrong reports are ignored.

`damping` decides when a change of health counts, `health_checks` runs the checks. A device that
flapped too often is cordoned in the file of `cordon`, if this middleware is one of the inner
layers. So it stays out over a restart, until somebody uncordons it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import NoReturn

from kubedevices.errors import KubedevicesError
from kubedevices.host import deadlines
from kubedevices.plugin import hook_threads
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.stoppable import call_on
from kubedevices.rules.cordon import Cordoned
from kubedevices.rules.damping import Damper
from kubedevices.rules.device_facts import DeviceFacts
from kubedevices.rules.health_checks import FIRST_LOOK, CheckId, DeviceCheck, HealthChecks
from kubedevices.rules.health_rule import HealthRule
from kubedevices.rules.middleware import RuledMiddleware, layers
from kubedevices.values.device import Device, Health
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.wildcards import fits

_UNCHECKED = "its first health check has not ended yet"

_log = logging.getLogger(__name__)


class Damped(RuledMiddleware[HealthRule]):
    """Reports the health of devices by one rule for all types, or by rules for some types.

    A list waits up to 2 s for the first results of checks; a device that appears later is Unhealthy
    for so long.

    Events: `turned_unhealthy`, `turned_healthy` (changes of the reported health), `went_out`
    (flapped too often), `ignored`.
    """

    def __init__(
        self,
        scanner: Scanner,
        rules: HealthRule | Mapping[str, HealthRule],
        *,
        facts: DeviceFacts | None = None,
    ) -> None:
        super().__init__(scanner, rules)
        self._facts = facts or DeviceFacts()
        self._dampers: dict[str, Damper] = {}
        self._reported: dict[tuple[str, str], bool] = {}
        self._ignored: set[tuple[str, str]] = set()
        # `first_look=0`: `_unchecked` waits for first results, because `change` may not wait.
        self._checks = HealthChecks(self.look_again, first_look=0.0)
        self._seen: dict[tuple[str, str], float] = {}
        """When each device that has no first result yet was seen first."""

        self._has_reported = False
        self._planned: dict[CheckId, DeviceCheck] = {}
        self._has_work = asyncio.Event()
        self._cordons = next((each for each in layers(scanner) if isinstance(each, Cordoned)), None)
        # Out by the damper, but not yet in the file of cordoned devices. Once there, the file alone
        # says how long a device is out: also after a restart, and after `kubedevices uncordon`.
        self._to_cordon: set[tuple[str, str]] = set()

    def line(self) -> str:
        """Return the rules in one line."""
        rules = self.named_rules("")
        text = "; ".join(f"{name} {_rule_text(rule)}".strip() for name, rule in rules)
        return f"health: {text}" if text else ""

    # ------------------------------------------------------------ lists

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return `tree` with the health to report, and plan the next look."""
        ruled = {name: rule for name in tree if (rule := self.rule_of(name)) is not None}
        self._plan_checks(tree, ruled)
        for name, rule in ruled.items():
            self.warn_of_unused_globs(name, rule.ignore, tree.devices(name), now)
        self._facts.keep_only(tree)
        for gone in [each for each in self._reported if each[1] not in tree.devices(each[0])]:
            del self._reported[gone]  # if it returns, its first check counts again
            self._ignored.discard(gone)
        unchecked = self._unchecked(now)
        self.is_waiting = bool(unchecked) and not self._has_reported
        self._has_reported = not self.is_waiting
        changed = {
            name: self._changed(name, rule, tree.devices(name), unchecked, now)
            for name, rule in ruled.items()
        }
        times = [at for name in ruled if (at := self._dampers[name].next_at()) is not None]
        if unchecked:
            times.append(min(self._seen[each] for each in unchecked) + FIRST_LOOK)
        if times:
            self.look_again(min(times))
        return tree.replaced(changed)

    def _unchecked(self, now: float) -> set[tuple[str, str]]:
        """Return the new devices whose first result may come soon: they are not Healthy yet.

        If a broken device were Healthy until its check has ended, it would get a pod at each start.
        """
        new = {
            (name, device_id)
            for name, device_id, number in self._planned
            if (name, device_id) not in self._reported
            and self._checks.health((name, device_id, number)) is None
        }
        self._seen = {each: self._seen.get(each, now) for each in new}
        return {each for each, at in self._seen.items() if now < at + FIRST_LOOK}

    def _changed(
        self,
        device_type: str,
        rule: HealthRule,
        devices: Mapping[str, Device],
        unchecked: Collection[tuple[str, str]],
        now: float,
    ) -> dict[str, Device]:
        """Return the devices whose reported health differs from the plugin's report."""
        damper = self._dampers.setdefault(device_type, Damper(rule))
        damper.rule = rule
        damper.keep_only(devices.keys())
        changed = {}
        for device_id, device in devices.items():
            if self._is_cordoned(device_type, device_id):
                damper.put_back(device_id)  # `Cordoned` made it Unhealthy already
                continue
            if (device_type, device_id) in unchecked:
                if device.is_healthy:
                    changed[device_id] = device.with_health(Health.UNHEALTHY, _UNCHECKED)
                continue
            was_out = damper.is_out(device_id)
            is_ok = damper.observe(device_id, self._health_of(device_type, rule, device), now)
            if damper.is_out(device_id) and not was_out:
                self._take_out(device_type, device_id, rule)
            if fits(device_id, rule.ignore):
                is_ok = True
                self._report_ignored(device_type, device_id)
            before = self._reported.get((device_type, device_id))
            self._reported[device_type, device_id] = is_ok
            # The first report about a device is no change.
            if before is not None and before is not is_ok:
                self.count("turned_healthy" if is_ok else "turned_unhealthy", device_type)
            reason = "" if is_ok else self._reason_of(device_type, rule, device)
            if is_ok is not device.is_healthy or reason != device.reason:
                health = Health.HEALTHY if is_ok else Health.UNHEALTHY
                changed[device_id] = device.with_health(health, reason)
        return changed

    def _reason_of(self, device_type: str, rule: HealthRule, device: Device) -> str:
        """Return why a device is reported Unhealthy: the reason that a person can act on first."""
        if self._dampers[device_type].is_out(device.id):
            return f"its health changed more than {rule.max_flaps} times within an hour"
        names = [str(i) for i in range(len(rule.checks))]
        if not device.is_healthy:
            if device.reason:
                return device.reason
            names.append("recover")
        reasons = (self._checks.reason((device_type, device.id, each)) for each in names)
        if found := next(filter(None, reasons), ""):
            return found
        if not device.is_healthy:
            return ""  # the plugin says so, without a reason
        return f"healthy again for less than {rule.healthy_after:g} s"

    def _health_of(self, device_type: str, rule: HealthRule, device: Device) -> bool:
        """Return the present health by plugin and checks; a check without a result is skipped."""
        is_ok = device.is_healthy
        if rule.recover is not None and not is_ok:
            known = self._checks.health((device_type, device.id, "recover"))
            is_ok = known is Health.HEALTHY
        checked = (
            self._checks.health((device_type, device.id, str(i))) for i in range(len(rule.checks))
        )
        return is_ok and Health.UNHEALTHY not in [*checked]

    def _report_ignored(self, device_type: str, device_id: str) -> None:
        if (device_type, device_id) not in self._ignored:
            self.count("ignored", device_type)
            text = "%s: %s is always reported Healthy: health.ignore names it"
            _log.warning(text, device_type, device_id)
            self._ignored.add((device_type, device_id))

    # ------------------------------------------------------------ out until it is uncordoned

    def _take_out(self, device_type: str, device_id: str, rule: HealthRule) -> None:
        self.count("went_out", device_type)
        if self._cordons is not None:
            self._to_cordon.add((device_type, device_id))
            self._wake_up()
        _log.warning(
            "%s: %s turned Unhealthy more than %s times within an hour: it is out %s",
            device_type, device_id, rule.max_flaps, self._until(rule),
        )  # fmt: skip

    def _until(self, rule: HealthRule) -> str:
        ends = [] if rule.recover_after is None else [f"for {rule.recover_after:g} s"]
        ends += ["until it is uncordoned"] if self._cordons is not None else []
        return ", or ".join(ends) or "until a restart"

    def _is_cordoned(self, device_type: str, device_id: str) -> bool:
        cordons = self._cordons
        return cordons is not None and cordons.out.reason(device_type, device_id) is not None

    async def _cordon(self) -> None:
        """Write devices that went out into the file, so that they stay out over a restart."""
        from kubedevices.rules.cordon_file import add_cordoned  # noqa: PLC0415 - few flap

        cordons = self._cordons
        while self._to_cordon and cordons is not None:
            device_type, device_id = self._to_cordon.pop()
            reason = "its health changed too often (cordoned by the health rule)"
            resource = f"{cordons.domain}/{device_type}"
            rule = self.rule_of(device_type)
            recover_after = rule.recover_after if rule is not None else None
            try:
                await hook_threads.call(
                    add_cordoned,
                    cordons.file,
                    [(resource, device_id)],
                    reason,
                    recover_after,
                )
            except KubedevicesError as error:
                text = "%s: %s is not in the list of `kubedevices cordon`, so a restart ends it: %s"
                _log.warning(text, device_type, device_id, error)
                continue
            await cordons.read_now()

    # ------------------------------------------------------------ checks

    def _plan_checks(self, tree: DeviceTree, ruled: Mapping[str, HealthRule]) -> None:
        checks = {
            key: check
            for name, rule in ruled.items()
            if rule.checks or rule.recover
            for device in tree.devices(name).values()
            for key, check in self._checks_of(name, rule, device)
        }
        if checks != self._planned:
            self._planned = checks
            self._wake_up()

    def _checks_of(
        self, device_type: str, rule: HealthRule, device: Device
    ) -> Iterator[tuple[CheckId, DeviceCheck]]:
        values = {"id": device.id, "address": ""}
        if rule.needs_address and (function := self._facts.pci_function(device)):
            values["address"] = function.address
        for i, check in enumerate(rule.checks):
            yield (device_type, device.id, str(i)), DeviceCheck(check, values)
        if rule.recover is not None and not device.is_healthy:
            yield (device_type, device.id, "recover"), DeviceCheck(rule.recover, values)

    def _wake_up(self) -> None:
        call_on(self._loop, self._has_work.set)

    async def run_beside(self) -> NoReturn:
        """Run the checks that are due, and write devices that went out into the file."""
        known: dict[CheckId, DeviceCheck] = {}
        while True:
            self._has_work.clear()
            await self._cordon()
            if (planned := self._planned) is not known:
                known = planned
                await hook_threads.call(self._checks.update, known)
            self._checks.run_due()
            await deadlines.within(self._checks.pause(), self._has_work.wait())


def _rule_text(rule: HealthRule) -> str:
    parts = [f"Unhealthy after {rule.unhealthy_after:g} s, Healthy after {rule.healthy_after:g} s"]
    if rule.max_flaps is not None:
        parts.append(f"out after more than {rule.max_flaps} changes to Unhealthy an hour")
    if rule.checks:
        parts.append(f"{len(rule.checks)} checks")
    if rule.recover:
        parts.append(f"{' '.join(rule.recover.command) or rule.recover.path} decides on recovery")
    if rule.ignore:
        parts.append(f"ignored: {', '.join(rule.ignore)}")
    return ", ".join(parts)
