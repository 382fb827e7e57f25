"""Attacks by a plugin that we serve: its answers, lists, texts, IDs and output."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from benchmarks import measure
from benchmarks.attacks import LIMIT, Attack, Outcome, command, serving, until
from kubedevices.errors import RpcError, StatusCode
from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import RESOURCE, FakePlugin, healthy

SECRET = "content of a file for root"
ESCAPE = "\x1b]0;title\x07\x1b[2J\n::error::forged"
DANGEROUS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "BASH_ENV", "GCONV_PATH")
MOST_WAIT = 15.0
"""Seconds for an answer of a node that reads a list."""

OUTPUT_LIMIT = 200.0
"""MB of memory that `check` may use beside a plugin with endless output."""


@contextlib.asynccontextmanager
async def node_with(
    directory: Path, plugin: FakePlugin
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a node with this plugin, which listens in `directory/p`."""
    words = ("node", "--socket-dir", directory / "p", "--state-dir", directory / "s")
    ready = (directory / "p" / "kubelet.sock").exists
    async with serving(*words, ready=ready) as process, plugin:
        await plugin.register()
        await until(lambda: plugin.lists_sent)
        yield process


def _always(answer: AllocateResponse, _request: object) -> AllocateResponse:
    return answer


def _has_sent(plugin: FakePlugin, lists: int) -> bool:
    return plugin.lists_sent > lists


async def dangerous_variables(directory: Path) -> Outcome:
    """The answer for a command on the host sets variables of its loader and shell."""
    outcome = Outcome()
    plugin = FakePlugin(directory / "p", devices=healthy("a"))
    where = ("--socket-dir", directory / "p", "--state-dir", directory / "s")
    async with node_with(directory, plugin):
        for name in DANGEROUS:
            answer = ContainerAllocateResponse(env={name: "/nowhere-planted"})
            plugin.allocate_answer = partial(_always, AllocateResponse([answer]))
            ended = await command("with", f"{RESOURCE}=1", *where, "--", "/usr/bin/env")
            outcome.count(harmed=f"{name}=/nowhere-planted" in ended.output.splitlines())
    return outcome


async def texts_for_a_terminal(directory: Path) -> Outcome:
    """Errors, device IDs and variables have escape sequences and line breaks."""
    outcome = Outcome()
    plugin = FakePlugin(directory / "p", devices=[ReportedDevice(f"a{ESCAPE}", "Healthy", None)])
    where = ("--socket-dir", directory / "p", "--state-dir", directory / "s")
    answer = ContainerAllocateResponse(env={"A": ESCAPE}, annotations={"b": ESCAPE})
    async with node_with(directory, plugin):
        for errors in ({"allocate": RpcError(StatusCode.UNKNOWN, ESCAPE)}, {}):
            plugin.errors = errors
            plugin.allocate_answer = lambda _: AllocateResponse([answer])
            for words in (("allocate", f"{RESOURCE}=1"), ("devices",), ("explain", RESOURCE)):
                ended = await command(*words, *where)
                lines = ended.output.splitlines()
                is_forged = any(each.startswith("::error::") for each in lines)
                outcome.count(harmed="\x1b" in ended.output or is_forged)
    return outcome


async def paths_out_of_place(directory: Path) -> Outcome:
    """A health rule of the proxy has a path with the device ID, and the ID leads elsewhere."""
    outcome = Outcome()
    (directory / "cards").mkdir()
    (directory / "secret").write_text(SECRET)
    rules = directory / "rules.yaml"
    file = directory / "cards" / "{id}"
    rules.write_text(
        f'resources: {{"*/*": {{health: {{checks: [{{file: "{file}", equals: ok}}]}}}}}}'
    )
    for device_id in ("../secret", "../../../dev/zero", "x/../../secret"):
        place = directory / device_id.replace("/", "_")
        place.mkdir()
        log = await _proxied(place, rules, device_id, outcome)
        outcome.count(harmed=SECRET[:20] in log)
    return outcome


async def _proxied(place: Path, rules: Path, device_id: str, outcome: Outcome) -> str:
    """Run a proxy between a node and a plugin with this device; return its log."""
    words = ("proxy", "--config", rules, "--plugin-dir", place / "in", "--socket-dir", place / "p")
    (place / "p").mkdir()
    plugin = FakePlugin(place / "in", devices=healthy(device_id))
    running = asyncio.create_task(
        command(*words, "--state-dir", place / "s", timeout=12), name="attacked proxy"
    )
    if await until((place / "in" / "kubelet.sock").exists, 10):
        with contextlib.suppress(RpcError):
            async with plugin:
                await plugin.register()
                await running
    ended = await running
    outcome.used(ended.peak)
    return ended.output


