"""Rules for every deployment, and for the objects that options add."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from kubedevices.cli.cluster.manifests import IMAGE
from kubedevices.manifests.deployment import Deployment, Plugin
from kubedevices.manifests.image import pulled_as
from kubedevices.manifests.workload import documents
from tests.command_line import CommandLine
from tests.docs.pages import ROOT, read_page
from tests.manifests.deployments import DEPLOYMENTS
from tests.manifests.foreign_schemas import BY_KIND

EXPOSING = [name for name, each in DEPLOYMENTS.items() if each.plugin == "expose"]
PLUGINS = [name for name, each in DEPLOYMENTS.items() if not each.has_dra]
DRIVERS = [name for name, each in DEPLOYMENTS.items() if each.has_dra]


def pod_of(deployment: Deployment) -> dict[str, Any]:
    pod: dict[str, Any] = documents(deployment)[-1]["spec"]["template"]["spec"]
    return pod


def host_paths(pod: dict[str, Any]) -> dict[str, str]:
    return {
        volume["hostPath"]["path"]: volume["hostPath"]["type"]
        for volume in pod["volumes"]
        if "hostPath" in volume
    }


def mounts(pod: dict[str, Any]) -> dict[str, bool]:
    """Return whether each mount is read-only, by host path or by name of the volume."""
    (container,) = pod["containers"]
    source = {
        volume["name"]: volume.get("hostPath", {}).get("path", volume["name"])
        for volume in pod["volumes"]
    }
    return {
        source[mount["name"]]: mount.get("readOnly", False) for mount in container["volumeMounts"]
    }


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_nothing_is_privileged(name: str) -> None:
    """User 0, because it owns the plugin directory, without the usual rights of root."""
    pod = pod_of(DEPLOYMENTS[name])
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    selinux = {"seLinuxOptions": {"type": "container_device_plugin_t"}}
    assert pod["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
        **(selinux if name == "openshift" else {}),
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)


@pytest.mark.parametrize("name", PLUGINS)
def test_plugin_pods_have_no_access_to_the_api(name: str) -> None:
    """No token and no role. The account is only for this plugin, so it has no rights of others."""
    made = documents(DEPLOYMENTS[name])
    kinds = [each["kind"] for each in made]
    assert not [kind for kind in kinds if "Role" in kind]
    account = made[kinds.index("ServiceAccount")]
    pod = pod_of(DEPLOYMENTS[name])
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_runs_on_every_node_that_can_run_it(name: str) -> None:
    """Before other pods, also where the control plane is, but not on Windows.

    Not every taint is tolerated: the pod would never start on a virtual node, and each update would
    wait for this pod.
    """
    pod = pod_of(DEPLOYMENTS[name])
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [
        {
            "key": "node-role.kubernetes.io/control-plane",
            "operator": "Exists",
            "effect": "NoSchedule",
        }
    ]
    assert pod["nodeSelector"]["kubernetes.io/os"] == "linux"


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        ("gpu", {"key": "gpu", "operator": "Exists"}),
        ("gpu:NoExecute", {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
        ("a.b/gpu=yes", {"key": "a.b/gpu", "operator": "Equal", "value": "yes"}),
        (
            "gpu=:NoSchedule",
            {"key": "gpu", "operator": "Equal", "value": "", "effect": "NoSchedule"},
        ),
    ],
)
def test_a_toleration_can_be_added(taint: str, expected: dict[str, str], cli: CommandLine) -> None:
    """In the notation of kubectl, beside the toleration of the control plane."""
    *_, daemon_set = yaml.safe_load_all(cli("manifests", "simulate", "--toleration", taint).out)
    assert daemon_set["spec"]["template"]["spec"]["tolerations"][1:] == [expected]


@pytest.mark.parametrize("taint", ["", "=x", "gpu:", "gpu:Never", "a b", "gpu=a b", "/gpu"])
def test_an_invalid_taint_is_refused(taint: str, cli: CommandLine) -> None:
    """By the command, before the manifest reaches the cluster."""
    err = cli("manifests", "simulate", "--toleration", taint, code=2).err
    assert "is not a taint of a node" in err


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_an_update_does_not_remove_devices(name: str) -> None:
    """The new pod starts beside the old pod. The old pod ends when the new pod is ready.

    A proxy is different: only one can use the directory in which plugins register. So is a pod that
    may serve both device APIs: two pods would both decide to which API a device belongs.
    """
    spec = documents(DEPLOYMENTS[name])[-1]["spec"]
    surge = 0 if name == "proxy" or (name in DRIVERS and DEPLOYMENTS[name].has_plugin) else 1
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge},
    }
    (container,) = spec["template"]["spec"]["containers"]
    assert container["readinessProbe"]["periodSeconds"] == 1
    grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == (30 if name in DRIVERS else 5), "a driver waits for the end of its calls"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_probes_ask_the_pages_of_the_pod(name: str) -> None:
    """Probes ask the port that is opened on every address; requests and limits are set."""
    (container,) = pod_of(DEPLOYMENTS[name])["containers"]
    (port,) = container["ports"]
    arguments = container["args"]
    assert arguments[arguments.index("--listen") + 1] == f"*:{port['containerPort']}"
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    liveness = container["livenessProbe"]
    noticed = liveness["failureThreshold"] * liveness["periodSeconds"] + liveness["timeoutSeconds"]
    assert noticed <= 15, "no pod is admitted while the event loop is blocked"
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert {*container["resources"]["requests"]} == {"cpu", "memory"}
    assert {*container["resources"]["limits"]} == {"memory"}, "a CPU limit would throttle Allocate"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_container_knows_the_name_of_its_node(name: str) -> None:
    """From the pod's own field, without a request to the API."""
    (container,) = pod_of(DEPLOYMENTS[name])["containers"]
    env = {each["name"]: each for each in container["env"]}
    assert env["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_namespace_has_the_privileged_level(name: str) -> None:
    """The pods mount host paths, so each of the three modes of pod security needs this level."""
    labels = documents(DEPLOYMENTS[name])[0]["metadata"]["labels"]
    modes = ("enforce", "audit", "warn")
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in modes} == {"privileged"}


