"""The manifests of a DRA driver: objects, permissions and directories."""

import json
import posixpath
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.api_stub.cel import is_selected
from kubedevices.cli import main
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.dra_access import class_name
from kubedevices.manifests.workload import documents

DRIVER = Deployment(
    "simulate", "i", name="gpus", mode="dra", domain="example.com", device_types=("gpu", "NIC_1")
)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return the objects that `manifests` prints, by kind; of several of one kind, the last."""
    assert main(["manifests", *arguments]) == 0
    text = capsys.readouterr().out
    return {each["kind"]: each for each in yaml.safe_load_all(text) if each is not None}


def made(deployment: Deployment, kind: str) -> list[Any]:
    return [each for each in documents(deployment) if each["kind"] == kind]


def args_of(daemon_set: Any) -> list[str]:
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_a_driver_has_exactly_the_documented_permissions() -> None:
    """One role for one account. Only the pod of the driver has a token of this account."""
    (role,), (binding,) = made(DRIVER, "ClusterRole"), made(DRIVER, "ClusterRoleBinding")
    page = (Path(__file__).parents[2] / "docs/dra.md").read_text()
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


def test_a_class_selects_the_devices_of_its_type() -> None:
    """By the attribute that a driver sets. Pods can request the class in `limits:`."""
    gpu, nic = made(DRIVER, "DeviceClass")
    assert gpu["metadata"]["name"] == "gpu.example.com"
    assert nic["metadata"]["name"] == class_name("example.com", "NIC_1")
    assert nic["metadata"]["name"].startswith("nic-1-")
    assert nic["spec"]["extendedResourceName"] == "example.com/NIC_1"
    for each, kind in ((gpu, "gpu"), (nic, "NIC_1")):
        ((selector),) = each["spec"]["selectors"]
        for other in ("gpu", "NIC_1"):
            device = {"name": "d", "attributes": {"type": {"string": other}}}
            is_chosen = is_selected(selector["cel"]["expression"], "example.com", device)
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


def test_the_mode_of_a_node_is_in_a_file_of_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    """The directory is mounted, not the file, because the file may be created or replaced later."""
    words = ("--mode-file", "/etc/kubedevices/mode", "--kubelet-dir", "/data/kubelet")
    daemon_set = printed(capsys, "simulate", *words)["DaemonSet"]
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


def test_the_mode_of_all_nodes_is_a_key_of_the_config_map(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The key is beside the configuration. A changed key replaces no pod."""
    words = ("--mode-file", "configmap", "--mode", "split", "--dra-devices", "simple-device/1*")
    found = printed(capsys, "simulate", *words)
    assert found["ConfigMap"]["data"] == {"mode": "split"}
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "config"]
    arguments = args_of(found["DaemonSet"])
    file = arguments[arguments.index("--mode-file") + 1]
    assert posixpath.dirname(file) == mount["mountPath"]
    assert "annotations" not in found["DaemonSet"]["spec"]["template"]["metadata"]


def test_metrics_of_a_driver_do_not_need_podresources(capsys: pytest.CaptureFixture[str]) -> None:
    """A driver knows its claims. A pod that may become a device plugin needs podresources."""
    arguments = args_of(printed(capsys, "simulate", "--mode", "dra", "--metrics")["DaemonSet"])
    assert "--pod-resources" not in arguments
    words = ("simulate", "--mode-file", "configmap", "--metrics")
    assert "--pod-resources" in args_of(printed(capsys, *words)["DaemonSet"])


@pytest.mark.parametrize(
    "words",
    [
        "simulate --mode dra",
        "simulate --mode split --dra-devices simple-device --mode-file configmap",
        "expose --mode dra",
        "expose --mode-file /etc/x/mode --metrics",
    ],
)
def test_the_command_accepts_the_arguments_of_the_pod(
    words: str,
    short_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command fails only when it looks for the API server."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    found = printed(capsys, *words.split())
    arguments = args_of(found["DaemonSet"])
    if (data := found.get("ConfigMap", {}).get("data")) is not None:
        for key, text in data.items():
            (short_dir / key).write_text(text)
        arguments = [each.replace("/etc/kubedevices/", f"{short_dir}/") for each in arguments]
    arguments = [each.replace("/host/dev", "/dev") for each in arguments]
    assert main(arguments) in (2, 3)
    assert "the address of the API server is unknown" in capsys.readouterr().err


def test_the_author_of_a_scanner_names_the_device_types(capsys: pytest.CaptureFixture[str]) -> None:
    """The scanner is in the image, so `manifests` cannot run it."""
    run = ("run", "widgets:Widgets", "--domain", "example.com", "--image", "r.example.com/w:1")
    found = printed(capsys, *run, "--mode", "dra", "--device-type", "widget")
    assert found["DeviceClass"]["spec"]["extendedResourceName"] == "example.com/widget"
    assert "--mode" in args_of(found["DaemonSet"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("simulate --mode split", "needs --dra-devices"),
        ("simulate --dra-devices gpu", "--dra-devices needs --mode split"),
        ("simulate --mode-file mode", "neither an absolute path nor 'configmap'"),
        ("simulate --mode-file /etc/mode", "its directory /etc is mounted into the pod"),
        ("simulate --mode dra --systemd", "--mode cannot be used with --systemd"),
        ("simulate --mode dra --device-type gpu", "--device-type works with run only"),
        ("proxy --mode dra", "--mode works with simulate, expose, run only"),
        ("run a:B --domain example.com --mode dra", "run with DRA needs --device-type"),
        ("run a:B --domain example.com --device-type gpu", "--device-type needs --mode dra"),
        ("run a:B --domain example.com --mode dra --device-type g/u", "example.com/g/u"),
        ("run a:B --domain {long}.com --mode dra --device-type gpu", "at most 63 characters"),
    ],
)
def test_dra_options_that_cannot_start_are_refused(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, before the manifest reaches the cluster."""
    assert main(["manifests", *words.format(long="a.b" * 22).split()]) == 2
    assert problem in capsys.readouterr().err
