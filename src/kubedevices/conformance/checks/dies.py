"""An end of the plugin that nobody asked for, wherever in a run it is seen."""

from kubedevices.conformance.check import Broken, Phase, Severity, Theme
from kubedevices.conformance.checks.restarts import restart_once
from kubedevices.conformance.checks.restarts import theme as restarts
from kubedevices.conformance.stage import Stage

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped"),
    track="life.sockets-wiped",
    slow=True,
)


@theme.check(
    "dies",
    Severity.FAIL,
    alone=True,
    suffers="All its devices are gone until the plugin is started again, and the back-off before "
    "the next start grows with each end.",
    source="Kubernetes: a container that exits is restarted after 10 s, 20 s, … up to 5 minutes",
    mend="Begin with the last words of the process; nothing a kubelet does may end a plugin.",
    seen="Intel's framework (a second or more after a kubelet restart: send on closed channel)",
)
async def dies(stage: Stage) -> str:
    """The process does not end unasked, for example seconds after a kubelet restart."""
    await restart_once(stage, 1)
    await stage.pause(stage.timing.watch)
    process = stage.process
    if process and not process.running:
        when = f"its process ended ({process.end_text()}) some time after a kubelet restart"
        # One restart is easier to repeat than what other checks did when they saw such an end.
        stage.notes.died(process, when, process.last_words(), first=True)
        raise Broken(when, process.last_words())
    if missing := stage.missing():
        raise Broken(f"{', '.join(missing)} was gone some time after a kubelet restart")
    return f"alive {stage.timing.watch:g} s after a kubelet restart"
