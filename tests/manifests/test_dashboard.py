"""The Grafana dashboard: its file is up to date, and its queries find the metrics of plugins."""

import itertools
import json
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubedevices.manifests.dashboard import PANELS, dashboard
from tests.cli.commands import run, running
from tests.docs.pages import ROOT
from tests.host_needs import needs
from tests.waiting import until_sync

DEADLINE = 60
FAILING = "{resourceName: example.com/gpu, numberDevicesOnNode: 3, faults: {failAllocateEvery: 2}}"
WITHOUT_SAMPLES = {"hook_timeouts_total", "pre_start_errors_total"}
"""Counters that appear only for plugins with such a hook; the plugin of this test has none."""

FILE = ROOT / "deploy/grafana/kubedevices.json"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def prometheus(directory: Path, page: str) -> Iterator[str]:
    """Run a Prometheus that reads the page each second; give its address."""
    port = free_port()
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: plugin, static_configs: [{{targets: ['{page}']}}]}}]\n"
    )
    command = [
        "prometheus",
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def ask(server: str, query: str) -> Any:
    """Return the answer to an instant query; None while the server starts."""
    text = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"{server}/api/v1/query?{text}", timeout=DEADLINE) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    except OSError:
        return None


def wait_for(server: str, query: str) -> list[Any]:
    """Ask until there is a result that is not empty."""
    found: list[Any] = []

    def is_answered() -> bool:
        found[:] = ask(server, query) or []
        return bool(found)

    until_sync(is_answered, DEADLINE, query)
    return found


def test_the_dashboard_file_is_up_to_date() -> None:
    """After a change, generate the file again."""
    assert json.loads(FILE.read_text()) == dashboard(), "python -m tests.manifests.test_dashboard"


def test_panels_do_not_overlap() -> None:
    """In rows of 24, each with its own ID, all with the chosen data source."""
    panels = dashboard()["panels"]
    assert [panel["id"] for panel in panels] == [*range(1, len(PANELS) + 1)]
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        fields = {
            *itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
        }
        assert not fields & covered
        assert at["x"] + at["w"] <= 24
        covered |= fields
        assert {each["datasource"]["uid"] for each in panel["targets"]} == {"${source}"}


@needs("prometheus")
@pytest.mark.slow
@pytest.mark.timeout(4 * DEADLINE)
def test_each_query_has_a_result(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Prometheus reads the page of a real plugin, after an admitted pod and a failed pod."""
    monkeypatch.setenv("NODE_NAME", "n")
    (short_dir / "s").mkdir()
    (short_dir / "simulate.yaml").write_text(FAILING)
    page, pods = f"127.0.0.1:{free_port()}", short_dir / "pods.sock"
    node = ["node", "--socket-dir", short_dir / "s", "--pod-resources", pods]
    serve = ["simulate", "--config", short_dir / "simulate.yaml", "--socket-dir", short_dir / "s"]
    serve += ["--listen", page, "--pod-resources", pods]
    at = ("--socket-dir", short_dir / "s")
    with (
        running(node, log=short_dir / "node.log"),
        running(serve, log=short_dir / "plugin.log"),
        prometheus(short_dir, page) as server,
    ):
        assert run("wait", "example.com/gpu", "--allocatable", 3, *at).returncode == 0
        # Prometheus must see a counter before the counter grows.
        wait_for(server, 'kubedevices_plugin_streams{resource="example.com/gpu"} == 1')
        wait_for(server, "count_over_time(kubedevices_plugin_allocations_total[1m]) > 1")
        assert run("allocate", "example.com/gpu=1", "--pod-name", "a", *at).returncode == 0
        assert run("allocate", "example.com/gpu=1", "--pod-name", "b", *at).returncode == 1
        wait_for(server, "kubedevices_plugin_device_allocated")
        wait_for(server, 'increase(kubedevices_plugin_allocations_total{result="failure"}[1m]) > 0')
        found = {}
        for panel in PANELS:
            for legend, query in panel.queries.items():
                here = query.replace("$node", ".*").replace("$resource", "example.com/.*")
                here = here.replace("$__rate_interval", "1m")
                if any(name in here for name in WITHOUT_SAMPLES):
                    assert ask(server, here) is not None
                else:
                    found[panel.title, re.sub(r"\{\{.*?\}\} ?", "", legend)] = wait_for(
                        server, here
                    )
        values = {key: float(result[0]["value"][1]) for key, result in found.items()}
        assert values["Healthy devices", ""] == 3
        assert values["Unhealthy devices", ""] == 0
        assert values["Devices of pods", ""] == 1
        assert values["Resources without a kubelet", ""] == 0
        assert values["Pods that did not start", "Allocate"] > 0
        (holder,) = found["Top holders", ""]
        assert (holder["metric"]["pod_name"], holder["value"][1]) == ("a", "1")


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1) + "\n")
