"""`kubedevices undeploy`: deletes the objects that `deploy` created, and no other objects."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from kubedevices.cli.cluster.deploy import add_target_arguments, say
from kubedevices.cli.cluster.kubectl import ClusterRefused, Kubectl
from kubedevices.cli.cluster.manifests import check_arguments, target_of
from kubedevices.errors.words import counted, some_of
from kubedevices.host.terminal import print_line, print_to_stderr
from kubedevices.manifests import ownership
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.dra_access import OF_NAMESPACE
from kubedevices.manifests.held_claims import drivers_of, holders

NAME = "undeploy"
HELP = """\
remove a plugin from the cluster of kubectl

Finds by label the objects that `deploy`, or `manifests` and kubectl, created for this plugin, and
deletes them, also the rights and DeviceClasses of a DRA driver. Names the pods that still have a
claim of the driver: they cannot end without the driver. Deletes the namespace only if
`deploy` created it and nothing else is in it. Give the same options as to `deploy`, or --name.
"""
EXAMPLES = """\
examples:
  RESOURCE_NAME=example.com/gpu kubedevices undeploy simulate
  kubedevices undeploy expose --config host-devices.yaml
  kubedevices undeploy expose --name kubedevices-expose-devices-example-com
"""
DELETE_TIMEOUT = "--timeout=90s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_target_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Delete the plugin, then the namespace if `deploy` created it and it is empty."""
    check_arguments(args)
    deployment = target_of(args)
    kubectl = Kubectl(deployment.namespace)
    kinds, found = ",".join(ownership.KINDS), []
    for labels in ownership.belonging(deployment):
        chosen = f"--selector={ownership.selector(labels)}"
        if some := kubectl.get(kinds, chosen):
            found += some
            warn_of_claims(kubectl, some)
            how = ("--cascade=foreground", "--ignore-not-found", DELETE_TIMEOUT)
            say(kubectl.run("delete", kinds, chosen, *how))
    for labels in ownership.belonging(deployment):
        _remove_kinds(kubectl, ownership.OPERATOR_KINDS, labels)
    if not found:
        others = kubectl.get("daemonset", f"--selector={ownership.selector({})}")
        names = ", ".join(each["metadata"]["name"] for each in others) or "no other"
        print_line(
            f"no {deployment.name} of kubedevices exists in namespace {deployment.namespace} "
            f"(plugins there: {names})"
        )
    remove_from_cluster(kubectl, deployment)
    remove_namespace(kubectl, found)
    return 0


def warn_of_claims(kubectl: Kubectl, deleted: list[Any]) -> None:
    """Print which pods cannot end without the driver in `deleted`; nothing for a device plugin."""
    if not (drivers := drivers_of(deleted)):
        return
    name = " and ".join(drivers)
    then = (
        "Without the driver these pods will hang in Terminating when they are deleted. Delete them "
        "before `undeploy`; or deploy the driver again, and they end"
    )
    try:
        pods = holders(kubectl.get("resourceclaims", "--all-namespaces"), drivers)
    except ClusterRefused as error:
        print_to_stderr(
            f"kubedevices: pods may hold devices of the driver {name}; their claims cannot be seen "
            f"({error}). {then}"
        )
        return
    if pods:
        print_to_stderr(
            f"kubedevices: {counted(len(pods), 'pod')} with claims of the driver {name}: "
            f"{some_of(pods)}. {then}"
        )


def remove_from_cluster(kubectl: Kubectl, deployment: Deployment) -> None:
    """Delete the objects of a DRA driver that are in no namespace.

    A user who may not list them cannot have created them, so that is no error.
    """
    for labels in ownership.belonging(deployment):
        mine = {**labels, OF_NAMESPACE: deployment.namespace}
        _remove_kinds(kubectl, ownership.CLUSTER_KINDS, mine)
        _remove_kinds(kubectl, ownership.OPENSHIFT_KINDS, mine)


def _remove_kinds(kubectl: Kubectl, kinds: Sequence[str], labels: Mapping[str, str]) -> None:
    for each in kubectl.get_known(kinds, ownership.selector(labels)):
        name = ownership.name_of(each)
        say(kubectl.run("delete", name, "--ignore-not-found", DELETE_TIMEOUT))


def remove_namespace(kubectl: Kubectl, deleted: list[Any]) -> None:
    """Delete the namespace if `deploy` created it and it is empty; otherwise print why not."""
    name = kubectl.namespace
    try:
        found = kubectl.get("namespace", name)
        if not found:
            return
        if not ownership.is_ours(found[0]):
            print_line(f"namespace/{name} is left: `kubedevices deploy` did not create it")
            return
        others = ownership.of_others(everything(kubectl), deleted)
    except ClusterRefused as error:
        print_line(f"namespace/{name} is not deleted: its content cannot be seen ({error})")
        return
    if others:
        print_line(f"namespace/{name} is left, because it has other objects: {', '.join(others)}")
        return
    chosen = (f"--selector={ownership.selector({})}", f"--field-selector=metadata.name={name}")
    say(kubectl.run("delete", "namespace", *chosen, DELETE_TIMEOUT))


def everything(kubectl: Kubectl) -> list[Any]:
    """Return every object in the namespace, of every kind that the cluster has."""
    kinds = kubectl.run("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    # These come and go by themselves.
    passing = ("events", "events.events.k8s.io", "pods.metrics.k8s.io")
    return kubectl.get(",".join(kind for kind in kinds if kind not in passing))
