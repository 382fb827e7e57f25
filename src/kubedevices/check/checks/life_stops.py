"""Checks that the plugin ends on SIGTERM, which a kubelet sends to a container that it stops."""

import asyncio
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from kubedevices.check.check import WARN, Broken, NotTried, Phase, Theme
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.check.process_figures import is_there, listening_process
from kubedevices.check.processes import Process
from kubedevices.errors import RpcError, StatusCode, WireError
from kubedevices.errors.words import counted

theme = Theme("life", phase=Phase.PROCESS, needs=("registration.options",), track="stopping")

CALLERS = 4
"""`stop_in_allocate` calls Allocate so many times at once."""

ENDED_BY_SIGTERM = (-int(signal.SIGTERM), 128 + int(signal.SIGTERM))


class Stop:
    """The result of one SIGTERM to an idle plugin; `left` are the names of sockets left behind."""

    def __init__(self, process: Process, seconds: float, left: list[str]) -> None:
        self.process, self.seconds, self.left = process, seconds, left

    @classmethod
    async def once(cls, harness: Harness) -> "Stop":
        """Start the plugin and stop it, once for all checks; return the result."""
        known = harness.memory.get(cls)
        if isinstance(known, cls):
            return known
        process = await harness.start_fresh()
        await harness.until_registered(harness.timing.start)
        await harness.wait_after_register()
        seconds = await _stop(harness, process, _servers(harness))
        found = cls(process, seconds, [path.name for path in harness.left_sockets()])
        harness.memory[cls] = found
        return found

    def must_have_ended(self) -> None:
        """Raise `NotTried` if the plugin did not end: `life.stop-time` reports this."""
        if self.process.running:
            raise NotTried("it did not end")


def _servers(harness: Harness) -> set[int]:
    """Return the IDs of the processes that serve.

    If the command is a container engine, the plugin is another process than the command.
    """
    return {listening_process(Plugin.of(harness, name).socket) for name in harness.resources} - {0}


async def _stop(harness: Harness, process: Process, servers: Collection[int] = ()) -> float:
    """Send SIGTERM and wait for the end; return the own seconds it took.

    The process is still `running` afterwards if it did not end in time. If the command is a
    container engine and the plugin in the container has ended, the engine gets more time: the
    plugin must not fail because the engine is slow.
    """
    began = asyncio.get_running_loop().time()
    await process.send_signal(signal.SIGTERM)
    is_late = not await harness.until_ended(process, harness.timing.stop)
    if is_late and servers and not any(map(is_there, servers)):
        await harness.until_ended(process, harness.timing.start)
    return harness.spent(began)


@theme.check(
    "stop-time",
    WARN,
    suffers="Node shutdowns and rolling updates wait for the plugin, then kill it while it works.",
    source="Kubernetes: SIGTERM, then SIGKILL after the grace period",
    mend="Handle SIGTERM: stop the server and exit.",
)
async def stop_time(harness: Harness) -> str:
    """The plugin ends within 8 s after SIGTERM."""
    stop = await Stop.once(harness)
    if stop.process.running:
        raise Broken(f"still running {stop.seconds:.1f} s after SIGTERM")
    return f"{stop.seconds:.2f} s"


@theme.check(
    "stop-code",
    WARN,
    needs=("life.stop-time",),
    suffers="Monitoring and restart statistics count every regular stop as a crash.",
    source="Kubernetes: the status of a container has its exit code",
    mend="Handle SIGTERM and exit 0.",
    seen="GCE, Intel (no handler: killed by SIGTERM)",
)
async def stop_code(harness: Harness) -> str:
    """The exit code after SIGTERM is 0."""
    stop = await Stop.once(harness)
    stop.must_have_ended()
    if stop.process.code != 0:
        raise Broken(stop.process.end_text(), stop.process.last_words())
    return "exit code 0"


@theme.check(
    "stop-socket",
    WARN,
    needs=("life.stop-time",),
    suffers="Other programs believe that the plugin runs, and its next start may fail.",
    source="a socket file stays when its process ends",
    mend="Before you exit, remove your socket if it is still your own.",
    seen="ROCm, GCE, Intel (leave the socket)",
)
async def stop_socket(harness: Harness) -> str:
    """The plugin removes its socket after SIGTERM."""
    stop = await Stop.once(harness)
    stop.must_have_ended()
    if stop.left:
        raise Broken(f"{', '.join(stop.left)} left behind")
    return "removed"


