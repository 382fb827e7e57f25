"""The way of a device, from the plugin directory into a container: gathers facts, has them judged.

The one place in this package that knows both. What `kubedevices explain` prints is a `Report`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kubedevices.errors import CannotAsk
from kubedevices.explain import ask
from kubedevices.explain.facts import (
    NO_PERMISSION,
    Allocation,
    Answers,
    DeviceState,
    Directory,
    HostFile,
    Process,
    ResourceState,
    Socket,
    Watched,
)
from kubedevices.explain.finding import Finding, Result, Step, in_order, problem, unknown, worst
from kubedevices.explain.judge_directory import (
    judge_directory,
    judge_kubelet_socket,
    judge_path_length,
    judge_plugin_sockets,
    judge_registry,
)
from kubedevices.explain.judge_files import judge_answers, judge_cdi, judge_host_file, judge_inside
from kubedevices.explain.judge_resource import (
    judge_health,
    judge_held,
    judge_name,
    judge_numa,
    judge_registration,
)
from kubedevices.explain.look_directory import look_at_directory
from kubedevices.explain.look_files import (
    look_at_file,
    look_at_selinux,
    look_inside,
    processes_of_pods,
)
from kubedevices.explain.look_processes import PROC_ROOT, kubelets
from kubedevices.host.cdi_specs import DIRECTORIES, read_registry
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT
from kubedevices.socket_paths import CHECKPOINT_NAME, DEVICE_PLUGIN_DIR

KUBELET_ROOTS = (
    Path("/var/lib/kubelet"),
    Path("/var/lib/k0s/kubelet"),
    Path("/var/lib/rancher/k3s/agent/kubelet"),
    Path("/var/snap/microk8s/common/var/lib/kubelet"),
)
"""Where distributions keep, or kept, what a kubelet keeps in the first of them."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look; every one of them may be somewhere else in a test or a container.

    `pod_resources` and `plugin_registry` are by default those of the kubelet's root directory.
    """

    socket_dir: Path
    state_dir: Path
    pod_resources: Path | None = None
    plugin_registry: Path | None = None
    dev_root: Path = DEV_ROOT
    sysfs_root: Path = SYSFS_ROOT
    proc_root: Path = PROC_ROOT
    cdi_dirs: tuple[Path, ...] = DIRECTORIES
    kubelet_roots: tuple[Path, ...] = KUBELET_ROOTS


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """The findings about one resource, in the order of the way."""

    resource: str
    state: ResourceState | None
    findings: tuple[Finding, ...]

    @property
    def result(self) -> Result:
        """The worst of the findings."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON and YAML; the keys are a promise."""
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
class Report:
    """Everything that was found; `source` names who was asked, empty when nobody answered."""

    socket_dir: Path
    source: str
    findings: tuple[Finding, ...]
    resources: tuple[ResourceReport, ...]

    @property
    def result(self) -> Result:
        """The worst of all findings."""
        return worst([*self.findings, *(each for r in self.resources for each in r.findings)])

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON and YAML; the keys are a promise."""
        return {
            "socket_dir": str(self.socket_dir),
            "source": self.source,
            "result": str(self.result),
            "findings": [each.as_dict() for each in self.findings],
            "resources": [each.as_dict() for each in self.resources],
        }


async def explain(places: Places, resource: str = "", *, ask_plugins: bool = False) -> Report:
    """Look, ask and judge; of all resources, or of one. Raises `CannotAsk`."""
    running = await asyncio.to_thread(kubelets, places.proc_root)
    roots = dict.fromkeys((*places.kubelet_roots, *(each.root_dir for each in running)))
    directory = await asyncio.to_thread(
        look_at_directory,
        places.socket_dir,
        proc_root=places.proc_root,
        elsewhere=[root / "device-plugins" for root in roots],
    )
    own_roots = [*roots] if places.socket_dir == DEVICE_PLUGIN_DIR else []
    answers = await ask.ask(
        places.socket_dir,
        places.state_dir,
        places.pod_resources or _below_root(places, own_roots, "pod-resources/kubelet.sock"),
        places.socket_dir / CHECKPOINT_NAME,
    )
    watched = await ask.ask_registry(
        places.plugin_registry or _below_root(places, own_roots, "plugins_registry")
    )
    if directory.refusal == NO_PERMISSION and not answers.source:
        raise CannotAsk(f"no permission to look into {places.socket_dir}: ask again as root")
    policies = [each.topology_policy for each in running if each.topology_policy]
    if answers.topology_policy is None and answers.is_kubelet and policies:
        answers = replace(answers, topology_policy=policies[0])
    if ask_plugins:
        directory = await _with_plugins_asked(directory)
    findings = [
        *judge_directory(directory, running),
        *judge_kubelet_socket(directory, running),
        *judge_path_length(places.socket_dir),
        *judge_plugin_sockets(directory, answers),
        *judge_registry(watched),
        *_judge_checkpoint(answers),
    ]
    names = [resource] if resource else answers.known
    reports = await asyncio.to_thread(
        _explain_resources, names, places, directory, watched, answers
    )
    return Report(places.socket_dir, answers.source, in_order(findings), reports)


def _below_root(places: Places, roots: Iterable[Path], name: str) -> Path:
    """Return what a kubelet keeps in its root directory, which --root-dir moves.

    The plugin directory alone stays, so its neighbours are not always beside it.
    """
    candidates = [root / name for root in (places.socket_dir.parent, *roots)]
    return next((each for each in candidates if each.exists()), candidates[0])


def _plugins_of(
    resource: str, directory: Directory, watched: Iterable[Watched]
) -> tuple[Socket, ...]:
    """Return the sockets that may be the plugin's of a resource: those of the registry tell."""
    found = [Socket(each.path) for each in watched if each.info and each.info.name == resource]
    return (*directory.plugins, *found)


