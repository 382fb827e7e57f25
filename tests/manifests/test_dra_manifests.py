"""The manifests of a DRA driver: objects, permissions and directories."""

import json
import posixpath
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import main
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.dra_access import class_name
from kubedevices.manifests.workload import documents
from kubedevices.values.selectors import Selector
from tests.command_line import CommandLine

DRIVER = Deployment(
    "simulate", "i", name="gpus", mode="dra", domain="example.com", device_types=("gpu", "NIC_1")
)


def printed(cli: CommandLine, *arguments: str) -> dict[str, Any]:
    """Return the objects that `manifests` prints, by kind; of several of one kind, the last."""
    objects = yaml.safe_load_all(cli("manifests", *arguments).out)
    return {each["kind"]: each for each in objects if each is not None}


def made(deployment: Deployment, kind: str) -> list[Any]:
    return [each for each in documents(deployment) if each["kind"] == kind]


def args_of(daemon_set: Any) -> list[str]:
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_a_driver_has_exactly_the_documented_permissions() -> None:
    """One role for one account. Only the pod of the driver has a token of this account."""
    (role,), (binding,) = made(DRIVER, "ClusterRole"), made(DRIVER, "ClusterRoleBinding")
    page = (Path(__file__).parents[2] / "docs/dra-operate.md").read_text()
    _, _, rules = page.partition("needs a ClusterRole with only these rules")
    assert role["rules"] == yaml.safe_load(rules.split("```")[1].removeprefix("yaml"))
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    (account,) = made(DRIVER, "ServiceAccount")
    names = account["metadata"]["name"], account["metadata"]["namespace"]
    assert (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", *names)
    assert account["automountServiceAccountToken"] is False
    (daemon_set,) = made(DRIVER, "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True
    assert pod["serviceAccountName"] == account["metadata"]["name"]


def test_a_device_plugin_manifest_has_no_dra_objects() -> None:
    """No role, no class, no directory of drivers."""
    kinds = [each["kind"] for each in documents(Deployment("simulate", "i"))]
    assert kinds == ["Namespace", "ServiceAccount", "ResourceQuota", "DaemonSet"]


def test_the_policy_covers_this_account_and_this_driver() -> None:
    """It is bound with the action Deny. Its effect: tests/kubernetes/test_dra_deploy.py."""
    (policy,) = made(DRIVER, "ValidatingAdmissionPolicy")
    (binding,) = made(DRIVER, "ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {
        "policyName": policy["metadata"]["name"],
        "validationActions": ["Deny"],
    }
    (condition,) = policy["spec"]["matchConditions"]
    assert '"system:serviceaccount:kubedevices:gpus"' in condition["expression"]
    assert {each["reason"] for each in policy["spec"]["validations"]} == {"Forbidden"}
    assert 'driver == "example.com"' in json.dumps(policy["spec"]["validations"]).replace("\\", "")
    assert policy["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize(
    ("domain", "device_type", "name"),
    [
        ("example.com", "gpu", "gpu.example.com"),
        ("example.com", "___", "bda25155.example.com"),
        ("d" * 300, "a.b", "a.b." + "d" * 249),
    ],
)
def test_the_name_of_a_class_stays_the_same(domain: str, device_type: str, name: str) -> None:
    """Claims name it, also those that were written for an older version."""
    assert class_name(domain, device_type) == name


def test_a_class_selects_the_devices_of_its_type() -> None:
    """By the attribute that a driver sets. Pods can request the class in `limits:`."""
    gpu, nic = made(DRIVER, "DeviceClass")
    assert gpu["metadata"]["name"] == "gpu.example.com"
    assert nic["metadata"]["name"] == "nic-1-8e8b30a4.example.com"
    assert nic["spec"]["extendedResourceName"] == "example.com/NIC_1"
    for each, kind in ((gpu, "gpu"), (nic, "NIC_1")):
        ((selector),) = each["spec"]["selectors"]
        for other in ("gpu", "NIC_1"):
            device = {"name": "d", "attributes": {"type": {"string": other}}}
            is_chosen = Selector(selector["cel"]["expression"]).selects("example.com", device)
            assert is_chosen is (kind == other)


def test_cluster_objects_of_two_namespaces_have_different_names() -> None:
    """Two namespaces may have a driver of the same name."""
    other = Deployment("simulate", "i", name="gpus", namespace="b", mode="dra", domain="x.com")
    mine, theirs = (
        {(each["kind"], each["metadata"]["name"]) for each in documents(deployment)}
        for deployment in (DRIVER, other)
    )
    shared = {("ServiceAccount", "gpus"), ("ResourceQuota", "gpus"), ("DaemonSet", "gpus")}
    assert mine & theirs == shared


def test_the_mode_of_a_node_is_in_a_file_of_the_node(cli: CommandLine) -> None:
    """The directory is mounted, not the file, because the file may be created or replaced later."""
    words = ("--mode-file", "/etc/kubedevices/mode", "--kubelet-dir", "/data/kubelet")
    daemon_set = printed(cli, "simulate", *words)["DaemonSet"]
    pod = daemon_set["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "mode"]
    assert volume["hostPath"] == {"path": "/etc/kubedevices", "type": "DirectoryOrCreate"}
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "mode"]
    assert mount["readOnly"] is True
    arguments = args_of(daemon_set)
    assert arguments[arguments.index("--mode-file") + 1] == f"{mount['mountPath']}/mode"
    assert arguments[arguments.index("--mode") + 1] == "device-plugin"
    assert arguments[arguments.index("--kubelet-dir") + 1] == "/data/kubelet"
    paths = {each["hostPath"]["path"] for each in pod["volumes"]}
    assert {
        "/var/lib/kubelet/device-plugins",
        "/data/kubelet/plugins_registry",
        "/data/kubelet/plugins/example.com",
        "/data/kubelet/pod-resources",
        "/var/run/cdi",
    } <= paths


def test_the_mode_of_all_nodes_is_a_key_of_the_config_map(cli: CommandLine) -> None:
    """The key is beside the configuration. A changed key replaces no pod."""
    words = ("--mode-file", "configmap", "--mode", "split", "--dra-devices", "simple-device/1*")
    found = printed(cli, "simulate", *words)
    assert found["ConfigMap"]["data"] == {"mode": "split"}
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "config"]
    arguments = args_of(found["DaemonSet"])
    file = arguments[arguments.index("--mode-file") + 1]
    assert posixpath.dirname(file) == mount["mountPath"]
    assert "annotations" not in found["DaemonSet"]["spec"]["template"]["metadata"]


def test_metrics_of_a_driver_do_not_need_podresources(cli: CommandLine) -> None:
    """A driver knows its claims. A pod that may become a device plugin needs podresources."""
    words = ("simulate", "--mode", "dra", "--pod-resources")
    arguments = args_of(printed(cli, *words)["DaemonSet"])
    assert "--pod-resources" not in arguments
    words = ("simulate", "--mode-file", "configmap", "--pod-resources")
    assert "--pod-resources" in args_of(printed(cli, *words)["DaemonSet"])


@pytest.mark.parametrize(
    "words",
    [
        "simulate --mode dra",
        "simulate --mode split --dra-devices simple-device --mode-file configmap",
        "expose --mode dra",
        "expose --mode-file /etc/x/mode --pod-resources",
    ],
)
def test_the_command_accepts_the_arguments_of_the_pod(
    words: str,
    short_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cli: CommandLine,
) -> None:
    """The command fails only when it looks for the API server."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    found = printed(cli, *words.split())
    arguments = args_of(found["DaemonSet"])
    if (data := found.get("ConfigMap", {}).get("data")) is not None:
        for key, text in data.items():
            (short_dir / key).write_text(text)
        arguments = [each.replace("/etc/kubedevices/", f"{short_dir}/") for each in arguments]
    arguments = [each.replace("/host/dev", "/dev") for each in arguments]
    assert main(arguments) in (2, 3)
    assert "the address of the API server is unknown" in capsys.readouterr().err


def test_the_author_of_a_scanner_names_the_device_types(cli: CommandLine) -> None:
    """The scanner is in the image, so `manifests` cannot run it."""
    run = ("run", "widgets:Widgets", "--domain", "example.com", "--image", "r.example.com/w:1")
    found = printed(cli, *run, "--mode", "dra", "--device-type", "widget")
    assert found["DeviceClass"]["spec"]["extendedResourceName"] == "example.com/widget"
    assert "--mode" in args_of(found["DaemonSet"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("simulate --mode split", "needs --dra-devices"),
        ("simulate --dra-devices gpu", "--dra-devices needs --mode split"),
        ("simulate --mode-file mode", "is not an absolute path, nor 'configmap'"),
        ("simulate --mode-file mode --systemd", "'mode' is not an absolute path\n"),
        ("simulate --mode-file configmap --systemd", "'configmap' is not an absolute path\n"),
        ("simulate --mode-file /d/m --mode-label a", "exclude each other"),
        ("simulate --mode-label a/b/c", "--mode-label: 'a/b/c' is not a key of a label"),
        ("simulate --mode dra --extended-resource-name gpu", "gives 'gpu': "),
        ("simulate --mode dra --extended-resource-name a.b/{{kind}}", "gives 'a.b/{kind}': "),
        ("simulate --extended-resource-name none", "--extended-resource-name needs --mode dra"),
        (
            (
                "run a:B --domain a.b --mode dra --device-type g --device-type h "
                "--extended-resource-name a.b/x"
            ),
            "two types would get one name",
        ),
        ("simulate --systemd --kubeconfig /k", "--kubeconfig needs --mode dra"),
        ("simulate --systemd --mode dra --kubeconfig k", "--kubeconfig 'k' is not an absolute"),
        ("simulate --mode dra --kubeconfig /k", "--kubeconfig works with --systemd only"),
        ("simulate --mode-file /etc/mode", "its directory /etc is mounted into the pod"),
        ("simulate --mode dra --device-type gpu", "--device-type works with run, proxy only"),
        ("proxy --mode dra", "proxy --mode dra needs --domain"),
        ("proxy --mode dra --domain a.b", "proxy with DRA needs --device-type"),
        ("proxy --mode dra --domain A --device-type g", "A/…"),
        ("proxy --mode split --domain a.b", "a proxy has the modes device-plugin and dra"),
        ("proxy --mode-label a", "--mode-label works with simulate, expose, run only"),
        ("proxy --domain a.b", "proxy needs it only with --mode dra"),
        ("run a:B --domain example.com --mode dra", "run with DRA needs --device-type"),
        ("run a:B --domain example.com --device-type gpu", "--device-type needs --mode dra"),
        ("run a:B --domain example.com --mode dra --device-type g/u", "example.com/g/u"),
        ("run a:B --domain {long}.com --mode dra --device-type gpu", "at most 63 characters"),
    ],
)
def test_dra_options_that_cannot_start_are_refused(
    words: str, problem: str, cli: CommandLine
) -> None:
    """By the command, before the manifest reaches the cluster."""
    assert problem in cli("manifests", *words.format(long="a.b" * 22).split(), code=2).err


def test_the_mode_of_a_node_is_one_of_its_labels(cli: CommandLine) -> None:
    """The pod needs no file. It may be in either API, and an update ends the old pod first."""
    words = ("simulate", "--mode-label", "example.com/mode", "--dra-devices", "simple-device/1*")
    found = printed(cli, *words)
    assert "ConfigMap" not in found
    arguments = args_of(found["DaemonSet"])
    assert arguments[arguments.index("--mode-label") + 1] == "example.com/mode"
    assert arguments[arguments.index("--mode") + 1] == "device-plugin"
    assert "ClusterRole" in found
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    volumes = {each["name"] for each in pod["volumes"]}
    assert {"plugins", "registry", "driver"} <= volumes
    assert "mode" not in volumes
    strategy = found["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("none", None), ("dra.{domain}/{type}", "dra.example.com/gpu"), ("a.b/x", "a.b/x")],
)
def test_the_name_for_limits_is_a_choice(pattern: str, name: str | None, cli: CommandLine) -> None:
    """Of a plugin's name, a scheduler may refuse pods on nodes with the plugin."""
    run = ("run", "a:B", "--domain", "example.com", "--mode", "dra", "--device-type", "gpu")
    found = printed(cli, *run, "--extended-resource-name", pattern)
    assert found["DeviceClass"]["spec"].get("extendedResourceName") == name
    assert found["DeviceClass"]["metadata"]["name"] == "gpu.example.com"


def test_a_proxy_as_a_driver_has_its_rights_and_probes(cli: CommandLine) -> None:
    """It serves pages, so the kubelet can ask for its readiness; it registers no device plugin."""
    words = ("proxy", "--mode", "dra", "--domain", "vendor.example", "--device-type", "card")
    found = printed(cli, *words)
    assert found["DeviceClass"]["metadata"]["name"] == "card.vendor.example"
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "pages"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "pages"}
    assert "--listen *:9400" in " ".join(container["args"])
    paths = {each["hostPath"]["path"] for each in pod["volumes"]}
    assert "/var/lib/kubelet/plugins/vendor.example" in paths
    assert "/var/lib/kubedevices/plugins" in paths
    assert "/var/lib/kubelet/device-plugins" not in paths
    assert pod["automountServiceAccountToken"] is True


