"""The Helm chart renders the objects of `kubedevices manifests`, and its files are up to date."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import CommandLine
from tests.docs.pages import ROOT
from tests.host_needs import needs

pytestmark = needs("helm")

CHART = ROOT / "deploy/helm/kubedevices"
HELM = Path(sys.executable).parent / "helm"
HOSTILE = 'a: "{{ .Values }}" #\n\t\\ é😀 \'"\n  %s $(x)\n'
EXPOSE = """\
version: 1
namespace: lab.example.com
resources:
- name: widget
  match: [{path: /run/widgets/w*}]
  inject: both
"""
AFFINITY = """\
affinity:
  podAntiAffinity: {}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: zone, operator: In, values: [a]}]
      - matchFields: [{key: metadata.name, operator: In, values: [n]}]
      - {}
"""
CASES: dict[str, tuple[str, str]] = {
    "simulator": ("simulate", ""),
    "many devices": ("simulate --preset eight-gpus", "podAnnotations: {a: b}"),
    "simulator with a control socket": (
        "simulate --preset flapping-gpu",
        "controlSocketDir: /run/simulator\nlogFormat: json\nextraArguments: [--log-level=debug]",
    ),
    "example": ("expose", ""),
    "own file": ("expose --config {expose} --cdi --dev-dir /dev/dri --dev-dir /dev/bus", ""),
    "profiles": ("expose --profile fuse --profile kvm --pod-resources --namespace kube-system", ""),
    "other directories": ("expose --kubelet-dir /k --plugin-dir /p --pod-resources", ""),
    "proxy": ("proxy --inside-dir /run/inside", "networkPolicy: {enabled: true}"),
    "own plugin": (
        (
            "run widgets:Widgets --domain lab.example.com --image lab.example.com:5000/w@sha256:1 "
            "--mount /run/w:/w:rw --mount /opt/w --arg a={{x}}"
        ),
        "imagePullPolicy: Always\nimagePullSecrets: [one, two]",
    ),
    "DRA": ("simulate --mode dra", "priorityClassName: ''\nannotations: {a.example/b: 'yes'}"),
    "DRA on OpenShift": ("simulate --mode dra", "openshift: true"),
    "DRA, types with odd names": (
        "run w:W --domain lab.example.com --mode dra --device-type NIC_1 --device-type gpu",
        "terminationGracePeriodSeconds: 60",
    ),
    "two device APIs": (
        "expose --config {expose} --mode split --dra-devices widget/1* --kubelet-dir /k",
        "updateStrategy: {type: OnDelete}",
    ),
    "mode of the ConfigMap": ("expose --mode-file configmap", "versionedConfig: true"),
    "mode of a file": ("simulate --mode-file /etc/kubedevices/mode", ""),
    "mode of a label": (
        "expose --mode-label example.com/mode --mode dra --extended-resource-name none",
        "",
    ),
    "proxy as a driver": (
        (
            "proxy --mode dra --domain lab.example.com --device-type gpu "
            "--extended-resource-name dra.{{domain}}/{{type}}"
        ),
        "",
    ),
    "nodes": (
        "expose --node-label a=b --node-label c=e --toleration x=y:NoExecute --toleration z",
        AFFINITY + "arch: [amd64, arm64]\nnodeSelector: {c: d}\ntolerateControlPlane: false\n"
        "tolerations: [{key: k, operator: Exists, tolerationSeconds: 1000000}]",
    ),
    "no node": ("expose", AFFINITY[: AFFINITY.index("      - ")] + "      - {}\narch: [amd64]"),
    "pods": (
        "expose",
        (
            "labels: {team: lab}\npodLabels: {p: q}\nresources: {limits: {memory: 1Gi, cpu: 2}}\n"
            "readinessProbe: {periodSeconds: 2, successThreshold: 2}\n"
            "livenessProbe: {initialDelaySeconds: 9}\n"
            "resourceQuota: false"
        ),
    ),
    "monitoring": (
        "expose",
        (
            "metrics: {enabled: true, annotations: false, podMonitor: true, prometheusRule: true, "
            "dashboard: true, labels: {release: prometheus, grafana_dashboard: 'yes'}}\n"
            "networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {a: b}}}]}"
        ),
    ),
    "rights for health checks": (
        "proxy --mount /opt/test --mount /run/gpus:/gpus",
        "privileged: true\ncapabilities: [SYS_ADMIN, SYS_RAWIO]\nopenshift: true",
    ),
    "a capability": ("expose", "capabilities: [SYS_RAWIO]\nopenshift: true"),
    "OpenShift": ("expose", "openshift: true\nversionedConfig: true"),
    "configurations of nodes": (
        "expose --config {expose} --name lab",
        (
            "nodeConfigLabel: lab.example.com/config\nversionedConfig: true\nopenshift: true\n"
            "metrics: {podMonitor: true, prometheusRule: true, dashboard: true}\n"
            "nodeConfigs: [{name: big, configFile: other.yaml}, {name: small, configFile: w.yaml}]"
        ),
    ),
}


def helm(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [HELM, *map(str, arguments)],
        env=os.environ | {"GOGC": "off"},
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(values: Path, namespace: str = "kubedevices") -> list[dict[str, Any]]:
    done = helm("template", "lab", CHART, "--namespace", namespace, "--values", values)
    assert done.returncode == 0, done.stderr
    return [*yaml.safe_load_all(done.stdout.replace("managed-by: Helm", "managed-by: kubedevices"))]


def by_name(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return objects by kind and name. The order of environment variables is ignored."""
    found = {}
    for each in documents:
        if each["kind"] == "DaemonSet":
            for container in each["spec"]["template"]["spec"]["containers"]:
                container["env"].sort(key=lambda variable: str(variable["name"]))
        found[f"{each['kind']}/{each['metadata']['name']}"] = each
    return found


