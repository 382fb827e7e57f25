"""One scanner in several modes."""

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import kubedevices as kd
from kubedevices.plugin.runner import PluginRunner
from kubedevices.serving.modes import _pages, make_runner, run_until_signal


class Nothing(kd.PolledScanner):
    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree()


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
