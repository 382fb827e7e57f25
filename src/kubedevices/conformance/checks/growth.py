"""What a plugin holds more of after every kubelet restart."""

import asyncio

from kubedevices.conformance.check import Broken, NotPassed, NotTried, Phase, Severity, Theme
from kubedevices.conformance.checks.restarts import restart_once
from kubedevices.conformance.checks.restarts import theme as restarts
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.process_figures import Figures, figures_of, listening_process
from kubedevices.conformance.stage import Stage
from kubedevices.words import counted

WARN = Severity.WARN

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped"),
    track="growth",
    slow=True,
)

FEWEST = 6
"""Restarts that show growth; a plugin that takes too long for so many is not judged."""

_MORE_LOOKS = 6


class Growth:
    """Figures of the serving process after few kubelet restarts, halfway, and after many."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.figures: list[Figures] = []

    @classmethod
    async def measure(cls, stage: Stage) -> "Growth":
        """Restart the kubelet often, once for all checks; what ended that ends each of them."""
        known = stage.memory.get(cls)
        if known is None:
            try:
                known = await cls._measure(stage)
            except NotPassed as finding:
                known = finding
            stage.memory[cls] = known
        if isinstance(known, NotPassed):
            raise known
        assert isinstance(known, cls)
        return known

    @classmethod
    async def _measure(cls, stage: Stage) -> "Growth":
        """Do it; skips where a plugin is slow, or its process cannot be looked into."""
        each = await _restart(stage, 1)
        if each <= stage.timing.noticed_soon:
            each = min(each, await _restart(stage, 2))  # the machine may have delayed either
        rounds = min(stage.timing.rounds, int(stage.timing.often / each) // 2 * 2)
        if rounds < FEWEST:
            raise NotTried(f"it takes {each:.1f} s to come back: too long for many restarts")
        found = cls(rounds)
        found.figures.append(_figures(stage))
        for number in range(rounds):
            await _restart(stage, number + 3)
            if number + 1 == rounds // 2:
                found.figures.append(_figures(stage))
        await stage.pause(2 * stage.timing.hold)
        found.figures.append(_figures(stage))
        for _ in range(_MORE_LOOKS):  # what is just being closed does not pile up
            if found.figures[-1].descriptors <= found.figures[0].descriptors:
                break
            await stage.pause(stage.timing.hold)
            found.figures[-1] = Figures(*map(min, found.figures[-1], _figures(stage)))
        return found

    def judge(self, what: str, *, allowed: float, unit: str = "") -> str:
        """Return how one figure grew; `Broken` if it did so all the time, and above `allowed`.

        What grows at first and then stays, a pool for instance, does not pile up.
        """
        before, halfway, after = (getattr(each, what) for each in self.figures)
        text = f"{before:,} → {halfway:,} → {after:,}{unit} over {self.rounds} restarts"
        if after - before > allowed and after - halfway > allowed / 2:
            raise Broken(text)
        return text


async def _restart(stage: Stage, number: int) -> float:
    """Restart the kubelet; return how long the plugin took to come back.

    A plugin that dies of it is the matter of another check.
    """
    began = asyncio.get_running_loop().time()
    try:
        await restart_once(stage, number)
    except Broken as error:
        if stage.process and not stage.process.running:
            how = stage.process.end_text()
            when = f"its process ended ({how}) after {counted(number, 'kubelet restart')} in a row"
            stage.notes.died(stage.process, when, stage.last_words())
            raise NotTried(when) from error
        raise
    return stage.spent(began)


def _figures(stage: Stage) -> Figures:
    pid = listening_process(Plugin.of(stage, stage.resources[0]).socket)
    found = figures_of(pid) if pid else None
    if found is None:
        raise NotTried("the plugin's process cannot be looked into")
    return found


@theme.check(
    "descriptors",
    WARN,
    suffers="After some thousand restarts, or sooner with a low limit, the plugin cannot open "
    "anything any more.",
    source="every kubelet restart ends connections; what belonged to them must go",
    mend="Close listeners, channels and watches when you register anew.",
)
async def descriptors(stage: Stage) -> str:
    """Open file descriptors do not grow over 12 kubelet restarts."""
    found = await Growth.measure(stage)
    return found.judge("descriptors", allowed=found.rounds / 2)


@theme.check(
    "threads",
    WARN,
    suffers="Threads and their memory pile up with every restart.",
    source="every kubelet restart ends streams; what served them must end",
    mend="End the thread of a stream with its stream.",
    seen="SR-IOV (a probe goroutine more per restart)",
)
async def threads(stage: Stage) -> str:
    """Threads do not grow over 12 kubelet restarts."""
    found = await Growth.measure(stage)
    return found.judge("threads", allowed=found.rounds / 2)


@theme.check(
    "memory",
    WARN,
    suffers="The plugin is killed by its memory limit some day, and devices vanish meanwhile.",
    source="plugins run for months",
    mend="Drop servers, channels and lists of former registrations.",
)
async def memory(stage: Stage) -> str:
    """Memory does not grow over 12 kubelet restarts."""
    found = await Growth.measure(stage)
    allowed = max(0.2 * found.figures[0].memory, 512 * found.rounds)
    return found.judge("memory", allowed=allowed, unit=" KiB")
