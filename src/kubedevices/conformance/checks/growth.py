"""What a plugin holds more of after every kubelet restart."""

from kubedevices.conformance.check import Broken, NotTried, Phase, Severity, Theme
from kubedevices.conformance.checks.restarts import restart_once
from kubedevices.conformance.checks.restarts import theme as restarts
from kubedevices.conformance.process_figures import Figures, figures_of, listening_process
from kubedevices.conformance.stage import Stage

WARN = Severity.WARN

theme = Theme("life", phase=Phase.RESTARTS, needs=(*restarts.needs, "life.sockets-wiped"))


class Growth:
    """Figures of the serving process after few and after many kubelet restarts."""

    def __init__(self) -> None:
        self.before: Figures | None = None
        self.after: Figures | None = None
        self.rounds = 0

    @classmethod
    async def measure(cls, stage: Stage) -> "Growth":
        """Restart the kubelet often; skips where a process cannot be looked into."""
        known = stage.memory.get(cls)
        if isinstance(known, cls):
            return known
        found = cls()
        await restart_once(stage, 1)
        await restart_once(stage, 2)
        found.before = _figures(stage)
        for number in range(stage.timing.rounds):
            await restart_once(stage, number + 3)
        found.rounds = stage.timing.rounds
        await stage.pause(stage.timing.hold)
        found.after = _figures(stage)
        stage.memory[cls] = found
        return found

    def judge(self, what: str, *, allowed: float, unit: str = "") -> str:
        """Return how one figure grew; `Broken` above `allowed` for the whole time."""
        assert self.before
        assert self.after
        before, after = getattr(self.before, what), getattr(self.after, what)
        text = f"{before:,} → {after:,}{unit} over {self.rounds} restarts"
        if after - before > allowed:
            raise Broken(text)
        return text


def _figures(stage: Stage) -> Figures:
    pid = listening_process(stage.plugin(stage.resources[0]).socket)
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
    """Open file descriptors do not grow over 20 kubelet restarts."""
    found = await Growth.measure(stage)
    return found.judge("descriptors", allowed=found.rounds / 2)


@theme.check(
    "threads",
    WARN,
    suffers="Threads and what they hold pile up with every restart.",
    source="every kubelet restart ends streams; what served them must end",
    mend="End the thread of a stream with its stream.",
    seen="SR-IOV (a probe goroutine more per restart)",
)
async def threads(stage: Stage) -> str:
    """Threads do not grow over 20 kubelet restarts."""
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
    """Memory does not grow over 20 kubelet restarts."""
    found = await Growth.measure(stage)
    assert found.before
    allowed = max(0.2 * found.before.memory, 512 * found.rounds)
    return found.judge("memory", allowed=allowed, unit=" KiB")
