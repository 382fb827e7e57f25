"""Gathers all facts about a node: looks at its files and processes, and asks. asyncio."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kubedevices.errors import CannotRead, NotPermitted
from kubedevices.explain.on_node import ask
from kubedevices.explain.on_node.driver_facts import DraFacts, KubeletClaims
from kubedevices.explain.on_node.facts import (
    NO_PERMISSION,
    Directory,
    HeldClaim,
    Kubelet,
    ProcessFacts,
    RegistrySocket,
    ResourceFacts,
)
from kubedevices.explain.on_node.host_paths import HostPaths, below_kubelet_root
from kubedevices.explain.on_node.join_claims import ClaimSources, drivers_of
from kubedevices.explain.on_node.look_claims import STATE_FILE, look_at_claims
from kubedevices.explain.on_node.look_directory import look_at_directory, look_at_registry
from kubedevices.explain.on_node.look_drivers import claim_file_name, claim_files, look_at_drivers
from kubedevices.explain.on_node.look_files import processes_of_pods
from kubedevices.explain.on_node.look_processes import kubelets, pod_names
from kubedevices.explain.on_node.look_socket_owners import OpenSockets, open_sockets
from kubedevices.host import listing
from kubedevices.host.cdi_specs import read_registry
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.cordon_file import read_cordoned
from kubedevices.values.cdi import CdiRegistry
from kubedevices.values.proxied_plugin import DeviceReason
from kubedevices.values.socket_paths import CHECKPOINT_NAME, DEVICE_PLUGIN_DIR, POD_RESOURCES

_REGISTRY = "plugins_registry"
_UNITS = Path("/etc/systemd/system")
_UNIT = re.compile(r"kubedevices-[A-Za-z0-9._@-]+\.service")


@dataclass(frozen=True)
class NodeFacts:
    """All facts about a node.

    By the uid of a pod, `pods` has the processes of pods with devices and `names` the names of all
    pods. `units` are the systemd units of kubedevices. `kubelet_roots` are the root directories in
    which drivers were looked for.
    """

    places: HostPaths
    running: Sequence[Kubelet]
    directory: Directory
    watched: tuple[RegistrySocket, ...]
    answers: ResourceFacts
    dra: DraFacts
    cordoned: tuple[DeviceReason, ...]
    units: tuple[str, ...]
    pods: Mapping[str, Sequence[ProcessFacts]]
    names: Mapping[str, str]
    pod_resources: Path
    kubelet_roots: tuple[Path, ...]

    @cached_property
    def cdi(self) -> CdiRegistry:
        """The CDI files; blocks at the first use."""
        return read_registry(self.places.cdi_dirs)


async def look_at_node(
    places: HostPaths, wanted: str = "", *, ask_plugins: bool = False
) -> NodeFacts:
    """Look and ask; `wanted` is a driver that must be in the result. Raises `CannotAsk`."""
    host = await asyncio.to_thread(_look_at_host, places)
    directory, names = host.directory, host.names
    pod_resources = places.pod_resources or host.find(POD_RESOURCES)
    answers = await ask.ask(
        places.socket_dir,
        places.state_dir,
        pod_resources,
        places.socket_dir / CHECKPOINT_NAME,
        places.proxy_state_dir,
    )
    registry = places.plugin_registry or host.find(_REGISTRY)
    watched = await ask.ask_registry(registry)
    others = await asyncio.gather(*map(ask.ask_registry, host.other_registries(registry)))
    if directory.refusal == NO_PERMISSION and not answers.source:
        raise NotPermitted(f"look into {places.socket_dir}")
    if answers.topology_policy is None and answers.is_kubelet:
        answers = replace(answers, topology_policy=policy_of(directory, host.running))
    if ask_plugins:
        directory = await _with_plugins_asked(directory)
    held = await ask.ask_held_claims(answers, pod_resources)
    if watched is not None:
        watched = await asyncio.to_thread(
            look_at_registry, watched, host.opened, names, places.on_host
        )
    dra = await asyncio.to_thread(_DraLook(host, watched, held, wanted).facts)
    astray = tuple(each for found in others for each in found or () if each.is_driver)
    dra = replace(dra, astray=astray, registry=registry)
    uids = {each.pod_uid for each in answers.allocations}
    pods = await asyncio.to_thread(processes_of_pods, uids, places.proc_root, names)
    return NodeFacts(
        places,
        host.running,
        directory,
        watched or (),
        answers,
        dra,
        await asyncio.to_thread(_cordoned, places.state_dir),
        await asyncio.to_thread(_units, places.on_host(_UNITS)),
        pods,
        names,
        pod_resources,
        host.kubelet_roots,
    )


@dataclass(frozen=True)
class _Host:
    """What is known before anybody is asked.

    A kubelet with another --root-dir still has its plugin directory at the usual path, so then its
    other directories are looked for below `roots`.
    """

    places: HostPaths
    running: Sequence[Kubelet]
    roots: tuple[Path, ...]
    names: Mapping[str, str]
    opened: OpenSockets
    directory: Directory

    @property
    def kubelet_roots(self) -> tuple[Path, ...]:
        is_usual = self.places.socket_dir == self.places.on_host(DEVICE_PLUGIN_DIR)
        return (self.places.socket_dir.parent, *(self.roots if is_usual else ()))

    @property
    def known_root(self) -> Path | None:
        """The root directory of the kubelet that serves the directory; None if it is not seen."""
        is_known = len(self.kubelet_roots) > 1 and len(self.running) == 1
        return self.places.on_host(self.running[0].root_dir) if is_known else None

    def find(self, name: str) -> Path:
        """Return the path of a file in the kubelet's root directory."""
        if self.known_root is not None and (self.known_root / name).exists():
            return self.known_root / name
        return below_kubelet_root(self.places.socket_dir, self.kubelet_roots, name)

    def other_registries(self, registry: Path) -> list[Path]:
        """Return the registries of other roots, in which this kubelet finds no driver."""
        if self.known_root is None or registry.parent != self.known_root:
            return []
        found = [root / _REGISTRY for root in self.kubelet_roots]
        return [each for each in found if each.is_dir() and not each.samefile(registry)]