@theme.check(
    "stop-in-allocate",
    WARN,
    alone=True,
    needs=("allocate.answers",),
    suffers="A pod that is admitted during an update gets an incomplete answer, or the plugin "
    "hangs.",
    source="updates do not wait for admissions",
    mend="Finish the calls that run, or end them with UNAVAILABLE; then exit.",
)
async def stop_in_allocate(harness: Harness) -> str:
    """The plugin ends cleanly on SIGTERM while Allocate calls arrive."""
    try:
        return await _stop_while_calling(harness)
    except Broken:
        await _must_be_the_stop(harness)
        raise


async def _stop_while_calling(harness: Harness) -> str:
    process = await harness.start_fresh()
    async with _calls_at_once(harness) as calling:
        await harness.pause(harness.timing.hold / 5)
        seconds = await _stop(harness, process, _servers(harness))
        if process.running:
            raise Broken(f"still running {seconds:.1f} s after SIGTERM")
        if process.code != 0 and process.code not in ENDED_BY_SIGTERM:
            raise Broken(process.end_text(), process.last_words())
        if not await harness.until_true(
            lambda: all(task.done() for task in calling), harness.timing.stop
        ):
            raise Broken(
                f"calls are still answered {harness.timing.stop:g} s after the command ended: "
                "another process of the plugin still serves"
            )
        answered = sum(await asyncio.gather(*calling))
    return f"{seconds:.2f} s, {counted(answered, 'call')} answered before the end"


async def _must_be_the_stop(harness: Harness) -> None:
    """Raise `NotTried` if the same calls without SIGTERM also fail: then the stop is no cause."""
    process = await harness.start_fresh()
    async with _calls_at_once(harness) as calling:
        # Much longer than the calls ran before the stop: a race may need many calls.
        await harness.until_true(
            lambda: not process.running or any(task.done() for task in calling),
            harness.timing.overlap,
        )
        how = f"{len(calling)} Allocate calls at the same time, without a stop"
        if any(task.done() for task in calling):
            await harness.pause(harness.timing.hold)  # a crash is seen after its last call
        if ended := harness.how_ended():
            harness.record_end(f"{ended} during {how}")
            raise NotTried(f"{ended} during {how}")
        for task in calling:
            if task.done() and (error := task.exception()):
                raise NotTried(f"also fails in {how}: {error}")


@asynccontextmanager
async def _calls_at_once(harness: Harness) -> AsyncIterator[list[asyncio.Task[int]]]:
    """Wait for the registration, then let several callers call Allocate again and again."""
    await harness.until_registered(harness.timing.start)
    await harness.wait_after_register()
    plugin = Plugin.of(harness, harness.resources[0])
    ids = (await plugin.stable_ids())[:1]
    calling = [
        asyncio.create_task(_call_until_refused(plugin, ids), name="Allocate again and again")
        for _ in range(CALLERS)
    ]
    for task in calling:
        task.add_done_callback(lambda _: harness.probe.change_signal.notify())
    try:
        yield calling
    finally:
        for task in calling:
            task.cancel()
        await asyncio.gather(*calling, return_exceptions=True)


_ALLOWED = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.ABORTED)


async def _call_until_refused(plugin: Plugin, ids: list[str]) -> int:
    answered = 0
    while True:
        try:
            response = await plugin.allocate(ids)
        except RpcError as error:
            if error.code in _ALLOWED or not plugin.harness.shared.changes.untouched(ids):
                return answered
            raise Broken(f"a call during the stop was answered {error}") from error
        except WireError:
            return answered
        if not response.containers:
            raise Broken("a call during the stop was answered OK without a container response")
        answered += 1


@theme.check(
    "stop-while-waiting",
    WARN,
    alone=True,
    suffers="While the kubelet does not run, only SIGKILL stops the plugin.",
    source="Kubernetes: SIGTERM, then SIGKILL after the grace period",
    mend="Handle SIGTERM from the start of the process, also while you wait for kubelet.sock.",
)
async def stop_while_waiting(harness: Harness) -> str:
    """The plugin ends within 8 s after SIGTERM, also while it waits for a kubelet."""
    process = await harness.start_fresh(kubelet=False)
    if await harness.until_ended(process, harness.timing.settle + 2 * harness.shared.usual_start):
        return f"it does not wait: {process.end_text()}"
    seconds = await _stop(harness, process)
    if process.running:
        raise Broken(f"still running {seconds:.1f} s after SIGTERM")
    return f"{seconds:.2f} s, {process.end_text()}"
