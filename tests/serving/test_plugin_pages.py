"""`--listen`: what a serving plugin tells about itself."""

import asyncio
import json
import os
import platform
import re
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import kubedevices as kd
from kubedevices import __version__
from kubedevices.cli import main
from kubedevices.pages.metrics import MIDDLEWARE_EVENTS
from kubedevices.plugin.runner import PluginRunner
from kubedevices.serving import plugin_pages
from kubedevices.serving.plugin_pages import Described, PluginPages
from tests.cli.commands import run, running
from tests.fake_kubelet import FakeKubelet
from tests.prometheus_lint import lint
from tests.turns import Turns
from tests.waiting import until_sync
from tests.widgets import Widgets

RESOURCE = "example.com/gpu"
SCANNER = """\
import kubedevices as kd

class Gpus(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"gpu": [kd.Device(name, numa_nodes=()) for name in "ab"]})
"""


def page(url: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(url: str) -> dict[tuple[str, ...], float]:
    """Return every number of /metrics by name and label values, in the order of label names.

    Each has to name the node; that label is left out.
    """
    text = page(url, "/metrics")[1]
    assert not lint(text)
    families = [*text_string_to_metric_families(text)]
    nodes = {sample.labels.pop("node") for family in families for sample in family.samples}
    assert nodes == {os.environ.get("NODE_NAME") or platform.node()}
    return {
        (
            sample.name.removeprefix("kubedevices_plugin_"),
            *(sample.labels[label] for label in sorted(sample.labels)),
        ): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def plugin(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A plugin with two devices, on a node whose name is not that of the host."""
    monkeypatch.setenv("NODE_NAME", "node-7")
    (short_dir / "gpus.py").write_text(SCANNER)
    return ["run", f"{short_dir}/gpus.py:Gpus", "--domain", "example.com"]


@contextmanager
def listening(short_dir: Path, *arguments: object) -> Iterator[str]:
    """Run a plugin with pages at a free port; yield their address."""
    log = short_dir / "plugin.log"
    (short_dir / "p").mkdir(exist_ok=True)
    with running([*arguments, "--listen", "0", "--socket-dir", short_dir / "p"], log=log):

        def url() -> str:
            found = re.search(r"pages at (http://\S+):", log.read_text())
            return found[1] if found else ""

        until_sync(url, 30, "the pages")
        yield url()


@contextmanager
def node(short_dir: Path, *arguments: object) -> Iterator[None]:
    with running(["node", "--socket-dir", short_dir / "p", *arguments], log=short_dir / "n") as it:
        assert it.stdout is not None
        it.stdout.readline()
        yield


def test_devices_left_out_of_the_list_are_on_every_page(short_dir: Path) -> None:
    """Those of before go on; readiness, metrics and state say how many are left out."""
    prefix, steps = "x" * 3000, short_dir / "steps.sock"
    plugin = ["simulate", "--resource-name", RESOURCE, "--device-id-prefix", prefix]
    plugin += ["--number-devices", "2", "--control-socket", str(steps)]
    with node(short_dir), listening(short_dir, *plugin) as url:
        until_sync(lambda: page(url, "/readyz")[0] == 200, 30)
        run("simulate", "--control-socket", steps, "--tell", "count: 2000")
        until_sync(lambda: page(url, "/readyz")[0] == 503, 30)
        assert "example.com/gpu: a list of 2000 devices has" in page(url, "/readyz")[1]
        assert numbers(url)["devices_left_out", RESOURCE] == 1998
        (resource,) = json.loads(page(url, "/state")[1])["resources"]
        assert (len(resource["devices"]), resource["left_out"]) == (2, 1998)
        assert resource["streams"] == 1
        run("simulate", "--control-socket", steps, "--tell", "count: 3")
        until_sync(lambda: page(url, "/readyz")[0] == 200, 30)
        assert numbers(url)["devices_left_out", RESOURCE] == 0


def test_a_hook_that_hangs_is_named_and_counted(short_dir: Path) -> None:
    """The node gets the reason, and the page its number."""
    hanging = SCANNER.replace("PolledScanner)", "PolledScanner, kd.Allocator)") + (
        "\n    def allocate(self, request):\n        import time; time.sleep(600)\n"
    )
    (short_dir / "gpus.py").write_text(hanging)
    plugin = ["run", f"{short_dir}/gpus.py:Gpus", "--domain", "example.com"]
    with node(short_dir), listening(short_dir, *plugin, "--allocate-timeout", "0.1") as url:
        until_sync(lambda: page(url, "/readyz")[0] == 200, 30)
        told = run("allocate", f"{RESOURCE}=1", "--socket-dir", short_dir / "p")
        assert told.returncode == 1
        assert (
            "code = DeadlineExceeded desc = example.com/gpu: Gpus.allocate did not" in told.stderr
        )
        late = {
            key: value for key, value in numbers(url).items() if key[0] == "hook_timeouts_total"
        }
    assert late == {
        ("hook_timeouts_total", "allocate", RESOURCE): 1,
        ("hook_timeouts_total", "preferred", RESOURCE): 0,
        ("hook_timeouts_total", "pre_start", RESOURCE): 0,
    }


def test_a_blocked_event_loop_answers_no_probe(short_dir: Path) -> None:
    """`/healthz` is served by the loop itself, so that a probe of it learns of a blocked one."""
    (short_dir / "gpus.py").write_text(
        SCANNER.replace("PolledScanner", "Scanner").replace("def list", "async def list")
        + "\n    async def scan(self, notifier):\n"
        "        import pathlib, time\n"
        "        pathlib.Path(__file__).with_name('blocked').touch()\n"
        "        time.sleep(600)\n"
    )
    log, directory = short_dir / "log", short_dir / "p"
    directory.mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
    plugin = ["run", f"{short_dir}/gpus.py:Gpus", "--domain", "example.com"]
    with running(
        [*plugin, "--listen", f"127.0.0.1:{address[1]}", "--socket-dir", directory], log=log
    ) as process:
        until_sync((short_dir / "blocked").exists, 30)
        with pytest.raises(OSError, match="timed out"):
            urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/healthz", timeout=1)
        process.terminate()
        assert process.wait(30) == 1
    assert "it is at gpus.py:" in log.read_text()


def test_a_plugin_is_ready_only_while_a_kubelet_watches(
    short_dir: Path, plugin: list[object]
) -> None:
    """Alive all the time; ready only with a registration and an open stream."""
    with listening(short_dir, *plugin) as url:
        assert page(url, "/healthz") == (200, "ok\n")
        until_sync(lambda: page(url, "/readyz") == (503, f"{RESOURCE}: not registered\n"))
        with node(short_dir):
            until_sync(lambda: page(url, "/readyz") == (200, "ok\n"), what="readiness")
            assert numbers(url)["streams", RESOURCE] == 1
        until_sync(lambda: page(url, "/readyz")[0] == 503, what="the loss to be noticed")
        assert page(url, "/healthz") == (200, "ok\n")
        with node(short_dir):
            until_sync(lambda: page(url, "/readyz")[0] == 200, what="readiness again")
            assert numbers(url)["kubelet_restarts_total", RESOURCE] == 1


async def test_a_plugin_is_ready_only_with_every_resource_and_its_stream(short_dir: Path) -> None:
    """A kubelet that knows a resource but does not ask for its devices gives none away."""
    (short_dir / "two.yaml").write_text(
        "resources: [{resourceName: example.com/gpu}, {resourceName: example.com/nic}]\n"
    )
    (short_dir / "p").mkdir()
    async with FakeKubelet(short_dir / "p") as kubelet:
        kubelet.open_streams = False
        with listening(short_dir, "simulate", "--config", short_dir / "two.yaml") as url:

            async def wait_for(status: int, *lines: str) -> None:
                async with asyncio.timeout(10):
                    while True:
                        answer = await asyncio.to_thread(page, url, "/readyz")
                        if answer == (status, "".join(f"{line}\n" for line in lines)):
                            return

            waiting = [f"example.com/{name}: no open device list" for name in ("gpu", "nic")]
            await wait_for(503, *waiting)
            for connected in sorted(kubelet.accepted, key=lambda each: each.resource):
                await wait_for(503, *waiting)
                del waiting[0]
                kubelet.watch(connected)
            await wait_for(200, "ok")


def test_metrics_and_state_have_the_counts(short_dir: Path, plugin: list[object]) -> None:
    """Devices by health, registrations, allocations with their time; /state the same as JSON."""
    sockets = ["--socket-dir", short_dir / "p"]
    podresources = short_dir / "pr.sock"
    with (
        node(short_dir, "--pod-resources", podresources),
        listening(short_dir, *plugin, "--pod-resources", podresources) as url,
    ):
        until_sync(lambda: page(url, "/readyz")[0] == 200, what="readiness")
        assert run("allocate", f"{RESOURCE}=1", "--pod-name", "train", *sockets).returncode == 0
        found = numbers(url)
        for key, value in {
            ("devices", "Healthy", RESOURCE): 2,
            ("devices", "Unhealthy", RESOURCE): 0,
            ("registered", RESOURCE): 1,
            ("registrations_total", RESOURCE, "success"): 1,
            ("registrations_total", RESOURCE, "failure"): 0,
            ("updates_total", RESOURCE): 1,
            ("allocations_total", RESOURCE, "success"): 1,
            ("allocations_total", RESOURCE, "failure"): 0,
            ("allocate_seconds_count", RESOURCE): 1,
            ("preferred_errors_total", RESOURCE): 0,
            ("pre_start_errors_total", RESOURCE): 0,
        }.items():
            assert found[key] == value, key
        ((entry, count),) = [each for each in found.items() if each[0][0] == "device_allocated"]
        assert count == 1
        assert entry[1] == "main", "container_name"
        assert entry[3:] == ("train", "default", RESOURCE)
        state: dict[str, Any] = json.loads(page(url, "/state")[1])
        (resource,) = state["resources"]
        assert (state["ready"], resource["streams"], resource["registered"]) == (True, 1, True)
        assert [device["health"] for device in resource["devices"]] == ["Healthy"] * 2
        assert resource["counts"]["allocations"] == 1
        assert resource["counts"]["failed_pre_starts"] == 0


def test_counters_and_histograms_exist_from_the_start(short_dir: Path) -> None:
    """Each counter and histogram is there at 0, for the first increase to be seen."""
    arguments = ["simulate", "--registration", "none", "--resource-name", RESOURCE]
    with listening(short_dir, *arguments) as url:
        until_sync(lambda: page(url, "/readyz")[0] == 200, what="readiness")
        found = numbers(url)
        assert found["kubedevices_build_info", __version__] == 1
        assert found["allocate_seconds_count", RESOURCE] == 0
        assert found["allocations_total", RESOURCE, "failure"] == 0
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_expose_has_metrics_of_scans_and_of_its_configuration(short_dir: Path) -> None:
    """A broken file counts as a failure and leaves the time of the last good reading alone."""
    config = short_dir / "config.yaml"
    good = textwrap.dedent("""\
        version: 1
        namespace: example.com
        scanInterval: 100ms
        resources: [{name: "null", match: [{path: /dev/null}]}]
        """)
    config.write_text(good)
    with listening(short_dir, "expose", "--config", config, "--registration", "none") as url:
        until_sync(lambda: page(url, "/readyz")[0] == 200, what="readiness")
        before = numbers(url)
        assert 0 < before["scan_seconds",] < 10
        assert before["scan_errors_total",] == 0
        assert before["config_last_reload_successful",] == 1
        config.write_text("version: 2\n")
        until_sync(lambda: numbers(url)["config_reloads_total", "failure"] == 1)
        name = "config_reload_success_timestamp_seconds"
        assert numbers(url)[name,] == before[name,]
        assert numbers(url)["config_last_reload_successful",] == 0
        config.write_text(good + "# again\n")
        until_sync(lambda: numbers(url)["config_reloads_total", "success"] == 1)
        assert numbers(url)[name,] > before[name,]
        assert numbers(url)["config_last_reload_successful",] == 1


def test_actions_of_middleware_are_counted() -> None:
    """By middleware, device type and event, however many stand before the scanner."""
    shared = kd.Shared(Widgets(gpu=[]))
    shared.count("refused", "gpu", 2)
    scanner = kd.Renamed(inner := kd.Renamed(shared, {"gpu": "card"}), {})
    for layer, times in ((scanner, 1), (inner, 3)):
        layer.count("renamed", "card", times)
    pages = PluginPages("127.0.0.1:0", scanner)
    samples = pages._samples(PluginRunner(scanner, domain="example.com"))
    assert [each[1:] for each in samples if each.metric is MIDDLEWARE_EVENTS] == [
        (("renamed", "card", "renamed"), 4),
        (("shared", "gpu", "refused"), 2),
    ]


def test_a_kubelet_that_does_not_answer_leaves_the_other_metrics(
    short_dir: Path, plugin: list[object]
) -> None:
    """--pod-resources is an extra; the log says once each time that it is missing, and why."""
    kubelet = ["--pod-resources", short_dir / "pods.sock"]
    log = short_dir / "plugin.log"
    with listening(short_dir, *plugin, "--registration", "none", *kubelet) as url:
        until_sync(lambda: page(url, "/readyz")[0] == 200, what="readiness")
        for count in (1, 2):
            for _ in range(2):
                assert numbers(url)["devices", "Healthy", RESOURCE] == 2
            assert log.read_text().count("which device: no kubelet answers at") == count
            with node(short_dir, *kubelet):
                numbers(url)


def test_a_kubelet_that_hangs_does_not_hold_up_the_other_metrics(
    short_dir: Path, plugin: list[object]
) -> None:
    """A scrape does not wait for longer than Prometheus does."""
    hanging = short_dir / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(hanging))
        listener.listen()
        with listening(
            short_dir, *plugin, "--registration", "none", "--pod-resources", hanging
        ) as url:
            until_sync(lambda: page(url, "/readyz")[0] == 200, what="readiness")
            assert numbers(url)["devices", "Healthy", RESOURCE] == 2
    assert "which device: no answer within 2 s" in (short_dir / "plugin.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--listen", "nowhere"], 2, "'nowhere' is not an address"),
        (["--pod-resources", "x"], 2, "--pod-resources needs --listen"),
        (["--listen", "192.0.2.1:1"], 3, "cannot listen on 192.0.2.1:1"),
    ],
)
def test_impossible_page_arguments_are_refused(
    short_dir: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    """In one line, before anything is registered."""
    command = ["simulate", "--registration", "none", "--socket-dir", str(short_dir), *arguments]
    assert main(command) == code
    assert text in capsys.readouterr().err
    assert not [*short_dir.glob("*.sock")]


def test_nothing_is_loaded_without_listen(short_dir: Path) -> None:
    """Neither the pages nor the metrics nor prometheus-client."""
    program = textwrap.dedent(f"""
        import os, signal, sys, threading, time
        from pathlib import Path
        from kubedevices.cli import main

        def stop():
            while not [*Path({str(short_dir)!r}).glob("*.sock")]:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=stop, daemon=True).start()
        main(["simulate", "--registration", "none", "--socket-dir", {str(short_dir)!r}])
        names = "prometheus_client", "kubedevices.pages.metrics", "kubedevices.pages.page_server"
        print([name for name in names if name in sys.modules])
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


async def test_a_long_state_is_written_in_turns() -> None:
    """Other tasks run after some fifty devices, so calls of the kubelet wait for no whole list."""
    count = 20_000

    def make() -> Iterator[dict[str, object]]:
        for number in range(count):
            made.append(turns.count)
            yield {"id": f"d{number}", "health": "Healthy", "numa_nodes": [0], "cdi": None}

    made: list[int] = []
    async with Turns() as turns:
        text = await plugin_pages._as_json({"resources": [{"devices": Described(count, make)}]})
    assert len(json.loads(text)["resources"][0]["devices"]) == count
    assert max(Counter(made).values()) <= 64, "devices in one turn"