KUBELET = "/var/lib/kubelet"
OF_EXPOSE = {
    "/dev": True,
    "config": True,
    "/var/lib/kubedevices": False,
    f"{KUBELET}/pod-resources": True,
}
OF_DRA = {
    **OF_EXPOSE,
    f"{KUBELET}/plugins_registry": False,
    f"{KUBELET}/plugins/devices.example.com": False,
    "/var/run/cdi": False,
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dra", OF_DRA),
        ("two-modes", OF_DRA),
        ("simulator", {}),
        ("generic", OF_EXPOSE),
        ("cdi", {**OF_EXPOSE, "/var/run/cdi": False}),
        ("metrics", OF_EXPOSE),
        ("openshift", OF_EXPOSE),
        (
            "proxy",
            {
                "/var/lib/kubedevices/plugins": False,
                "/var/lib/kubedevices/plugins_registry": False,
                "/var/lib/kubedevices": False,
                "/var/lib/kubelet/pod-resources": True,
            },
        ),
    ],
)
def test_only_needed_directories_are_mounted(name: str, expected: dict[str, bool]) -> None:
    """The plugin directory; /dev read-only; CDI and podresources only if the plugin uses them.

    A driver gets only its own directory of the directory with all drivers' sockets.
    """
    pod = pod_of(DEPLOYMENTS[name])
    usual = {"/var/lib/kubedevices": True}  # `kubedevices cordon` writes there
    if DEPLOYMENTS[name].has_plugin:
        usual[f"{KUBELET}/device-plugins"] = False
    assert mounts(pod) == usual | expected
    kinds = host_paths(pod)
    inside = "/var/lib/kubedevices/plugins"
    created = ("/var/run/cdi", "/var/lib/kubedevices", inside, f"{inside}_registry")
    for path in (*created, f"{KUBELET}/plugins/devices.example.com"):
        assert kinds.pop(path, "DirectoryOrCreate") == "DirectoryOrCreate"
    assert {*kinds.values()} == {"Directory"}


def test_metrics_use_podresources_and_has_annotations() -> None:
    """With `metrics`, the plugin asks the kubelet's podresources socket who holds a device."""
    template = documents(DEPLOYMENTS["metrics"])[-1]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["args"][-2:] == [
        "--pod-resources",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
    ]
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9400",
        "prometheus.io/path": "/metrics",
    }


def test_two_plugins_of_one_namespace_share_no_object() -> None:
    """All names differ, and no selector matches the other plugin's pods."""
    one, two = (
        documents(Deployment("simulate", IMAGE, config="a: 1\n", name=name)) for name in "ab"
    )
    for mine, other in zip(one[1:], two[1:], strict=True):
        assert mine["kind"] == other["kind"]
        assert mine["metadata"]["name"] != other["metadata"]["name"]
    selector = one[-1]["spec"]["selector"]["matchLabels"].items()
    assert selector <= one[-1]["spec"]["template"]["metadata"]["labels"].items()
    assert not selector <= two[-1]["spec"]["template"]["metadata"]["labels"].items()
    pod = one[-1]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "a"
    assert {"name": "config", "configMap": {"name": "a"}} in pod["volumes"]


@pytest.mark.parametrize("namespace", ["kubedevices", "kube-system"])
def test_the_priority_class_is_allowed_by_a_quota(namespace: str) -> None:
    """Some clusters allow this class only with a quota for it. kube-system needs no quota."""
    made = documents(Deployment("simulate", IMAGE, namespace=namespace))
    quotas = [each["spec"] for each in made if each["kind"] == "ResourceQuota"]
    if namespace == "kube-system":
        assert not quotas
        return
    (quota,) = quotas
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    assert made[-1]["spec"]["template"]["spec"]["priorityClassName"] in scope["values"]
    assert scope["scopeName"] == "PriorityClass"
    assert quota["hard"] == {"pods": "1G"}


@pytest.mark.parametrize(("devices", "limit"), [(0, 128), (10_000, 128), (100_000, 512)])
def test_the_memory_limit_grows_with_the_devices(devices: int, limit: int) -> None:
    """A simulator with 100,000 devices needs more than twice the usual limit."""
    pod = pod_of(Deployment("simulate", IMAGE, devices=devices))
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"memory": f"{limit}Mi"}
    request = int(container["resources"]["requests"]["memory"].removesuffix("Mi"))
    assert 40 <= request <= limit


def test_a_changed_configuration_replaces_only_pods_of_the_simulator() -> None:
    """`expose` reads a changed file itself, and a new pod would interrupt its streams."""

    def template(plugin: Plugin, config: str) -> Any:
        made = documents(Deployment(plugin, IMAGE, config=config))
        return made[-1]["spec"]["template"]

    assert template("simulate", "a: 1\n") != template("simulate", "a: 2\n")
    assert template("expose", "a: 1\n") == template("expose", "a: 2\n")


def test_openshift_allows_only_what_our_pod_needs() -> None:
    """The constraints are for our account only."""
    constraints = constraints_for_openshift()
    pod = pod_of(DEPLOYMENTS["openshift"])
    account = f"system:serviceaccount:kubedevices:{pod['serviceAccountName']}"
    assert constraints["users"] == [account]
    used = {key for volume in pod["volumes"] for key in volume if key != "name"}
    assert set(constraints["volumes"]) == used
    allowed = {key for key, value in constraints.items() if key.startswith("allow") and value}
    assert allowed == {"allowHostDirVolumePlugin"}
    assert constraints["requiredDropCapabilities"] == ["ALL"]


@pytest.mark.parametrize("name", EXPOSING)
def test_the_example_configuration_is_valid(name: str, short_dir: Path, cli: CommandLine) -> None:
    """`expose --check` finds no mistake."""
    (key, text), *others = DEPLOYMENTS[name].map_data.items()
    assert dict(others) == ({"mode": "device-plugin"} if name == "two-modes" else {})
    file = short_dir / key
    file.write_text(text)
    assert "no mistakes" in cli("expose", "--config", file, "--check").out


def constraints_for_openshift() -> dict[str, Any]:
    made = documents(DEPLOYMENTS["openshift"])
    (found,) = [each for each in made if each["kind"] == "SecurityContextConstraints"]
    return found


def rule_of_the_page() -> dict[str, Any]:
    """Return the rule for Node Feature Discovery in the page about deployment."""
    page = read_page(ROOT / "docs/deploy.md")
    rule: dict[str, Any] = yaml.safe_load(page.files["accelerators.yaml"])
    return rule


FOREIGN = {"OpenShift": constraints_for_openshift, "Node Feature Discovery": rule_of_the_page}


@pytest.mark.parametrize("project", FOREIGN)
def test_objects_of_other_projects_match_their_schemas(project: str) -> None:
    """Node Feature Discovery and OpenShift drop or refuse a misspelt key."""
    document = FOREIGN[project]()
    errors = [*Draft202012Validator(BY_KIND[document["kind"]]).iter_errors(document)]
    assert not errors, f"{project}: {[error.message for error in errors]}"


def rename(key: str, other: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document[other] = document.pop(key)

    return change


@pytest.mark.parametrize(
    ("project", "spoil"),
    [
        ("OpenShift", rename("users", "user")),
        ("OpenShift", rename("priority", "priorities")),
        (
            "Node Feature Discovery",
            lambda each: rename("name", "nam")(each["spec"]["rules"][0]),
        ),
    ],
)
def test_a_misspelt_key_is_found(project: str, spoil: Callable[[dict[str, Any]], None]) -> None:
    """The schemas are strict."""
    document = FOREIGN[project]()
    spoil(document)
    assert not Draft202012Validator(BY_KIND[document["kind"]]).is_valid(document)


@pytest.mark.parametrize(
    "mount", ["/dev:/host/dev:rx", "/dev:/host/dev:ro", "/a:/b:/c", "a", "/a/../b"]
)
def test_a_mount_that_is_not_understood_is_refused(mount: str, cli: CommandLine) -> None:
    """A mount with another end would be a directory called `/host/dev:rx`."""
    err = cli("manifests", "run", "a:B", "--domain", "example.com", "--mount", mount, code=2).err
    assert f"--mount {mount!r} is not HOST[:INSIDE][:rw]" in err


def test_an_image_without_a_registry_is_refused(cli: CommandLine) -> None:
    """Kubernetes would pull the image of a stranger."""
    said = cli("manifests", "simulate", "--image", "kubedevices:1", code=2)
    assert f"would pull {pulled_as('kubedevices:1')}" in said.err
    assert said.out == ""
