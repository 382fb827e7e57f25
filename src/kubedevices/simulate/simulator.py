"""Simulated devices, reported and allocated like real devices: `kubedevices simulate`.

It answers like simple-device-plugin, but unlike that it registers again after a kubelet restart. A
timeline and a control socket change the devices.
"""

import asyncio
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.errors.words import counted
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.simulate.answers import Answers, answers_for
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.simulate.devices import (
    SimulatedDevices,
    device_id_of,
    make_device,
    with_cdi,
)
from kubedevices.simulate.files import StandInFiles
from kubedevices.simulate.settings import Timeline
from kubedevices.values.device_tree import DeviceTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kubedevices.rules.faults import FaultRule
    from kubedevices.simulate.step_keys import SimulatorStep

_LOOK = 0.1
"""Seconds between two looks at the file that delays the registration."""

_log = logging.getLogger(__name__)


class Simulator(Scanner):
    """Reports the devices of one or more resources of the same domain.

    `control` is the path of the control socket. If `hold_file` exists at the start, nothing is
    reported and so nothing registered until it is deleted; later it has no effect.
    """

    def __init__(
        self,
        *configs: SimulatorConfig,
        timeline: Timeline | None = None,
        control: Path | None = None,
        hold_file: Path | None = None,
    ) -> None:
        self.configs: Sequence[SimulatorConfig] = configs
        self.domain = configs[0].domain
        self._timeline, self._control, self._hold_file = timeline, control, hold_file
        self._devices = SimulatedDevices(configs)
        self._faults = {config.device_type: config.all_faults for config in configs}
        self.on_faults: Callable[[Mapping[str, FaultRule]], None] = lambda _: None
        """Called when a step changes the faults: the middleware `Faulty` applies them."""
        self._notifier: Notifier | None = None
        self._files = StandInFiles()

    def socket_name(self, device_type: str) -> str:
        """Return the name of the socket: of a single resource it is that of the plugin."""
        name = self._config_of(device_type).plugin_name
        return f"{name}.sock" if len(self.configs) == 1 else f"{name}-{device_type}.sock"

    def abilities_of(self, device_type: str) -> Answers:
        """Return the abilities of one resource."""
        return answers_for(self._config_of(device_type), self._devices)

    def describe(self) -> dict[str, Any]:
        """Return the health of each device by resource and ID."""
        tree = self._devices.tree()
        return {
            name: {each.id: str(each.health) for each in tree.devices(name).values()}
            for name in tree
        }

    def take_step(self, step: "SimulatorStep") -> int:
        """Apply `step` and report the devices; return how many devices it concerned."""
        concerned = self._devices.apply(step)
        _log.info("%s (%s)", step, counted(concerned, "device"))
        if step.faults is not None:
            for config in self.configs:
                if step.resource in {None, config.device_type}:
                    rule = replace(step.faults, pre_start=config.pre_start)
                    self._faults[config.device_type] = rule
            self.on_faults({**self._faults})
        self._report()
        return concerned

    async def scan(self, notifier: Notifier) -> None:
        """Report devices, and follow timeline and control socket, until stopped."""
        control = await self._listen()
        try:
            await self._wait_for_release()
            self._notifier = notifier
            self._warn_of_dropped_variables()
            self._report()
            await self._play(notifier)
        finally:
            if control is not None:
                await control.stop()
            self._files.remove()

    async def _play(self, notifier: Notifier) -> None:
        """Follow the timeline until stopped; raises the error of a step."""
        timeline = asyncio.create_task(self._follow_timeline(), name="timeline")
        stopped = asyncio.ensure_future(notifier.wait_stopped())
        try:
            await asyncio.wait({stopped, timeline}, return_when=asyncio.FIRST_COMPLETED)
            if timeline.done():
                timeline.result()
                await stopped
        finally:
            for task in (timeline, stopped):
                task.cancel()
            await asyncio.gather(timeline, stopped, return_exceptions=True)

    async def _wait_for_release(self) -> None:
        if self._hold_file is not None and self._hold_file.exists():
            _log.info("not registering before %s is deleted", self._hold_file)
            while self._hold_file.exists():  # noqa: ASYNC110  # no event says when it is deleted
                await asyncio.sleep(_LOOK)

    async def _listen(self) -> Any:
        if self._control is None:
            return None
        # Imported here: most simulators have no control socket.
        from kubedevices.rules.step_control import StepControl  # noqa: PLC0415
        from kubedevices.simulate.step_keys import step_of  # noqa: PLC0415

        take_step = lambda request: self.take_step(step_of(request))  # noqa: E731
        control = StepControl(self._control, take_step, self.describe)
        await control.start()
        _log.info("taking steps at %s", self._control)
        return control

    async def _follow_timeline(self) -> None:
        """Apply each step at its time; a loop undoes all steps after the last step."""
        if self._timeline is None or not self._timeline.steps:
            return
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            for step in self._timeline.steps:
                await asyncio.sleep(started + step.at - loop.time())
                self.take_step(step)
            if not self._timeline.loop:
                return
            started += max(self._timeline.steps[-1].at, _LOOK)
            await asyncio.sleep(max(0.0, started - loop.time()))
            _log.info("the timeline begins again")
            self._devices.start_again()
            self._faults = {config.device_type: config.all_faults for config in self.configs}
            self.on_faults({**self._faults})
            self._report()

    def _config_of(self, device_type: str) -> SimulatorConfig:
        return next(each for each in self.configs if each.device_type == device_type)

    def _report(self) -> None:
        if self._notifier is None:  # a step was taken before the first report
            return
        simulated, tree = self._devices.tree(), DeviceTree()
        for config in self.configs:
            tree.declare(config.device_type)
            for device in simulated.devices(config.device_type).values():
                there = self._files.give(device) if config.create_device_files else device
                tree.add(config.device_type, with_cdi(there) if config.cdi else there)
        self._notifier.notify(tree)

    def _warn_of_dropped_variables(self) -> None:
        for config in self.configs:
            for name in make_device(config, device_id_of(config, 0), 0).env:
                if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
                    _log.warning(
                        "a shell drops variables with names such as %s; other programs in the "
                        "container see them",
                        name,
                    )
                    return
