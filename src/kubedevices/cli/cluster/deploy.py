"""`kubedevices deploy`: deploys a plugin into a cluster, and says why it does not start there."""

import argparse
import time
from typing import Any

from kubedevices.cli.cluster.kubectl import ClusterRefused, Kubectl
from kubedevices.cli.cluster.manifest_arguments import add_deployment_arguments
from kubedevices.cli.cluster.manifests import check_arguments, check_image, deployments_of
from kubedevices.errors import KubedevicesError, UsageError
from kubedevices.errors.words import counted
from kubedevices.host.terminal import print_line, print_text, print_to_stderr
from kubedevices.manifests import ownership, rollout
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.dra_access import OF_NAMESPACE
from kubedevices.manifests.rollout import Progress
from kubedevices.manifests.values import AdminValues
from kubedevices.manifests.workload import namespace, objects

NAME = "deploy"
HELP = """\
deploy a plugin into the cluster of kubectl; if the plugin does not start, say why

Applies the output of `kubedevices manifests`, with two differences: it does not change an existing
namespace, and it waits for the rollout. Settings of the simulator come from its variables, such as
RESOURCE_NAME and NUMBER_DEVICES. For a proxy, whose plugin must be moved too, and for fake nodes,
use `kubedevices manifests`.
"""
EXAMPLES = """\
examples:
  RESOURCE_NAME=example.com/gpu kubedevices deploy simulate --image lab.example.com/kubedevices:1
  kubedevices deploy expose --config host-devices.yaml --image lab.example.com/kubedevices:1
"""
PLUGINS = ("simulate", "expose", "run")
PERIOD = 1.0
"""Seconds between two looks at the rollout."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_target_arguments(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=120,
        metavar="SECONDS",
        help="how long to wait for the rollout; 0: do not wait (default: %(default)s)",
    )


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose a plugin and its namespace."""
    parser.add_argument(
        "what", metavar="PLUGIN", type=_plugin, choices=PLUGINS, help=" | ".join(PLUGINS)
    )
    parser.add_argument(
        "--image",
        help="image name with its registry; localhost/… is an image "
        "that you imported on every node",
    )
    add_deployment_arguments(parser, PLUGINS)


def _plugin(word: str) -> str:
    if word == "proxy":
        raise UsageError(
            "proxy: the plugin behind it has to move too. Use `kubedevices manifests proxy` and "
            "`manifests proxy --patch` with kubectl; docs/proxy-deploy.md has the steps"
        )
    return word


def run(args: argparse.Namespace) -> int:
    """Deploy and wait; return 0 if every chosen node has its pod."""
    check_arguments(args)
    check_image(args.image)
    deployments = deployments_of(args)
    kubectl = Kubectl(deployments[0].namespace)
    prepare_namespace(kubectl, deployments[0].admin)
    wanted = []
    for deployment in deployments:
        documents = objects(deployment)
        refuse_foreign(kubectl, documents)
        refuse_second_driver(kubectl, documents, deployment)
        wanted += documents
    every_object = [*wanted]
    # A user without the right to create quotas can deploy all other objects.
    for quota in [each for each in wanted if each["kind"] == "ResourceQuota"]:
        wanted.remove(quota)
        try:
            say(kubectl.run("apply", "--filename=-", documents=[quota]))
        except ClusterRefused as error:
            print_to_stderr(f"kubedevices: {error}; most clusters need no such quota")
    say(kubectl.run("apply", "--filename=-", documents=wanted))
    if args.timeout:
        for deployment in deployments:
            wait_for_rollout(kubectl, deployment, args.timeout)
    try:
        remove_superfluous(kubectl, every_object, deployments[0], is_rolled_out=bool(args.timeout))
    except ClusterRefused as error:
        print_to_stderr(f"kubedevices: objects of earlier deployments may be left: {error}")
    return 0