async def floods_of_lists(directory: Path) -> Outcome:
    """A plugin sends lists of 15 MiB to a proxy, each with other devices, and a kubelet listens."""
    outcome = Outcome()
    (directory / "p").mkdir()
    words = ("proxy", "--plugin-dir", directory / "in", "--socket-dir", directory / "p")
    ready = (directory / "in" / "kubelet.sock").exists
    async with (
        serving(*words, "--state-dir", directory / "s", ready=ready) as process,
        FakePlugin(directory / "in", devices=healthy("a")) as plugin,
    ):
        await plugin.register()
        for number in range(6):
            names = (f"{number}-{index}-{'x' * 200}" for index in range(65_000))
            before = plugin.lists_sent
            await plugin.send(healthy(*names))
            await until(partial(_has_sent, plugin, before), 5)
            await asyncio.sleep(1)
            outcome.used(measure.peak_memory(process.pid))
            outcome.count(harmed=(outcome.peak or 0) > LIMIT)
    return outcome


async def unknown_fields(directory: Path) -> Outcome:
    """A device has a million fields that nobody knows; a node reads the list."""
    outcome = Outcome()
    plugin = FakePlugin(directory / "p", devices=healthy("a"))
    async with node_with(directory, plugin) as process:
        device = b"\x78\x00" * 1_000_000
        size = b"\x0a\x80\x89\x7a"  # field 1, 2,000,000 bytes
        await plugin.send_bytes(size + device)
        where = ("--socket-dir", directory / "p", "--state-dir", directory / "s")
        began = time.monotonic()
        ended = await command("devices", *where, timeout=60)
        waited = time.monotonic() - began
        outcome.waited(waited * 1e3)
        outcome.count(harmed=ended.code != 0 or waited > MOST_WAIT)
        outcome.used(measure.peak_memory(process.pid))
    return outcome


async def endless_output(directory: Path) -> Outcome:
    """A plugin under `check` writes without an end, with and without line breaks."""
    outcome = Outcome()
    for code in ("print('x' * 99)", "sys.stdout.write('x' * 65536)"):
        program = f"import sys\nfor _ in range(10**6 if 'print' in {code!r} else 4000): {code}"
        ended = await command(
            "check",
            "--quick",
            "--",
            sys.executable,
            "-c",
            program,
            timeout=60,
            TMPDIR=str(directory),
        )
        outcome.used(ended.peak)
        outcome.count(harmed=ended.has_crashed or ended.peak > OUTPUT_LIMIT)
    return outcome


async def kills(directory: Path) -> Outcome:
    """A plugin stops its supervisor: is the process behind it still there after the next run?"""
    outcome = Outcome()
    note = directory / "pid"
    program = (
        "import os, time, signal\n"
        "if os.fork() == 0:\n os.setsid()\n"
        f" open({str(note)!r}, 'w').write(str(os.getpid()))\n time.sleep(60)\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    )
    await command(
        "check", "--quick", "--", sys.executable, "-c", program, timeout=60, TMPDIR=str(directory)
    )
    pid = int(note.read_text()) if note.exists() else 0
    await command("check", "--quick", "--", "true", timeout=60, TMPDIR=str(directory))
    is_left = pid > 0 and Path(f"/proc/{pid}").exists()
    outcome.count(harmed=is_left or not pid)
    if is_left:
        os.kill(pid, signal.SIGKILL)
    return outcome


ATTACKS = {
    "a million unknown fields": Attack("plugin", "no answer in 15 s", unknown_fields),
    "variables for a host command": Attack("plugin", "variable set", dangerous_variables),
    "texts for a terminal": Attack("plugin", "raw in the output", texts_for_a_terminal),
    "device IDs as paths": Attack("plugin", "content in the log", paths_out_of_place),
    "lists of 15 MiB": Attack("plugin", "above the limit", floods_of_lists),
    "output without an end": Attack("plugin", "crash or 200 MB", endless_output),
    "a daemon behind `check`": Attack("plugin", "daemon left for good", kills),
}
