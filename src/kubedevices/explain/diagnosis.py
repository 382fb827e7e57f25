"""Follows a device from the plugin directory into a container: gathers facts, has them judged.

Only this module of the package imports both `look_…` and `judge_…`. `kubedevices explain` prints a
`Diagnosis`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kubedevices.errors import NotPermitted
from kubedevices.explain import ask
from kubedevices.explain.facts import (
    NO_PERMISSION,
    Directory,
    FileFacts,
    Kubelet,
    ProcessFacts,
    RegistrySocket,
    ResourceFacts,
    ResourceState,
    Socket,
)
from kubedevices.explain.finding import Finding, Outcome, Step, in_order, problem, unknown, worst
from kubedevices.explain.host_paths import HostPaths, below_kubelet_root
from kubedevices.explain.judge_claims import judge_claims, judge_foreign_claims
from kubedevices.explain.judge_directory import (
    judge_directory,
    judge_kubelet_socket,
    judge_path_length,
    judge_plugin_sockets,
    judge_registry,
)
from kubedevices.explain.judge_files import judge_answers, judge_cdi, judge_host_file, judge_inside
from kubedevices.explain.judge_holders import judge_holders
from kubedevices.explain.judge_proxy import cordoned_of, judge_behind, judge_proxy
from kubedevices.explain.judge_resource import (
    judge_health,
    judge_held,
    judge_name,
    judge_numa,
    judge_registration,
)
from kubedevices.explain.look_directory import look_at_directory
from kubedevices.explain.look_drivers import look_at_drivers
from kubedevices.explain.look_files import (
    look_at_file,
    look_at_selinux,
    look_inside,
    processes_of_pods,
)
from kubedevices.explain.look_processes import kubelets, pod_names
from kubedevices.explain.plugin_lists import completed, held_now, judge_rivals
from kubedevices.host.cdi_specs import read_registry
from kubedevices.values.socket_paths import CHECKPOINT_NAME, DEVICE_PLUGIN_DIR, POD_RESOURCES


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """The findings about one resource, in the order of the stations."""

    resource: str
    state: ResourceState | None
    findings: tuple[Finding, ...]

    @property
    def result(self) -> Outcome:
        """The worst of the findings."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON and YAML; the keys are public."""
        state = self.state
        held = None if state is None else sum(bool(each.held_by) for each in state.devices)
        return {
            "resource": self.resource,
            "result": str(self.result),
            "capacity": state.capacity if state else None,
            "allocatable": state.allocatable if state else None,
            "held": held,
            "findings": [each.as_dict() for each in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings; `source` names the node or kubelet that answered, empty if none answered."""

    socket_dir: Path
    source: str
    findings: tuple[Finding, ...]
    resources: tuple[ResourceReport, ...]

    @property
    def result(self) -> Outcome:
        """The worst of all findings."""
        return worst([*self.findings, *(each for r in self.resources for each in r.findings)])

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis for JSON and YAML; the keys are public."""
        return {
            "socket_dir": str(self.socket_dir),
            "source": self.source,
            "result": str(self.result),
            "findings": [each.as_dict() for each in self.findings],
            "resources": [each.as_dict() for each in self.resources],
        }


async def explain(places: HostPaths, resource: str = "", *, ask_plugins: bool = False) -> Diagnosis:
    """Look, ask and judge, for all resources or for one. Raises `CannotAsk`."""
    running = await asyncio.to_thread(kubelets, places.proc_root, places.host_root)
    roots = dict.fromkeys(
        (*places.kubelet_roots, *(places.on_host(each.root_dir) for each in running))
    )
    names = await asyncio.to_thread(pod_names, places.pod_logs)
    directory = await asyncio.to_thread(
        look_at_directory,
        places.socket_dir,
        proc_root=places.proc_root,
        elsewhere=[root / DEVICE_PLUGIN_DIR.name for root in roots],
        pods=names,
    )
    # A kubelet with another --root-dir still has its plugin directory at the usual path.
    own_roots = [*roots] if places.socket_dir == places.on_host(DEVICE_PLUGIN_DIR) else []
    pod_resources = places.pod_resources or below_kubelet_root(
        places.socket_dir, own_roots, POD_RESOURCES
    )
    answers = await ask.ask(
        places.socket_dir,
        places.state_dir,
        pod_resources,
        places.socket_dir / CHECKPOINT_NAME,
        places.proxy_state_dir,
    )
    watched = await ask.ask_registry(
        places.plugin_registry
        or below_kubelet_root(places.socket_dir, own_roots, "plugins_registry")
    )
    if directory.refusal == NO_PERMISSION and not answers.source:
        raise NotPermitted(f"look into {places.socket_dir}")
    if answers.topology_policy is None and answers.is_kubelet:
        answers = replace(answers, topology_policy=_policy(directory, running))
    if ask_plugins:
        directory = await _with_plugins_asked(directory)
    driver_roots = (places.socket_dir.parent, *own_roots)
    drivers = await asyncio.to_thread(look_at_drivers, driver_roots, places.cdi_dirs)
    drivers = await ask.ask_use(drivers, pod_resources)
    findings = [
        *judge_directory(directory, running),
        *judge_kubelet_socket(directory, running, answers),
        *judge_path_length(places.socket_dir),
        *judge_plugin_sockets(directory, answers),
        *judge_rivals(directory.plugins, answers),
        *judge_registry(watched),
        *_judge_checkpoint(answers, names),
        *(() if resource else judge_behind(answers.proxied, answers.known)),
        *judge_claims(drivers, resource.partition("/")[0]),
        *judge_foreign_claims(answers.claims, drivers, resource.partition("/")[0]),
    ]
    wanted = [resource] if resource else answers.known
    pods = await asyncio.to_thread(
        processes_of_pods, {each.pod_uid for each in answers.allocations}, places.proc_root, names
    )
    seen = _HostFacts(places, directory, watched, answers, pods, names)
    reports = await asyncio.to_thread(
        lambda: tuple(_explain_resource(each, seen) for each in wanted)
    )
    return Diagnosis(places.socket_dir, answers.source, in_order(findings), reports)


def _policy(directory: Directory, running: Sequence[Kubelet]) -> str | None:
    """Return the topology policy of the kubelet that serves the directory.

    Other kubelets may run in containers of this host.
    """
    listener = directory.kubelet.listener if directory.kubelet else None
    policies = [
        each.topology_policy
        for each in running
        if len(running) == 1 or (listener is not None and each.process.pid == listener.pid)
    ]
    return policies[0] if policies else None


def _plugins_of(
    resource: str, directory: Directory, watched: Iterable[RegistrySocket]
) -> tuple[Socket, ...]:
    """Return the sockets that may serve a resource.

    Sockets in the plugin registry directory name their resource; those in the plugin directory do
    not, so all of them may serve it.
    """
    found = [Socket(each.path) for each in watched if each.info and each.info.name == resource]
    return (*directory.plugins, *found)


async def _with_plugins_asked(directory: Directory) -> Directory:
    paths = [each.path for each in directory.plugins if not each.refusal]
    said = await ask.ask_plugins(paths)
    plugins = tuple(replace(each, answer=said.get(each.path)) for each in directory.plugins)
    return replace(directory, plugins=plugins)


def _judge_checkpoint(answers: ResourceFacts, pods: Mapping[str, str]) -> list[Finding]:
    """Return a finding if the checkpoint cannot be read: then allocations are not known."""
    if not answers.checkpoint_problem:
        return [*judge_holders(answers.allocations, answers.device_files, pods)]
    if answers.checkpoint is None:
        advice = "run this again as root"
        return [unknown(Step.HELD, "checkpoint", answers.checkpoint_problem, advice)]
    path = str(answers.checkpoint)
    return [
        problem(
            Step.HELD,
            path,
            f"it cannot be read: {answers.checkpoint_problem}",
            "a kubelet ignores it at its next start and forgets all allocations; see its content",
            f"kubedevices checkpoint show {path}",
        )
    ]


@dataclass(frozen=True, slots=True)
class _HostFacts:
    """The facts that all resources share.

    By the uid of a pod, `pods` has the processes of pods with devices and `names` the names of all
    pods.
    """

    places: HostPaths
    directory: Directory
    watched: tuple[RegistrySocket, ...]
    answers: ResourceFacts
    pods: Mapping[str, Sequence[ProcessFacts]]
    names: Mapping[str, str]


def _explain_resource(name: str, seen: _HostFacts) -> ResourceReport:
    """Explain one resource. Blocking file access."""
    answers = seen.answers
    plugins = _plugins_of(name, seen.directory, seen.watched)
    state = completed(name, plugins, answers)
    findings = [judge_name(name), *judge_path_length(seen.places.socket_dir, name)]
    findings += judge_proxy(name, answers.proxied)
    findings += judge_registration(name, answers, plugins, state)
    if state is not None:
        source = answers.source or str(answers.checkpoint)
        was_asked = any(each.answer for each in plugins)
        cordoned = cordoned_of(name, answers.proxied)
        findings += judge_health(state, source, was_asked=was_asked, cordoned=cordoned)
        findings += judge_held(state, source)
        findings += judge_numa(state, answers.topology_policy)
    if name in answers.known:
        findings += _explain_files(name, seen)
    return ResourceReport(name, state, in_order(findings))


def _explain_files(name: str, seen: _HostFacts) -> list[Finding]:
    places, answers = seen.places, seen.answers
    allocations = held_now(name, answers, seen.names)
    checkpoint = str(answers.checkpoint or places.socket_dir / CHECKPOINT_NAME)
    findings = judge_answers(allocations, checkpoint)
    selinux = look_at_selinux(places.sysfs_root)
    files: dict[str, FileFacts] = {}
    for spec in (spec for each in allocations for spec in each.response.devices):
        if spec.host_path not in files:
            file = look_at_file(spec.host_path, dev_root=places.dev_root)
            files[spec.host_path] = file
            findings += judge_host_file(file, selinux)
    names = [name for each in allocations for name in each.response.cdi_devices]
    if names:
        findings += judge_cdi(names, read_registry(places.cdi_dirs))
    if not seen.pods and not answers.is_kubelet:
        return findings  # the caller of a kubedevices node starts the container, maybe elsewhere
    for each in allocations:
        mine = seen.pods.get(each.pod_uid, ())
        paths = [spec.container_path or spec.host_path for spec in each.response.devices]
        inside = look_inside(mine, paths, proc_root=places.proc_root, sysfs_root=places.sysfs_root)
        findings += judge_inside(each, inside, files)
    return findings