async def _with_plugins_asked(directory: Directory) -> Directory:
    paths = [each.path for each in directory.plugins if not each.refusal]
    said = await ask.ask_plugins(paths)
    plugins = tuple(replace(each, answer=said.get(each.path)) for each in directory.plugins)
    return replace(directory, plugins=plugins)


def _judge_checkpoint(answers: Answers) -> list[Finding]:
    """A checkpoint that cannot be read hides what containers got."""
    if not answers.checkpoint_problem:
        return []
    if answers.checkpoint is None:
        return [unknown(Step.HELD, "checkpoint", answers.checkpoint_problem, "ask again as root")]
    path = str(answers.checkpoint)
    return [
        problem(
            Step.HELD,
            path,
            f"nobody can read it: {answers.checkpoint_problem}",
            "a kubelet that starts ignores it, and forgets who holds what; see what it says",
            f"kubedevices checkpoint show {path}",
        )
    ]


def _explain_resources(
    names: Iterable[str],
    places: Places,
    directory: Directory,
    watched: Iterable[Watched],
    answers: Answers,
) -> tuple[ResourceReport, ...]:
    """Explain each; blocks, and reads /proc once for all of them."""
    pods = processes_of_pods({each.pod_uid for each in answers.allocations}, places.proc_root)
    return tuple(
        _explain_resource(name, places, _plugins_of(name, directory, watched), answers, pods)
        for name in names
    )


def _explain_resource(
    name: str,
    places: Places,
    plugins: Sequence[Socket],
    answers: Answers,
    pods: Mapping[str, Sequence[Process]],
) -> ResourceReport:
    state = _completed(answers.resources.get(name), plugins, answers.registered, name)
    findings = [judge_name(name), *judge_path_length(places.socket_dir, name)]
    findings += judge_registration(name, answers, plugins)
    if state is not None:
        source = answers.source or str(answers.checkpoint)
        findings += judge_health(state, source)
        findings += judge_held(state, source)
        findings += judge_numa(state, answers.topology_policy)
    if name in answers.known:
        findings += _explain_files(name, places, answers, pods)
    return ResourceReport(name, state, in_order(findings))


def _completed(
    state: ResourceState | None,
    plugins: Iterable[Socket],
    registered: Mapping[str, Sequence[str]],
    name: str,
) -> ResourceState | None:
    """Let a plugin that was asked say what a kubelet does not: unhealthy devices.

    It is the plugin of this resource when it lists one of the devices known of it.
    """
    if state is not None and state.capacity is not None:
        return state
    known = {each.device_id: each for each in state.devices} if state else {}
    ids = {*known, *registered.get(name, ())}
    for plugin in plugins:
        listed = (plugin.answer.devices if plugin.answer else None) or ()
        if not ids & {each.id for each in listed}:
            continue
        devices = tuple(
            replace(
                known.get(each.id) or DeviceState(each.id, each.health),
                health=each.health,
                numa_nodes=each.numa_nodes or (),
            )
            for each in listed
        )
        healthy = sum(each.health == "Healthy" for each in devices)
        return ResourceState(name, devices, len(devices), healthy, None, plugin.path.name)
    return state


def _explain_files(
    name: str, places: Places, answers: Answers, pods: Mapping[str, Sequence[Process]]
) -> list[Finding]:
    allocations = [each for each in answers.allocations if each.resource == name]
    checkpoint = str(answers.checkpoint or places.socket_dir / CHECKPOINT_NAME)
    findings = judge_answers(allocations, checkpoint)
    selinux = look_at_selinux(places.sysfs_root)
    files: dict[str, HostFile] = {}
    for spec in (spec for each in allocations for spec in each.response.devices):
        if spec.host_path not in files:
            file = look_at_file(spec.host_path, dev_root=places.dev_root)
            files[spec.host_path] = file
            findings += judge_host_file(file, selinux)
    names = [name for each in allocations for name in each.response.cdi_devices]
    if names:
        findings += judge_cdi(names, read_registry(places.cdi_dirs))
    if not pods and not answers.is_kubelet:
        return findings  # whoever asks a node of ours for devices starts the container
    return findings + _explain_containers(allocations, pods, places, files)


def _explain_containers(
    allocations: Sequence[Allocation],
    pods: Mapping[str, Sequence[Process]],
    places: Places,
    files: Mapping[str, HostFile],
) -> list[Finding]:
    findings = []
    for allocation in allocations:
        mine = pods.get(allocation.pod_uid)
        paths = [each.container_path or each.host_path for each in allocation.response.devices]
        seen = (
            look_inside(mine, paths, proc_root=places.proc_root, sysfs_root=places.sysfs_root)
            if mine
            else None
        )
        findings += judge_inside(allocation, seen, files)
    return findings
