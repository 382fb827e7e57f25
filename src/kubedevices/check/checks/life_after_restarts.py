"""Checks the plugin's process after kubelet restarts: does it end, or does it grow?"""

import asyncio

from kubedevices.check.check import FAIL, WARN, Broken, Harm, NotPassed, NotTried, Phase, Theme
from kubedevices.check.checks.life_restarts import restart_once
from kubedevices.check.checks.life_restarts import theme as restarts
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.check.process_figures import Figures, figures_of, listening_process
from kubedevices.errors.words import counted

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped"),
    track="growth",
    slow=True,
)

dies_theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped"),
    track="life.sockets-wiped",
    slow=True,
    harm=Harm.ALL_DEVICES,
)

FEWEST = 6
"""The least number of restarts that show growth; a plugin too slow for these is not judged."""

_MORE_READINGS = 6


@dies_theme.check(
    "dies",
    FAIL,
    alone=True,
    suffers="All devices of the plugin are gone until it runs again, and the back-off before the "
    "next start grows each time.",
    source="Kubernetes: a container that exits is restarted after 10 s, 20 s, … up to 5 minutes",
    mend="Find the cause in the last lines of the output; no action of a kubelet may end a plugin.",
    seen="Intel's framework (a second or more after a kubelet restart: send on closed channel)",
)
async def dies(harness: Harness) -> str:
    """The process does not end by itself, for example some seconds after a kubelet restart."""
    await restart_once(harness, 1)
    await harness.pause(harness.timing.watch)
    if ended := harness.how_ended():
        when = f"{ended} some time after a kubelet restart"
        # First: one restart is easier to reproduce than the actions of other checks.
        harness.record_end(when, first=True)
        raise Broken(when, harness.last_words())
    if missing := harness.missing():
        raise Broken(f"{', '.join(missing)} was not registered some time after a kubelet restart")
    return f"still running {harness.timing.watch:g} s after a kubelet restart"


# ---------------------------------------------------------------- growth


class Growth:
    """Figures of the serving process: after two kubelet restarts, halfway, and after all."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.figures: list[Figures] = []

    @classmethod
    async def measure(cls, harness: Harness) -> "Growth":
        """Restart the kubelet many times, once for all checks of growth.

        If this raises a `NotPassed`, each of these checks raises the same.
        """
        known = harness.memory.get(cls)
        if known is None:
            try:
                known = await cls._measure(harness)
            except NotPassed as finding:
                known = finding
            harness.memory[cls] = known
        if isinstance(known, NotPassed):
            raise known
        assert isinstance(known, cls)
        return known

    @classmethod
    async def _measure(cls, harness: Harness) -> "Growth":
        """Restart and measure; raises `NotTried` if the plugin is slow or cannot be measured."""
        each = await _restart(harness, 1)
        if each <= harness.timing.noticed_soon:
            each = min(each, await _restart(harness, 2))  # a busy machine may delay one of them
        rounds = min(harness.timing.rounds, int(harness.timing.often / each) // 2 * 2)
        if rounds < FEWEST:
            raise NotTried(f"it takes {each:.1f} s to register again: too long for many restarts")
        found = cls(rounds)
        found.figures.append(_figures(harness))
        for number in range(rounds):
            await _restart(harness, number + 3)
            if number + 1 == rounds // 2:
                found.figures.append(_figures(harness))
        await harness.pause(2 * harness.timing.hold)
        found.figures.append(_figures(harness))
        for _ in range(_MORE_READINGS):  # descriptors may be closed a little later
            if found.figures[-1].descriptors <= found.figures[0].descriptors:
                break
            await harness.pause(harness.timing.hold)
            found.figures[-1] = Figures(*map(min, found.figures[-1], _figures(harness)))
        return found

    def judge(self, what: str, *, allowed: float, unit: str = "") -> str:
        """Return how one figure grew; raises `Broken` if it grew by more than `allowed`.

        It must have grown in the second half as well: a pool, for example, grows only at first.
        """
        before, halfway, after = (getattr(each, what) for each in self.figures)
        text = f"{before:,} → {halfway:,} → {after:,}{unit} over {self.rounds} restarts"
        if after - before > allowed and after - halfway > allowed / 2:
            raise Broken(text)
        return text


async def _restart(harness: Harness, number: int) -> float:
    """Return the own seconds until all registered again; raises `NotTried` if the process ends."""
    began = asyncio.get_running_loop().time()
    try:
        await restart_once(harness, number)
    except Broken as error:
        if ended := harness.how_ended():
            when = f"{ended} after {counted(number, 'kubelet restart')} in a row"
            harness.record_end(when)
            raise NotTried(when) from error
        raise
    return harness.spent(began)


def _figures(harness: Harness) -> Figures:
    pid = listening_process(Plugin.of(harness, harness.resources[0]).socket)
    found = figures_of(pid) if pid else None
    if found is None:
        raise NotTried("the figures of the plugin's process cannot be read")
    return found


@theme.check(
    "descriptors",
    WARN,
    suffers="After some thousand restarts, or earlier with a low limit, the plugin cannot open any "
    "file or connection.",
    source="every kubelet restart ends connections; their descriptors must be closed",
    mend="When you register again, close old listeners, channels and file watches.",
)
async def descriptors(harness: Harness) -> str:
    """The number of open file descriptors does not grow over 12 kubelet restarts."""
    found = await Growth.measure(harness)
    return found.judge("descriptors", allowed=found.rounds / 2)


@theme.check(
    "threads",
    WARN,
    suffers="With every restart, the plugin has more threads and needs more memory.",
    source="every kubelet restart ends streams; the threads that serve them must end",
    mend="When a stream ends, end the thread that serves it.",
    seen="SR-IOV (one more probe goroutine per restart)",
)
async def threads(harness: Harness) -> str:
    """The number of threads does not grow over 12 kubelet restarts."""
    found = await Growth.measure(harness)
    return found.judge("threads", allowed=found.rounds / 2)


@theme.check(
    "memory",
    WARN,
    suffers="After some time the plugin reaches its memory limit and is killed; its devices vanish "
    "until it runs again.",
    source="plugins run for months",
    mend="Release servers, channels and lists of former registrations.",
)
async def memory(harness: Harness) -> str:
    """The memory of the process does not grow over 12 kubelet restarts."""
    found = await Growth.measure(harness)
    allowed = max(0.2 * found.figures[0].memory, 512 * found.rounds)
    return found.judge("memory", allowed=allowed, unit=" KiB")
