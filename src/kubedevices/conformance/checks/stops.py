"""Ending a plugin the way a kubelet ends a container: SIGTERM, and SIGKILL for the patient."""

import asyncio
import signal
from collections.abc import Collection

from kubedevices.conformance.check import Broken, NotTried, Phase, Severity, Theme
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.process_figures import is_there, listening_process
from kubedevices.conformance.processes import Process
from kubedevices.conformance.stage import Stage
from kubedevices.errors import RpcError, StatusCode, WireError

FAIL, WARN = Severity.FAIL, Severity.WARN

theme = Theme(
    "life",
    phase=Phase.PROCESS,
    needs=("registration.options",),
    track="stopping",
)

ENDED_BY_SIGTERM = (-int(signal.SIGTERM), 128 + int(signal.SIGTERM))


class Stop:
    """One SIGTERM to an idle plugin; several checks look at how it went."""

    def __init__(self, process: Process, seconds: float, left: list[str]) -> None:
        self.process, self.seconds, self.left = process, seconds, left

    @classmethod
    async def once(cls, stage: Stage) -> "Stop":
        """Start the plugin, stop it, look what is left."""
        known = stage.memory.get(cls)
        if isinstance(known, cls):
            return known
        process = await stage.start_fresh()
        await stage.until_registered(stage.timing.start)
        await stage.wait_after_register()
        seconds = await _stop(stage, process, _servers(stage))
        paths = [*stage.probe.sockets(), *stage.place.registry.iterdir()]
        found = cls(process, seconds, [path.name for path in paths])
        stage.memory[cls] = found
        return found

    def must_have_ended(self) -> None:
        """Leave what a plugin that does not stop would do to the check about that."""
        if self.process.running:
            raise NotTried("it did not end")


def _servers(stage: Stage) -> set[int]:
    """Return the processes that serve: behind an engine's command another one than the command."""
    return {listening_process(Plugin.of(stage, name).socket) for name in stage.resources} - {0}


async def _stop(stage: Stage, process: Process, servers: Collection[int] = ()) -> float:
    """Stop a plugin; return its seconds. It is `running` afterwards if it took too many.

    The command of an engine tidies up when the plugin in its container is gone: not its fault.
    """
    began = asyncio.get_running_loop().time()
    await process.send_signal(signal.SIGTERM)
    is_late = not await stage.until_ended(process, stage.timing.stop)
    if is_late and servers and not any(map(is_there, servers)):
        await stage.until_ended(process, stage.timing.start)
    return stage.spent(began)


@theme.check(
    "stop-time",
    WARN,
    suffers="Node shutdowns and rolling updates wait, then kill the plugin during its work.",
    source="Kubernetes: SIGTERM, then SIGKILL after the grace period",
    mend="Handle SIGTERM: stop the server, end.",
)
async def stop_time(stage: Stage) -> str:
    """The plugin ends within 8 s after SIGTERM."""
    stop = await Stop.once(stage)
    if stop.process.running:
        raise Broken(f"still running {stage.timing.stop:g} s after SIGTERM")
    return f"{stop.seconds:.2f} s"


@theme.check(
    "stop-code",
    WARN,
    needs=("life.stop-time",),
    suffers="Every regular stop counts as a crash in monitoring and restart statistics.",
    source="Kubernetes: the exit code is the container's reason",
    mend="Handle SIGTERM and exit 0.",
    seen="GCE, Intel (no handler: killed by SIGTERM)",
)
async def stop_code(stage: Stage) -> str:
    """The exit code after SIGTERM is 0."""
    stop = await Stop.once(stage)
    stop.must_have_ended()
    if stop.process.code != 0:
        raise Broken(stop.process.end_text(), stop.process.last_words())
    return "exit code 0"


@theme.check(
    "stop-socket",
    WARN,
    needs=("life.stop-time",),
    suffers="Other programs take the plugin for running; its next start may fail.",
    source="a socket file outlives its process",
    mend="Unlink your socket when you end, if it is still yours.",
    seen="ROCm, GCE, Intel (left behind)",
)
async def stop_socket(stage: Stage) -> str:
    """The socket is gone after SIGTERM."""
    stop = await Stop.once(stage)
    stop.must_have_ended()
    if stop.left:
        raise Broken(f"{', '.join(stop.left)} left behind")
    return "removed"


@theme.check(
    "stop-in-allocate",
    WARN,
    alone=True,
    needs=("allocate.answers",),
    suffers="A pod that is admitted during an update gets half an answer, or the plugin hangs.",
    source="updates do not wait for admissions",
    mend="Let calls in flight end, or end them with UNAVAILABLE; then exit.",
)
async def stop_in_allocate(stage: Stage) -> str:
    """The plugin ends cleanly on SIGTERM while Allocate calls arrive."""
    process = await stage.start_fresh()
    await stage.until_registered(stage.timing.start)
    await stage.wait_after_register()
    plugin = Plugin.of(stage, stage.resources[0])
    ids = (await plugin.sure_ids())[:1]
    calling = [asyncio.create_task(_call_until_refused(plugin, ids)) for _ in range(4)]
    for task in calling:
        task.add_done_callback(lambda _: stage.probe.change_signal.notify())
    try:
        await stage.pause(stage.timing.hold / 5)
        seconds = await _stop(stage, process, _servers(stage))
        if process.running:
            raise Broken(f"still running {stage.timing.stop:g} s after SIGTERM")
        if process.code != 0 and process.code not in ENDED_BY_SIGTERM:
            raise Broken(process.end_text(), process.last_words())
        if not await stage.until(lambda: all(task.done() for task in calling), stage.timing.stop):
            raise Broken(
                f"calls are still answered {stage.timing.stop:g} s after the command ended: "
                "another process of the plugin serves on"
            )
        answered = sum(await asyncio.gather(*calling))
    finally:
        for task in calling:
            task.cancel()
        await asyncio.gather(*calling, return_exceptions=True)
    return f"{seconds:.2f} s, {answered} calls answered before"


_FAIR = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.ABORTED)


async def _call_until_refused(plugin: Plugin, ids: list[str]) -> int:
    answered = 0
    while True:
        try:
            response = await plugin.allocate(ids)
        except RpcError as error:
            if error.code in _FAIR or not plugin.stage.notes.changes.untouched(ids):
                return answered
            raise Broken(f"a call during the end was answered {error}") from error
        except WireError:
            return answered
        if not response.containers:
            raise Broken("a call during the end was answered OK with nothing")
        answered += 1


@theme.check(
    "stop-while-waiting",
    WARN,
    alone=True,
    suffers="A plugin on a node whose kubelet is down cannot be stopped but by SIGKILL.",
    source="Kubernetes: SIGTERM, then SIGKILL after the grace period",
    mend="Handle SIGTERM from the first moment, also while waiting for kubelet.sock.",
)
async def stop_while_waiting(stage: Stage) -> str:
    """The plugin ends within 8 s after SIGTERM, also while it waits for a kubelet."""
    process = await stage.start_fresh(kubelet=False)
    if await stage.until_ended(process, stage.timing.settle + 2 * stage.notes.usual_start):
        return f"it does not wait: {process.end_text()}"
    seconds = await _stop(stage, process)
    if process.running:
        raise Broken(f"still running {stage.timing.stop:g} s after SIGTERM")
    return f"{seconds:.2f} s, {process.end_text()}"