SERVICES = {
    "simulate --mode dra": "--mode dra --kubeconfig /etc/kubernetes/kubelet.conf --listen",
    "simulate --mode split --dra-devices 'simple-device/1*' --plugin-dir /p --pod-resources": (
        "--socket-dir /p --mode split --dra-devices simple-device/1* --kubeconfig "
        "/etc/kubernetes/kubelet.conf --pod-resources /var/lib/kubelet/pod-resources/kubelet.sock"
    ),
    "simulate --mode-file /etc/mode --kubeconfig /keys/k": (
        "--mode device-plugin --mode-file /etc/mode --kubeconfig /keys/k"
    ),
    "simulate --mode-label a.b/mode --mode dra --kubelet-dir /k": (
        "--mode dra --mode-label a.b/mode --kubelet-dir /k --kubeconfig /etc/kubernetes/kubelet"
    ),
    # A driver alone has no socket of a device plugin, and knows its claims by itself.
    "simulate --mode dra --plugin-dir /p --pod-resources": (
        "simulate --mode dra --kubeconfig /etc/kubernetes/kubelet.conf --listen"
    ),
    "proxy --mode dra --domain a.b --device-type c --inside-dir /in": (
        "proxy --plugin-dir /in --plugin-registry /in_registry --mode dra "
        "--kubeconfig /etc/kubernetes/kubelet.conf --listen"
    ),
}


@pytest.mark.parametrize("words", SERVICES)
def test_a_driver_can_be_a_service_of_the_host(
    words: str, cli: CommandLine, short_dir: Path
) -> None:
    """With credentials that such a process has; the command accepts its own unit's arguments."""
    text = cli("manifests", *shlex.split(words), "--systemd").out
    assert "Description=Kubernetes DRA driver" in text
    (command,) = [each for each in text.splitlines() if each.startswith("ExecStart=")]
    assert SERVICES[words] in command
    # No such kubeconfig is here: every other word is accepted before it is read.
    gone = str(short_dir / "gone")
    arguments = command.partition(" ")[2].replace("/etc/kubernetes/kubelet.conf", gone)
    arguments = arguments.replace("/keys/k", gone)
    assert f"{gone}: No such file" in cli(*shlex.split(arguments), code=3).err