def _look_at_host(places: HostPaths) -> _Host:
    running = kubelets(places.proc_root, places.host_root)
    ways = (*places.kubelet_roots, *(places.on_host(each.root_dir) for each in running))
    roots = tuple(dict.fromkeys(ways))
    names = pod_names(places.pod_logs)
    opened = open_sockets(places.proc_root)  # before we connect anywhere
    directory = look_at_directory(
        places.socket_dir,
        proc_root=places.proc_root,
        elsewhere=[root / DEVICE_PLUGIN_DIR.name for root in roots],
        pods=names,
        opened=opened,
    )
    return _Host(places, running, roots, names, opened, directory)


@dataclass(frozen=True)
class _DraLook:
    """Reads the files of drivers and of the kubelet. Blocking."""

    host: _Host
    watched: tuple[RegistrySocket, ...] | None
    held: tuple[HeldClaim, ...] | None
    wanted: str

    def facts(self) -> DraFacts:
        places = self.host.places
        # Before the checkpoints: a driver writes its checkpoint first, then the CDI file.
        written = claim_files(places.cdi_dirs)
        state_file = self.host.find(STATE_FILE)
        before = look_at_claims(state_file, proc_root=places.proc_root).claims or ()
        files = look_at_drivers(self.host.kubelet_roots, places.cdi_dirs)
        kubelet = look_at_claims(state_file, proc_root=places.proc_root)
        sources = ClaimSources(
            files,
            self.watched,
            kubelet,
            self.held,
            self._why_unresolved,
            frozenset(each.reference.uid for each in before),
        )
        drivers = drivers_of(sources, self.wanted)
        known = {claim_file_name(each.name, claim.uid) for each in files for claim in each.claims}
        unknown = {each.name for each in files if each.problem}
        leftover = tuple(
            each
            for each in written
            if each.path.name not in known | self._known_to(kubelet, each.driver)
            and each.driver not in unknown
            and each.path.exists()  # its claim may have been unprepared meanwhile
        )
        return DraFacts(drivers, kubelet, leftover)

    def _known_to(self, kubelet: KubeletClaims, driver: str) -> set[str]:
        uids = {each.reference.uid for each in kubelet.claims or ()}
        return {claim_file_name(driver, uid) for uid in uids}

    @cached_property
    def _registry(self) -> CdiRegistry:
        return read_registry(self.host.places.cdi_dirs)

    def _why_unresolved(self, name: str) -> str:
        explained = self._registry.explain(name)
        return "" if explained.resolves else explained.reason


def _cordoned(state_dir: Path) -> tuple[DeviceReason, ...]:
    """Return the cordoned devices; none if the list cannot be read."""
    try:
        found = read_cordoned(state_dir / FILE_NAME)
    except CannotRead:
        return ()
    return tuple(DeviceReason(each.resource, each.id, each.reason) for each in found)


def _units(directory: Path) -> tuple[str, ...]:
    try:
        return tuple(listing.names(directory, _UNIT.fullmatch))
    except OSError:
        return ()


def policy_of(directory: Directory, running: Sequence[Kubelet]) -> str | None:
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


async def _with_plugins_asked(directory: Directory) -> Directory:
    paths = [each.path for each in directory.plugins if not each.refusal]
    said = await ask.ask_plugins(paths)
    plugins = tuple(replace(each, answer=said.get(each.path)) for each in directory.plugins)
    return replace(directory, plugins=plugins)
