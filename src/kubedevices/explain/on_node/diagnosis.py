"""Follows a device from the plugin directory into a container: gathers facts, has them judged.

Only this module of the package imports both `look_…` and `judge_…`. `kubedevices explain` prints a
`Diagnosis`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubedevices.errors.words import closest
from kubedevices.explain.finding import Finding, Outcome, Step, in_order, worst
from kubedevices.explain.on_node.driver_facts import DriverFacts
from kubedevices.explain.on_node.facts import (
    Directory,
    FileFacts,
    RegistrySocket,
    ResourceFacts,
    ResourceState,
    Socket,
)
from kubedevices.explain.on_node.host_paths import HostPaths
from kubedevices.explain.on_node.join_claims import driver_of_socket
from kubedevices.explain.on_node.judge_directory import (
    judge_directory,
    judge_kubelet_socket,
    judge_path_length,
    judge_plugin_sockets,
    judge_registry,
)
from kubedevices.explain.on_node.judge_drivers import judge_drivers, judge_served
from kubedevices.explain.on_node.judge_files import (
    judge_answers,
    judge_cdi,
    judge_host_file,
    judge_inside,
)
from kubedevices.explain.on_node.judge_holders import judge_both_apis, judge_holders
from kubedevices.explain.on_node.judge_proxy import cordoned_of, judge_behind, judge_proxy
from kubedevices.explain.on_node.judge_resource import (
    judge_cordoned,
    judge_health,
    judge_held,
    judge_name,
    judge_numa,
    judge_registration,
)
from kubedevices.explain.on_node.judge_rivals import completed, held_now, judge_rivals
from kubedevices.explain.on_node.look_files import look_at_file, look_at_selinux, look_inside
from kubedevices.explain.on_node.look_node import NodeFacts, look_at_node
from kubedevices.values.socket_paths import CHECKPOINT_NAME, is_socket_of


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """The findings about one resource, in the order of the stations; numbers None if unknown."""

    resource: str
    findings: tuple[Finding, ...]
    capacity: int | None = None
    allocatable: int | None = None
    held: int | None = None

    @classmethod
    def of(
        cls, resource: str, state: ResourceState | None, findings: Iterable[Finding]
    ) -> "ResourceReport":
        """Return the report about a resource in this state."""
        ordered = in_order(findings)
        if state is None:
            return cls(resource, ordered)
        held = sum(bool(each.held_by) for each in state.devices)
        return cls(resource, ordered, state.capacity, state.allocatable, held)

    @property
    def result(self) -> Outcome:
        """The worst of the findings."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON and YAML; the keys are public."""
        return {
            "resource": self.resource,
            "result": str(self.result),
            "capacity": self.capacity,
            "allocatable": self.allocatable,
            "held": self.held,
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

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Diagnosis":
        """Return the diagnosis of which `as_dict` was `found`; raises `ValueError`."""
        return cls(
            Path(found["socket_dir"]),
            found["source"],
            tuple(map(Finding.from_dict, found["findings"])),
            tuple(
                ResourceReport(
                    each["resource"],
                    tuple(map(Finding.from_dict, each["findings"])),
                    each.get("capacity"),
                    each.get("allocatable"),
                    each.get("held"),
                )
                for each in found["resources"]
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis for JSON and YAML; the keys are public."""
        return {
            "socket_dir": str(self.socket_dir),
            "source": self.source,
            "result": str(self.result),
            "findings": [each.as_dict() for each in self.findings],
            "resources": [each.as_dict() for each in self.resources],
        }


async def explain(places: HostPaths, subject: str = "", *, ask_plugins: bool = False) -> Diagnosis:
    """Look, ask and judge, for all of a node, or for one resource or driver. Raises `CannotAsk`."""
    facts = await look_at_node(places, subject, ask_plugins=ask_plugins)
    return await asyncio.to_thread(judge, facts, subject)


def is_driver(subject: str, facts: NodeFacts) -> bool:
    """Whether a subject is a driver, not a resource, whose name needs a slash."""
    return "/" not in subject and (subject in facts.dra.by_name or "." in subject)


def judge(facts: NodeFacts, subject: str = "") -> Diagnosis:
    """Judge the facts about a node. Blocking: looks at device files."""
    directory, answers = facts.directory, facts.answers
    named = {each.path for driver in facts.dra.drivers for each in driver.dead}
    unnamed = [each for each in facts.watched if each.path not in named]
    if subject and is_driver(subject, facts):
        findings = [
            *judge_kubelet_socket(directory, facts.running, answers),
            *judge_registry(
                each for each in unnamed if subject == driver_of_socket(each.path.name)
            ),
            *judge_drivers(facts.dra, subject),
        ]
        return Diagnosis(facts.places.socket_dir, answers.source, in_order(findings), ())
    domain = subject.partition("/")[0]
    findings = [
        *judge_directory(directory, facts.running),
        *judge_kubelet_socket(directory, facts.running, answers),
        *judge_path_length(facts.places.socket_dir),
        *judge_plugin_sockets(directory, answers),
        *judge_rivals(directory.plugins, answers),
        *judge_registry(unnamed),
        *_judge_checkpoint(answers, facts),
        *(() if subject else judge_behind(answers.proxied, answers.known)),
        *(judge_drivers(facts.dra, domain) if domain in ("", *facts.dra.by_name) else ()),
    ]
    wanted = [subject] if subject else answers.known
    reports = tuple(_explain_resource(each, facts) for each in wanted)
    return Diagnosis(facts.places.socket_dir, answers.source, in_order(findings), reports)


def _plugins_of(
    resource: str, directory: Directory, watched: Iterable[RegistrySocket]
) -> tuple[Socket, ...]:
    """Return the sockets that may serve a resource.

    Sockets in the plugin registry directory name their resource; those in the plugin directory do
    not, so all of them may serve it.
    """
    found = [Socket(each.path) for each in watched if each.info and each.info.name == resource]
    return (*directory.plugins, *found)


def _judge_checkpoint(answers: ResourceFacts, facts: NodeFacts) -> list[Finding]:
    """Return a finding if the checkpoint cannot be read: then allocations are not known."""
    if not answers.checkpoint_problem:
        drivers = facts.dra.drivers
        return [
            *judge_holders(answers.allocations, answers.device_files, facts.names, drivers),
            *judge_both_apis(answers.resources.values(), answers.allocations, drivers),
        ]
    if answers.checkpoint is None:
        advice = "run this again as root"
        return [Step.HELD.unknown("checkpoint", answers.checkpoint_problem, advice)]
    path = str(answers.checkpoint)
    return [
        Step.HELD.problem(
            path,
            f"it cannot be read: {answers.checkpoint_problem}",
            "a kubelet ignores it at its next start and forgets all allocations; see its content",
            f"kubedevices checkpoint show {path}",
        )
    ]


def _serving_driver(name: str, seen: NodeFacts) -> DriverFacts | None:
    """Return the driver that has the devices of a resource instead of a device plugin.

    A resource that the kubelet knows may have lost its plugin, so only a driver of kubedevices
    counts then: it has the devices if its own process is the plugin that lists none, or if no
    plugin of the resource has left a socket.
    """
    answers = seen.answers
    driver = next((each for each in seen.dra.drivers if each.runs and each.serves(name)), None)
    if driver is None or name not in answers.known:
        return driver if not closest(name, answers.known) else None
    state = answers.resources.get(name)
    if driver.files is None or f"{driver.name}/" not in name or (state and state.allocatable):
        return None
    processes = (each.socket.listener for each in driver.instances if each.socket)
    pids = {each.pid for each in processes if each}
    plugins = [each for each in seen.directory.plugins if is_socket_of(each.path.name, name)]
    return driver if all(each.listener and each.listener.pid in pids for each in plugins) else None


def _explain_resource(name: str, seen: NodeFacts) -> ResourceReport:
    """Explain one resource. Blocking file access."""
    answers = seen.answers
    plugins = _plugins_of(name, seen.directory, seen.watched)
    state = completed(name, plugins, answers)
    findings = [judge_name(name), *judge_path_length(seen.places.socket_dir, name)]
    findings += judge_proxy(name, answers.proxied)
    cordoned = cordoned_of(name, answers.proxied, seen.cordoned)
    findings += judge_cordoned(cordoned, state)
    if driver := _serving_driver(name, seen):
        findings += judge_served(driver, state)
    else:
        findings += judge_registration(name, answers, plugins, state)
    if state is not None and not driver:
        source = answers.source or str(answers.checkpoint)
        was_asked = any(each.answer for each in plugins)
        reasons = {
            out.id: out.reason
            for each in answers.proxied
            for out in each.reasons
            if out.resource == state.name
        }
        findings += judge_health(
            state, source, was_asked=was_asked, cordoned=cordoned, reasons=reasons
        )
        findings += judge_held(state, source)
        findings += judge_numa(state, answers.topology_policy)
    if name in answers.known:
        findings += _explain_files(name, seen)
    return ResourceReport.of(name, state, findings)


def _explain_files(name: str, seen: NodeFacts) -> list[Finding]:
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
        findings += judge_cdi(names, seen.cdi)
    if not seen.pods and not answers.is_kubelet:
        return findings  # the caller of a kubedevices node starts the container, maybe elsewhere
    for each in allocations:
        mine = seen.pods.get(each.pod_uid, ())
        paths = [spec.container_path or spec.host_path for spec in each.response.devices]
        inside = look_inside(mine, paths, proc_root=places.proc_root, sysfs_root=places.sysfs_root)
        findings += judge_inside(each, inside, files)
    return findings