def remove_superfluous(
    kubectl: Kubectl,
    wanted: list[dict[str, object]],
    deployment: Deployment,
    *,
    is_rolled_out: bool,
) -> None:
    """Delete objects of an earlier `deploy` of this plugin that are not `wanted` now.

    Objects outside the namespace give rights to pods. They are deleted only if `is_rolled_out`,
    because older pods still need them before this.
    """
    found, revisions = [], []
    kinds = ",".join(ownership.KINDS)
    for labels in ownership.belonging(deployment):
        chosen = ownership.selector(labels)
        found += kubectl.get(kinds, f"--selector={chosen}")
        found += kubectl.get_known(ownership.OPERATOR_KINDS, chosen)
        if is_rolled_out:
            chosen = ownership.selector({**labels, OF_NAMESPACE: deployment.namespace})
            found += kubectl.get_known(ownership.CLUSTER_KINDS, chosen)
            found += kubectl.get_known(ownership.OPENSHIFT_KINDS, chosen)
    if not ownership.superfluous(found, wanted, ()):
        return
    for each in found:
        if each["kind"] == "DaemonSet":
            labels = each["spec"]["selector"]["matchLabels"]
            chosen = f"--selector={ownership.selector_of(labels)}"
            revisions += kubectl.get("controllerrevisions", chosen)
    for name in ownership.superfluous(found, wanted, revisions):
        say(kubectl.run("delete", name, "--ignore-not-found"))


def prepare_namespace(kubectl: Kubectl, admin: AdminValues) -> None:
    """Create the namespace; an existing namespace is not changed. Raises `KubedevicesError`."""
    try:
        found = kubectl.get("namespace", kubectl.namespace)
    except ClusterRefused as error:
        if error.is_forbidden:  # such a user cannot create namespaces either: it must exist
            return
        raise
    if not found:
        if not admin.create_namespace:
            raise KubedevicesError(
                f"namespace {kubectl.namespace} is missing, and createNamespace is false: create "
                f"the namespace with `kubectl create namespace {kubectl.namespace}`"
            )
        labelled = namespace(kubectl.namespace, is_labelled=admin.pod_security_labels)
        document = ownership.as_ours(labelled)
        say(kubectl.run("create", "--filename=-", documents=[document]))
    elif refusal := ownership.policy_refusal(found[0]):
        raise KubedevicesError(refusal)
    elif not ownership.is_ours(found[0]):
        print_line(f"namespace/{kubectl.namespace} exists already and is not changed")


def refuse_foreign(kubectl: Kubectl, wanted: list[dict[str, Any]]) -> None:
    """Raise `KubedevicesError` if an object with one of our names belongs to somebody else."""
    found = kubectl.get("--filename=-", documents=wanted)
    foreign = [ownership.name_of(each) for each in found if not ownership.is_ours(each)]
    if foreign:
        raise KubedevicesError(
            f"{', '.join(foreign)} in namespace {kubectl.namespace} was not created by "
            "kubedevices: use another --name or --namespace"
        )
    ours = {ownership.name_of(each): each for each in wanted}
    taken = [each for each in found if ownership.is_of_another(each, ours[ownership.name_of(each)])]
    names = ", ".join(map(ownership.name_of, taken))
    if any("namespace" in each["metadata"] for each in taken):
        raise KubedevicesError(
            f"{names} in namespace {kubectl.namespace} was created for another deployment of "
            "kubedevices: use another --name, or another name in nodeConfigs, or undeploy the "
            "other deployment first"
        )
    if taken:
        raise KubedevicesError(
            f"{names} was created for another driver of kubedevices: one deployment has "
            "the classes of a device type; apply what `kubedevices manifests` prints without them"
        )


def refuse_second_driver(
    kubectl: Kubectl, wanted: list[dict[str, Any]], deployment: Deployment
) -> None:
    """Raise `KubedevicesError` if another deployment is the driver of our domain on our nodes.

    The newer process would take the devices of the other deployment out of the ResourceSlices.
    """
    classes = kubectl.get_known(["deviceclass"], ownership.selector({}))
    for (place, name), domain in ownership.drivers_of_others(classes, wanted).items():
        found = Kubectl(place).get(f"daemonset/{name}")
        if not any(ownership.is_on_other_nodes(each, deployment.node_labels) for each in found):
            raise KubedevicesError(
                f"{name} in namespace {place} is the DRA driver {domain} already: a domain has "
                "one deployment in mode dra on a node. Choose another domain, serve all device "
                "types in one deployment, or choose other nodes with --node-label"
            )


def wait_for_rollout(kubectl: Kubectl, deployment: Deployment, timeout: float) -> None:
    """Wait until every node has its pod; print each obstacle once. Raises `KubedevicesError`."""
    deadline = time.monotonic() + timeout
    printed: list[str] = []
    while True:
        (found,) = kubectl.get(f"daemonset/{deployment.name}") or [None]
        if found is None:
            raise KubedevicesError(f"daemonset/{deployment.name} was deleted during the rollout")
        reached = rollout.progress(found)
        if reached.is_done:
            say_done(deployment, reached.wanted)
            return
        pods = kubectl.get("pods", f"--selector={ownership.selector_of(deployment.selector)}")
        reasons = rollout.obstacles(found, pods, kubectl.get("events"))
        is_late = time.monotonic() >= deadline
        news = [each for each in reasons if each not in printed and rollout.PENDING not in each]
        for reason in reasons if is_late else news:
            print_to_stderr(f"kubedevices: {reason}")
        printed = reasons
        if is_late:
            show_logs(kubectl, [each for each in pods if not rollout.is_ready(each)])
            raise KubedevicesError(
                f"after {timeout:g} s {_what_serves(kubectl, deployment, pods, reached)}"
            )
        time.sleep(PERIOD)


def _what_serves(
    kubectl: Kubectl, deployment: Deployment, pods: list[dict[str, Any]], reached: Progress
) -> str:
    """Return what serves after a bad rollout, and the command that ends the rollout.

    An update leaves the older version on the nodes that have no new pod yet, so the way back is to
    the older version: `undeploy` would end that version, too.
    """
    try:
        history = kubectl.get(
            "controllerrevisions", f"--selector={ownership.selector_of(deployment.selector)}"
        )
    except ClusterRefused:
        history = []
    found = rollout.versions(pods, history)
    nodes = counted(reached.wanted, "node")
    if not found.has_older:
        return f"{deployment.name} serves on {reached.available} of {nodes}; `undeploy` removes it"
    back = (
        f"`kubectl --namespace {kubectl.namespace} rollout undo daemonset/{deployment.name}` goes "
        "back to the older version"
    )
    if deployment.map_data and not deployment.admin.versioned_config:
        back += ", but not to its configuration (versionedConfig in --values would keep that)"
    return (
        f"the new version of {deployment.name} serves on {found.newest} of {nodes}, and the older "
        f"version on {found.older}; {back}"
    )


def say_done(deployment: Deployment, nodes: int) -> None:
    """Print on how many nodes a plugin serves. This may be no node, if no node has its labels."""
    if nodes:
        print_line(f"{deployment.name} serves on {counted(nodes, 'node')}")
        return
    why = "see --node-label"
    if config := deployment.node_config:
        why = f"`kubectl label node NODE {deployment.admin.node_config_label}={config}` chooses one"
    print_to_stderr(f"kubedevices: no node is chosen for {deployment.name}: {why}")


def show_logs(kubectl: Kubectl, pods: list[dict[str, dict[str, str]]]) -> None:
    """Print the last log lines of pods that run and are not ready."""
    for pod in pods:
        if rollout.runs(pod):
            name = pod["metadata"]["name"]
            try:
                lines = kubectl.run("logs", name, f"--tail={rollout.LOG_LINES}")
            except ClusterRefused:
                continue
            for line in lines.splitlines():
                print_to_stderr(f"kubedevices: {name}: {line}")


def say(text: str) -> None:
    """Print the output of kubectl at once."""
    print_text(text, flush=True)
