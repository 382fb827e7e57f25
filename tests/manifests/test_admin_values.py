"""`manifests --values`: settings of an administrator for the objects of a plugin."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from kubedevices.cli import main
from kubedevices.config.json_schema import make_schema
from kubedevices.manifests.chart import ChartValues
from tests.command_line import CommandLine
from tests.docs.pages import ROOT

Objects = dict[str, Any]
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CONFIG = "version: 1\nnamespace: a.example\nresources: [{name: w, match: [{path: /run/%s/w}]}]\n"


@pytest.fixture
def printed(short_dir: Path, cli: CommandLine) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that prints the manifests for a text of values."""

    def run(text: str, *arguments: str) -> list[dict[str, Any]]:
        (short_dir / "values.yaml").write_text(text)
        words = (*(arguments or ("expose",)), "--values", short_dir / "values.yaml")
        return [*yaml.safe_load_all(cli("manifests", *words).out)]

    return run


def by_kind(documents: list[dict[str, Any]]) -> Objects:
    found = {each["kind"]: each for each in documents}
    found["pod"] = found["DaemonSet"]["spec"]["template"]
    found["spec"] = found["pod"]["spec"]
    (found["container"],) = found["spec"]["containers"]
    return found


def terms(found: Objects) -> Any:
    return found["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


EFFECTS: dict[str, Callable[[Objects], bool]] = {
    "labels: {team: lab}": lambda o: (
        o["ServiceAccount"]["metadata"]["labels"]["team"] == "lab"
        and "team" not in o["pod"]["metadata"]["labels"]
    ),
    "annotations: {a: b}": lambda o: o["ConfigMap"]["metadata"]["annotations"] == {"a": "b"},
    "podLabels: {a: b}": lambda o: o["pod"]["metadata"]["labels"]["a"] == "b",
    "podAnnotations: {a: b}": lambda o: o["pod"]["metadata"]["annotations"] == {"a": "b"},
    "imagePullPolicy: Never": lambda o: o["container"]["imagePullPolicy"] == "Never",
    "imagePullSecrets: [s]": lambda o: o["spec"]["imagePullSecrets"] == [{"name": "s"}],
    "nodeSelector: {a: b}": lambda o: (
        o["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux", "a": "b"}
    ),
    "arch: [arm64]": lambda o: (
        terms(o)
        == [
            {
                "matchExpressions": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
                ]
            }
        ]
    ),
    "tolerations: [{operator: Exists}]": lambda o: (
        o["spec"]["tolerations"][0]["key"] == CONTROL_PLANE
        and o["spec"]["tolerations"][1:] == [{"operator": "Exists"}]
    ),
    "tolerateControlPlane: false": lambda o: "tolerations" not in o["spec"],
    "priorityClassName: high": lambda o: (
        o["spec"]["priorityClassName"] == "high"
        and o["ResourceQuota"]["spec"]["scopeSelector"]["matchExpressions"][0]["values"] == ["high"]
    ),
    "priorityClassName: ''": lambda o: (
        "priorityClassName" not in o["spec"] and "ResourceQuota" not in o
    ),
    "resourceQuota: false": lambda o: "ResourceQuota" not in o,
    "updateStrategy: {type: OnDelete}": lambda o: (
        o["DaemonSet"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    ),
    "terminationGracePeriodSeconds: 60": lambda o: o["spec"]["terminationGracePeriodSeconds"] == 60,
    "resources: {limits: {memory: 1Gi}}": lambda o: (
        o["container"]["resources"] == {"limits": {"memory": "1Gi"}}
    ),
    "readinessProbe: {periodSeconds: 7}": lambda o: (
        o["container"]["readinessProbe"]["periodSeconds"] == 7
        and o["container"]["readinessProbe"]["timeoutSeconds"] == 3
    ),
    "readinessProbe: {successThreshold: 2}": lambda o: (
        o["container"]["readinessProbe"]["successThreshold"] == 2
    ),
    "livenessProbe: {initialDelaySeconds: 7}": lambda o: (
        o["container"]["livenessProbe"]["initialDelaySeconds"] == 7
    ),
    "extraArguments: [--log-level, debug]": lambda o: (
        o["container"]["args"][-2:] == ["--log-level", "debug"]
    ),
    "logFormat: json": lambda o: o["container"]["args"][-2:] == ["--log-format", "json"],
    "createNamespace: false": lambda o: "Namespace" not in o,
    "podSecurityLabels: false": lambda o: (
        [*o["Namespace"]["metadata"]["labels"]] == ["app.kubernetes.io/name"]
    ),
    "metrics: {enabled: true}": lambda o: (
        o["pod"]["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    ),
    "metrics: {enabled: true, annotations: false}": lambda o: (
        "annotations" not in o["pod"]["metadata"] and "--pod-resources" in o["container"]["args"]
    ),
    "metrics: {podMonitor: true, labels: {a: b}}": lambda o: (
        o["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["honorLabels"] is True
        and o["PodMonitor"]["metadata"]["labels"]["a"] == "b"
    ),
    "metrics: {prometheusRule: true}": lambda o: (
        o["PrometheusRule"]["spec"]["groups"][0]["rules"][0]["alert"] == "PluginDown"
    ),
    "metrics: {dashboard: true}": lambda o: (
        o["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    ),
    "networkPolicy: {enabled: true}": lambda o: o["NetworkPolicy"]["spec"]["ingress"] == [],
    "networkPolicy: {enabled: true, from: [{podSelector: {}}]}": lambda o: (
        o["NetworkPolicy"]["spec"]["ingress"]
        == [{"from": [{"podSelector": {}}], "ports": [{"port": "pages"}]}]
    ),
    "openshift: true": lambda o: (
        o["SecurityContextConstraints"]["users"]
        == [f"system:serviceaccount:kubedevices:{o['spec']['serviceAccountName']}"]
        and "seLinuxOptions" in o["spec"]["securityContext"]
    ),
}


@pytest.mark.parametrize("text", EFFECTS)
def test_each_key_changes_its_field(
    text: str, printed: Callable[..., list[dict[str, Any]]]
) -> None:
    assert EFFECTS[text](by_kind(printed(text)))
    assert not _holds_by_default(text, printed)


def _holds_by_default(text: str, printed: Callable[..., list[dict[str, Any]]]) -> bool:
    try:
        return EFFECTS[text](by_kind(printed("{}")))
    except KeyError:
        return False


def test_the_control_socket_of_a_simulator_is_in_a_host_directory(
    printed: Callable[..., list[dict[str, Any]]],
) -> None:
    found = by_kind(printed("controlSocketDir: /run/sim", "simulate"))
    assert found["container"]["args"][-2:] == ["--control-socket", "/run/sim/control.sock"]
    assert {"name": "control", "mountPath": "/run/sim"} in found["container"]["volumeMounts"]


def test_an_architecture_is_a_condition_in_each_alternative(
    printed: Callable[..., list[dict[str, Any]]],
) -> None:
    """A node has to match only one of the terms, so each term needs the condition."""
    fields = "[{key: metadata.name, operator: In, values: [n]}]"
    some = f"{{matchFields: {fields}}}, {{matchExpressions: []}}, {{matchExpressions: {fields}}}"
    of_nodes = f"{{{REQUIRED}: {{nodeSelectorTerms: [{some}]}}}}"
    affinity = f"{{nodeAffinity: {of_nodes}}}"
    found = by_kind(printed(f"arch: [amd64]\naffinity: {affinity}"))
    assert [each["matchExpressions"][-1]["values"] for each in terms(found)] == [["amd64"]] * 2


def test_an_affinity_that_matches_no_node_is_not_changed(
    printed: Callable[..., list[dict[str, Any]]],
) -> None:
    """Kubernetes: an empty term matches no node. With our condition it would match many nodes."""
    of_nodes = f"{{{REQUIRED}: {{nodeSelectorTerms: [{{}}]}}}}"
    found = by_kind(printed(f"arch: [amd64]\naffinity: {{nodeAffinity: {of_nodes}}}"))
    assert terms(found) == [{}]


def test_labelled_nodes_have_their_own_configuration(
    short_dir: Path, printed: Callable[..., list[dict[str, Any]]]
) -> None:
    """They have their own DaemonSet with their own directories.

    The plugin's DaemonSet leaves them out.
    """
    (short_dir / "main.yaml").write_text(CONFIG % "main")
    (short_dir / "big.yaml").write_text(CONFIG % "big")
    documents = printed(
        "nodeConfigLabel: lab.example.com/size\nnodeConfigs: [{name: big, configFile: big.yaml}]",
        *("expose", "--config", f"{short_dir}/main.yaml", "--name", "lab"),
    )
    one, other = (each for each in documents if each["kind"] == "DaemonSet")
    pods = [each["spec"]["template"]["spec"] for each in (one, other)]
    assert terms({"spec": pods[0]}) == [
        {
            "matchExpressions": [
                {"key": "lab.example.com/size", "operator": "NotIn", "values": ["big"]}
            ]
        }
    ]
    assert pods[1]["nodeSelector"]["lab.example.com/size"] == "big"
    assert "affinity" not in pods[1]
    paths = [
        {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each} for pod in pods
    ]
    assert "/run/main" in paths[0] - paths[1]
    assert "/run/big" in paths[1] - paths[0]
    # Kubernetes: the selectors of two DaemonSets must not overlap.
    assert one["spec"]["selector"] != other["spec"]["selector"]
    assert other["metadata"]["labels"]["app.kubernetes.io/part-of"] == "lab"


def test_node_configurations_do_not_need_the_profiles(
    short_dir: Path, printed: Callable[..., list[dict[str, Any]]]
) -> None:
    """They do not need the domain either, because it belongs to the profiles."""
    (short_dir / "big.yaml").write_text(CONFIG % "big")
    words = ("expose", "--profile", "fuse", "--domain", "b.example", "--name", "lab")
    documents = printed("nodeConfigs: [{name: big, configFile: big.yaml}]", *words)
    texts = [each["data"]["config.yaml"] for each in documents if each["kind"] == "ConfigMap"]
    assert ["b.example" in text for text in texts] == [True, False]


def test_each_version_of_a_configuration_has_its_own_config_map(
    short_dir: Path, printed: Callable[..., list[dict[str, Any]]]
) -> None:
    """The pods name their ConfigMap, so a rollback of the pods is a rollback of the
    configuration.
    """
    names = []
    for text in ("one", "two", "one"):
        (short_dir / "main.yaml").write_text(CONFIG % text)
        words = ("expose", "--config", f"{short_dir}/main.yaml")
        found = by_kind(printed("versionedConfig: true", *words))
        assert found["ConfigMap"]["immutable"] is True
        names.append(found["ConfigMap"]["metadata"]["name"])
        assert found["spec"]["volumes"][-1]["configMap"] == {"name": names[-1]}
    assert names[0] == names[2] != names[1]


MISTAKES = {
    "resorces: {}": "values.yaml:1:1: resorces: unknown key (did you mean 'resources'?)",
    "metrics: {podMonitor: yes please}": "metrics.podMonitor: must be true or false",
    "labels: {app.kubernetes.io/name: x}": "kubedevices sets this label",
    "metrics: {labels: {app.kubernetes.io/managed-by: x}}": "metrics.labels.app.kubernetes.io/m",
    "labels: {kubedevices-namespace: x}": "kubedevices sets this label",
    "labels: {'a b': x}": "not a key of a label",
    "labels: {a: 'x y'}": "not a value of a label",
    "imagePullPolicy: always": "'always' is not known, did you mean 'Always'?",
    "affinity: {nodeAffinity: x}": "1:26: affinity.nodeAffinity: must be keys and values, as in",
    f"affinity: {{nodeAffinity: {{{REQUIRED}: [a]}}}}": "must be keys and values, as in a pod",
    f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: x}}}}}}": "must be a list, as",
    f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [x]}}}}}}": "must be a list of",
    "resources: {limits: {memory: 2020-01-01}}": "the type date: put the value in quotes",
    "resources: {limits: {a: !!binary aGk=}}": "a value of the type bytes",
    "resources: {limits: {a: .nan}}": "nan is not a number of JSON",
    "resources: {limits: {on: 1}}": "the key True is not a text: put the key in quotes",
    "tolerations: [{value: 2020-01-01}]": "1:23: tolerations[0].value: a value of the type date",
    "affinity: {a: &x [{b: *x}]}": "an anchor contains itself",
    "affinity: &x {a: *x}": "an anchor contains itself",
    "affinity: [1]": "affinity: must be keys and values, not a list",
    "resources: !!python/name:os.system": "resources:",
    "tolerations: [{a: !!python/name:os.system x}]": "could not determine a constructor",
    "livenessProbe: {periodSeconds: 0}": "must be 1 or more",
    "livenessProbe: {initialDelaySeconds: -1}": "must be 0 or more",
    "livenessProbe: {successThreshold: 2}": "successThreshold must be 1",
    "metrics: {dashboard: true}\nnodeConfigs: [{name: dashboard, configFile: values.yaml}]": (
        "`dashboard` is the name of the dashboard"
    ),
    "controlSocketDir: /run/x": "controlSocketDir works with simulate only",
    "controlSocketDir: /etc/kubernetes/pki": "has secrets or sockets of the host",
    "controlSocketDir: /var/lib/kubelet/x": "must be a separate directory",
    "controlSocketDir: /": "must be",
    "controlSocketDir: /run/../etc": "must be an absolute path",
    "nodeConfigs: [{name: a, configFile: b}, {name: a, configFile: c}]": "is there already",
    "nodeConfigs: [{name: A, configFile: b}]": "use a-z, 0-9 and '-'",
    "nodeConfigs: [{name: a, configFile: missing.yaml}]": "missing.yaml",
    "nodeConfigs: [{name: aaaaaaaaaaaaaaaaaaaa, configFile: values.yaml}]": "use a shorter --name",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_reported_with_its_place(
    text: str, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (short_dir / "values.yaml").write_text(text)
    assert main(["manifests", "expose", "--values", f"{short_dir}/values.yaml"]) in (2, 3)
    told = capsys.readouterr().err
    assert MISTAKES[text] in told
    assert "values.yaml" in told or "missing.yaml" in told


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("nodeConfigs: [{name: a, configFile: b}]", "expose --mode dra", "do not work with DRA"),
        (
            "updateStrategy: {rollingUpdate: {maxSurge: 25%}}",
            "expose --mode-file configmap",
            "maxSurge must be 0",
        ),
        ("{}", "expose --systemd", "--values cannot be used with --systemd"),
        ("{}", "node", "--values works with simulate, expose, proxy, run only"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    text: str, arguments: str, reason: str, short_dir: Path, cli: CommandLine
) -> None:
    (short_dir / "values.yaml").write_text(text)
    command = ["manifests", *arguments.split(), "--values", f"{short_dir}/values.yaml"]
    assert reason in cli(*command, code=2).err


@pytest.mark.parametrize(
    ("text", "arguments"), [("{}", ("--pod-resources",)), ("metrics: {enabled: true}", ())]
)
def test_a_proxy_has_the_metrics_of_a_plugin(
    text: str, arguments: tuple[str, ...], printed: Callable[..., list[dict[str, Any]]]
) -> None:
    """By the option or by values; Prometheus learns which pod has a device behind the proxy."""
    found = by_kind(printed(text, "proxy", *arguments))
    assert found["pod"]["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert "--pod-resources" in found["container"]["args"]


def test_values_for_the_chart_match_its_schema(
    printed: Callable[..., list[dict[str, Any]]],
) -> None:
    (found,) = printed("arch: [amd64]\nmetrics: {enabled: true}", "expose", "--as-values")
    Draft7Validator(make_schema(ChartValues, "any")).validate(found)
    assert found["metrics"] == {"enabled": True}


def test_the_schema_for_editors_accepts_every_key(cli: CommandLine) -> None:
    validator = Draft7Validator(json.loads(cli("manifests", "expose", "--values-schema").out))
    for text in EFFECTS:
        validator.validate(yaml.safe_load(text))
    assert not validator.is_valid({"resorces": {}})


def test_an_option_overrides_the_values_file(printed: Callable[..., list[dict[str, Any]]]) -> None:
    found = by_kind(printed("nodeSelector: {a: file, b: file}", "expose", "--node-label", "a=c"))
    wanted = {"kubernetes.io/os": "linux", "a": "c", "b": "file"}
    assert found["spec"]["nodeSelector"] == wanted


def test_openshift_allows_a_driver_its_token(printed: Callable[..., list[dict[str, Any]]]) -> None:
    """A pod of a DRA driver gets the token in a projected volume. A device plugin has no token."""
    for words, has_token in ((("expose", "--mode", "dra"), True), (("expose",), False)):
        found = by_kind(printed("openshift: true", *words))
        assert ("projected" in found["SecurityContextConstraints"]["volumes"]) is has_token


@pytest.mark.parametrize("text", ["y", "N", "1e3", "0o17", "1_000", "on", "0x1f", "12"])
def test_texts_are_quoted_for_every_yaml_reader(
    text: str, short_dir: Path, cli: CommandLine
) -> None:
    """Go's YAML reads `y` as true and `1e3` as a number, PyYAML as texts."""
    assert f"a: '{text}'\n" in cli("manifests", "expose", "--node-label", f"a={text}").out


def test_the_page_has_every_key() -> None:
    from kubedevices.config.keys import schema_fields
    from kubedevices.manifests.values import AdminValues

    page = (ROOT / "docs/deploy.md").read_text()
    assert [name for name in schema_fields(AdminValues) if f"| `{name}` |" not in page] == []
