"""Several plugins in one process, for example the simulators of many nodes."""

import asyncio
from collections.abc import Callable, Iterable

from kubedevices.host import deadlines
from kubedevices.plugin.options import Settings
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.stoppable import Stoppable
from kubedevices.plugin.timing import Timing

LOOK_INTERVAL = 1.0
"""Seconds between two calls of `find`."""

EXIT_GRACE = 30.0
"""Seconds that a thousand plugins may take to stop."""


class SideBySide(Stoppable):
    """Runs the plugins that `find` returns; `find` is called again and again, and returns new ones.

    An error of one plugin ends all of them, and is raised.
    """

    def __init__(self, find: Callable[[], Iterable[PluginRunner]]) -> None:
        super().__init__()
        self.settings = Settings(timing=Timing(exit_grace=EXIT_GRACE))
        self._find = find
        self._runners: list[PluginRunner] = []
        self._has_looked = False

    @property
    def has_started(self) -> bool:
        """Whether every plugin that was found serves its devices."""
        return self._has_looked and all(each.has_started for each in self._runners)

    def unlink_sockets(self) -> None:
        """Remove all socket files at once; for an exit that cannot wait for `run`."""
        for each in [*self._runners]:
            each.unlink_sockets()

    async def run(self) -> None:
        """Run all plugins until `stop`, or until one of them fails. Can be called once."""
        self._begin()
        try:
            async with asyncio.TaskGroup() as running:
                while not self._is_stopped:
                    for each in self._find():
                        self._runners.append(each)
                        running.create_task(each.run(), name=repr(each))
                    self._has_looked = True
                    await deadlines.within(LOOK_INTERVAL, self._stopped.wait())
                for each in self._runners:
                    each.stop()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
