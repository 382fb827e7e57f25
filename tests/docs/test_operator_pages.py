"""The pages for operators: metrics, alerts and units agree with the code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubedevices.cli import load_verb, main, verb_parser
from kubedevices.dra import driver_metrics
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.workload import documents
from kubedevices.pages import metrics
from kubedevices.pages.metrics import Metric
from tests.docs.pages import ROOT, read_page
from tests.host_needs import needs

OURS = {
    metric.name: metric
    for metric in (vars(metrics) | vars(driver_metrics)).values()
    if isinstance(metric, Metric) and metric.name.startswith("kubedevices_")
}
OBSERVE = read_page(ROOT / "docs/observe.md").files
UNITS = {
    "kubedevices-expose.service": ("expose", "--config", str(ROOT / "examples/host-devices.yaml")),
    "kubedevices-simulate.service": ("simulate",),
    "kubedevices-node.service": ("node",),
}


def unit(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the unit that the command of docs/install.md prints."""
    assert main(["manifests", *UNITS[name], "--systemd"]) == 0
    return capsys.readouterr().out


def described_metrics() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return type and labels of each metric in the tables of docs/observe.md, by full name."""
    text = (ROOT / "docs/observe.md").read_text()
    found = {}
    for kind, prefix in (("plugin", "plugin"), ("node", "node"), ("DRA driver", "driver")):
        _, _, section = text.partition(f"## Metrics of a {kind}\n")
        assert section, kind
        for names, about in re.findall(
            r"^\| (`.*?`) \| ([^|]+) \|", section.split("\n## ")[0], re.MULTILINE
        ):
            labels = tuple(re.findall("`(.*?)`", about))
            for name in re.findall("`(.*?)`", names):
                full = name if name.startswith("kubedevices_") else f"kubedevices_{prefix}_{name}"
                found[full] = about.split()[0], labels
    return found


def test_the_page_has_exactly_our_metrics() -> None:
    """Each with its type and its labels."""
    assert described_metrics() == {
        name: (metric.kind, metric.labels) for name, metric in OURS.items()
    }


def test_alerts_use_existing_metrics() -> None:
    """Names and labels: an alert on another name would never fire."""
    (group,) = yaml.safe_load(OBSERVE["alerts.yaml"])["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "annotations"}
        names = re.findall(r"kubedevices_\w+", rule["expr"])
        assert names
        for name in names:
            assert name in OURS, rule["alert"]
        labels = {label for name in names for label in OURS[name].labels} | {metrics.NODE_LABEL}
        used = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
        used += re.findall(r"(\w+)=\"", rule["expr"])
        assert set(used) <= labels, rule["alert"]


CASES = yaml.safe_load((ROOT / "tests/docs/alert_cases.yaml").read_text())["tests"]


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    """Without cases, the next test would check nothing for an alert."""
    (group,) = yaml.safe_load(OBSERVE["alerts.yaml"])["groups"]
    asked = [each for case in CASES for each in case["alert_rule_test"]]
    for alert in (rule["alert"] for rule in group["rules"]):
        fires = {bool(each["exp_alerts"]) for each in asked if each["alertname"] == alert}
        assert fires == {True, False}, alert


@needs("promtool")
def test_alerts_fire_only_in_the_cases_that_expect_them(tmp_path: Path) -> None:
    """The cases without an alert include restarts and roll-outs of the plugin's pods."""
    (tmp_path / "alerts.yaml").write_text(OBSERVE["alerts.yaml"])
    cases = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": CASES}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    command = ["promtool", "test", "rules", str(tmp_path / "cases.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pod_monitor_selects_our_pods() -> None:
    """By label, namespace and port of the manifests."""
    monitor = yaml.safe_load(OBSERVE["podmonitor.yaml"])
    daemon_set = documents(Deployment("simulate", "image"))[-1]
    template = daemon_set["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= template["metadata"]["labels"].items()
    assert monitor["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = template["spec"]["containers"][0]["ports"]
    assert endpoint == {"port": port["name"], "path": "/metrics"}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_with_existing_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All units have the same protection."""
    text = unit(name, capsys)
    (command,) = re.findall("^ExecStart=/usr/local/bin/kubedevices (.*)$", text, re.MULTILINE)
    verb, *arguments = shlex.split(command)
    verb_parser(load_verb(verb)).parse_args(arguments)
    closed = {unit(each, capsys).partition("UMask=")[2] for each in UNITS}
    assert len(closed) == 1


@pytest.mark.parametrize("name", UNITS)
def test_a_plugin_starts_before_the_kubelet(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A plugin counts as started when it serves. The node replaces the kubelet instead."""
    text = unit(name, capsys)
    assert "\nType=notify\n" in text
    before = re.findall("^Before=(.*)$", text, re.MULTILINE)
    if name == "kubedevices-node.service":
        assert not before
        assert "\nConflicts=kubelet.service\n" in text
    else:
        assert "kubelet.service" in before[0].split()
        assert "\nTimeoutStartSec=30\n" in text, "a kubelet must not wait for long"


@needs("systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_a_unit(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every key and every value: systemd ignores a misspelt key, and then a protection is
    missing.
    """
    here = unit(name, capsys).replace(
        "/usr/local/bin/kubedevices", f'"{Path(sys.executable).parent}/kubedevices"'
    )
    assert verify(tmp_path / name, here) == ""
    assert "Unknown key" in verify(tmp_path / name, here.replace("UMask", "Umsk"))


def verify(file: Path, text: str) -> str:
    file.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr
