"""One scanner in several modes."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import kubedevices as kd
from kubedevices.errors import CannotAsk
from kubedevices.plugin.runner import PluginRunner
from kubedevices.serving.modes import _pages, make_runner, run_until_signal


class Nothing(kd.PolledScanner):
    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree()


class Ends(kd.Scanner):
    async def scan(self, notifier: kd.Notifier) -> None:
        """End at once, and the plugin with it."""


def test_device_plugin_is_the_default_mode() -> None:
    """The other mode has tests of its own."""
    assert isinstance(make_runner(Nothing(), "example.com", "device-plugin", {}), PluginRunner)


def test_an_unknown_mode_names_the_known() -> None:
    """A misspelt mode serves nothing."""
    with pytest.raises(kd.KubedevicesError, match="'device-plugin', 'dra', 'split', not 'DRA'"):
        make_runner(Nothing(), "example.com", "DRA", {})


def test_pages_are_served_while_a_script_runs(caplog: pytest.LogCaptureFixture) -> None:
    """`run(listen=…)` has the pages of `--listen`; a callback of the author is called as well."""
    caplog.set_level("INFO")
    seen: dict[str, object] = {}

    class Asking(kd.Scanner):
        async def scan(self, notifier: kd.Notifier) -> None:
            """Ask for the pages of the process that runs this."""
            (url,) = re.findall(r"pages at (http://\S+):", caplog.text)
            for path in ("/healthz", "/metrics"):
                seen[path] = (await asyncio.to_thread(urlopen, url + path, timeout=30)).status

    run_until_signal(Asking(), domain="example.com", registration="none", listen="127.0.0.1:0")
    assert seen == {"/healthz": 200, "/metrics": 200}


def test_the_pages_and_the_caller_both_count_an_allocation() -> None:
    """The pages count, and the author's callback is called."""
    calls: list[tuple[str, float]] = []
    options = {"on_allocated": lambda *call: calls.append(call)}
    _pages(Nothing(), "device-plugin", "127.0.0.1:0", None, options)
    options["on_allocated"]("a.b/c", 0.5)
    assert calls == [("a.b/c", 0.5)]


def test_pages_beside_a_mode_that_may_change_show_both_apis(tmp_path: Path) -> None:
    """Also if it begins as a driver: the holders of devices, and counts of Allocate calls."""
    options = {"mode_file": tmp_path / "mode"}
    _pages(Nothing(), "dra", "127.0.0.1:0", Path("/x"), options)
    assert "on_allocated" in options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"listen": "9400", "pod_resources": Path("/x"), "mode": "dra"},
            "pod_resources has no effect",
        ),
        ({"pod_resources": Path("/x")}, "pod_resources needs listen"),
        ({"listen": "here"}, "is not an address"),
    ],
)
def test_impossible_page_options_are_refused(options: dict[str, Any], words: str) -> None:
    """Told before anything is served."""
    with pytest.raises(kd.KubedevicesError, match=words):
        run_until_signal(Nothing(), domain="example.com", **options)


def test_the_host_is_checked_after_the_options(short_dir: Path) -> None:
    """A mistake in them is told, whatever the host lacks; then nothing is served without it."""

    def check() -> None:
        raise CannotAsk("the host lacks something")

    options: dict[str, Any] = {"socket_dir": short_dir, "check_host": check}
    for mode, words in (("DRA", "'split', not 'DRA'"), ("device-plugin", "lacks something")):
        options["mode"] = mode
        with pytest.raises(kd.KubedevicesError, match=words):
            run_until_signal(Ends(), domain="example.com", **options)


SCRIPT = """
from pathlib import Path
import kubedevices as kd

class Nothing(kd.PolledScanner):
    def list_devices(self): return kd.DeviceTree()

kd.run(Nothing(), domain="example.com", pod_resources=Path("/x"))
"""


def test_a_script_ends_with_one_line_and_the_exit_code_of_its_error() -> None:
    """Not with a traceback, which looks like a fault of the script."""
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "kubedevices: pod_resources needs listen\n")


LOGGING_SCRIPT = """
import logging, sys
from pathlib import Path
import kubedevices as kd

class Broken(kd.PolledScanner):
    def list_devices(self):
        logging.getLogger("mine").info("I look")
        raise OSError("no bus")

if sys.argv[1] == "own":
    logging.basicConfig(level="INFO", format="own %(message)s")
kd.run(Broken(), domain="example.com", socket_dir=Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("configured", "line"), [("none", r"\S+Z INFO +mine: I look"), ("own", "own I look")]
)
def test_a_script_logs_unless_it_has_a_log_of_its_own(
    short_dir: Path, configured: str, line: str
) -> None:
    """Without a handler Python would show warnings only."""
    command = [sys.executable, "-c", LOGGING_SCRIPT, configured, str(short_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first, *_, last = done.stderr.splitlines()
    assert re.fullmatch(line, first)
    assert re.match(r"kubedevices: .*OSError: no bus", last)


class Failing(kd.Scanner):
    def __init__(self) -> None:
        self.has_begun, self.may_fail = asyncio.Event(), asyncio.Event()

    async def scan(self, notifier: kd.Notifier) -> None:
        self.has_begun.set()
        await self.may_fail.wait()
        raise ValueError("unplugged")


async def test_an_error_at_the_end_of_the_body_is_raised(short_dir: Path) -> None:
    """The body ends before it is cancelled for the error."""
    scanner = Failing()

    async def body() -> None:
        async with kd.serve(scanner, domain="example.com", socket_dir=short_dir):
            await scanner.has_begun.wait()
            scanner.may_fail.set()

    with pytest.raises(kd.KubedevicesError, match="unplugged"):
        await body()


async def test_a_cancellation_from_outside_counts_more_than_the_error(short_dir: Path) -> None:
    """Whoever cancelled the body, as a time limit does, waits for exactly that."""
    scanner = Failing()

    async def body() -> None:
        async with kd.serve(scanner, domain="example.com", socket_dir=short_dir):
            scanner.may_fail.set()
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()
                await asyncio.sleep(0)

    task = asyncio.create_task(body())
    await asyncio.wait({task}, timeout=20)
    assert task.cancelled()