@pytest.fixture
def directory(short_dir: Path) -> Path:
    """Return a directory with configuration files."""
    (short_dir / "w.yaml").write_text(EXPOSE)
    (short_dir / "other.yaml").write_text(EXPOSE.replace("widgets/w", "others/o"))
    return short_dir


@pytest.mark.parametrize("case", CASES)
def test_the_chart_renders_the_objects_of_manifests(
    case: str, directory: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects are equal, field by field. Only the namespace is created by Helm."""
    monkeypatch.setenv("RESOURCE_NAME", "lab.example.com/device")
    words, admin = CASES[case]
    (directory / "admin.yaml").write_text(admin + "\ncreateNamespace: false\n")
    command = ["manifests", *words.format(expose=directory / "w.yaml", x="{{x}}").split()]
    command += ["--values", str(directory / "admin.yaml")]
    expected = [*yaml.safe_load_all(cli(*command).out)]
    shown = cli(*command, "--as-values")
    values = directory / "values.yaml"
    values.write_text(shown.out)
    namespace = "kube-system" if "kube-system" in words else "kubedevices"
    assert by_name(rendered(values, namespace)) == by_name(expected)


def test_special_characters_are_rendered_unchanged(directory: Path) -> None:
    """Quotes, newlines and Helm's braces in a configuration, a variable or an argument."""
    given = {
        "plugin": "simulate",
        "config": HOSTILE,
        "env": {"A": HOSTILE},
        "extraArguments": [HOSTILE],
        "podAnnotations": {"a": HOSTILE},
        "nodeConfigs": [{"name": "n", "config": HOSTILE}],
    }
    (directory / "values.yaml").write_text(json.dumps(given, ensure_ascii=False))
    found = by_name(rendered(directory / "values.yaml"))
    assert found["ConfigMap/kubedevices-lab"]["data"] == {"config.yaml": HOSTILE}
    assert found["ConfigMap/kubedevices-lab-n"]["data"] == {"config.yaml": HOSTILE}
    template = found["DaemonSet/kubedevices-lab"]["spec"]["template"]
    assert template["metadata"]["annotations"]["a"] == HOSTILE
    (container,) = template["spec"]["containers"]
    assert container["env"][0] == {"name": "A", "value": HOSTILE}
    assert container["args"][-1] == HOSTILE


MISTAKES = {
    "resorces: {}": "resorces",
    "plugin: expoes": "plugin",
    "metrics: {port: 1}": "port",
    "nodeConfigs: [{name: a}]": "config is required",
    "plugin: proxy\nupdateStrategy: {rollingUpdate: {maxSurge: 1}}": "maxSurge must be 0",
    "controlSocketDir: /run/x": "simulate only",
    "plugin: run": "needs arguments",
    "mode: dra": "needs domain",
    "modeFile: configmap\nmodeLabel: a\ndomain: a.b": "modeFile and modeLabel exclude each other",
    "plugin: proxy\nmode: split\ndraDevices: [a]\ndomain: a.b": "a proxy has the modes",
    "hostDirs: [/run/devices, /etc/ssh/keys]": '"/etc/ssh/keys" has secrets or sockets of the host',
    "mounts: [{path: /etc, inside: /e}]": '"/etc" has secrets',
    "mounts: [{path: /dev}]": "hide the container's own /dev",
    "mounts: [{path: /run/w/../containerd}]": "not an absolute path of a directory",
    "nodeConfigs: [{name: a, config: x, hostDirs: [/var/run/docker]}]": "has secrets",
    "modeFile: /etc/mode\ndomain: a.example": '"/etc" has secrets',
    "metrics: {dashboard: true}\nnodeConfigs: [{name: dashboard, config: x}]": "the dashboard of",
    "livenessProbe: {successThreshold: 2}": "successThreshold must be 1",
    "devDirs: [/opt]": "not a directory below /dev",
    "labels: {app.kubernetes.io/name: x}": "kubedevices sets the label",
    "metrics: {labels: {kubedevices-namespace: x}}": "kubedevices sets the label",
    f"nameOverride: {'x' * 58}": "at most 57",
    "mode: dra\ndomain: a.example\nnodeConfigs: [{name: a, config: x}]": "not with DRA",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_wrong_values_are_refused(text: str, directory: Path) -> None:
    (directory / "values.yaml").write_text(text)
    done = helm("template", "lab", CHART, "--values", directory / "values.yaml")
    assert done.returncode == 1
    assert MISTAKES[text] in done.stderr


def test_helm_lint_finds_no_fault() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_the_generated_files_are_up_to_date() -> None:
    """`make chart` writes them."""
    file = ROOT / "deploy/helm/generate.py"
    spec = importlib.util.spec_from_file_location("generate_chart", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.files().items():
        assert (CHART / path).read_text() == text, f"run `make chart`: {path} is out of date"


def test_the_alerts_are_those_of_the_page() -> None:
    page = (ROOT / "docs/observe.md").read_text()
    (block,) = re.findall(r"```yaml\n(groups:\n.*?)```", page, flags=re.DOTALL)
    assert (CHART / "files/alerts.yaml").read_text() == block
