"""A pod as the node sees it: its containers in start order, and the devices that each requests.

`parse_pod` makes the pod of a Kubernetes manifest and ignores all fields that do not concern
devices. The caller reads the YAML or JSON.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.errors.words import closest
from kubedevices.node.pods.quantity import BadQuantity, whole_units
from kubedevices.values.resource_name import explain_resource_name

Path = tuple[str | int, ...]
"""A place in a manifest: `("spec", "containers", 0, "name")`."""

Locate = Callable[[Path], tuple[int, int]]
"""Returns the line and column of a place in the manifest, (0, 0) if they are not known."""

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
_NATIVE_PREFIX = "hugepages-"
_NATIVE_DOMAIN = "kubernetes.io/"

_RESOURCE_KEYS = ("limits", "requests", "claims")


class Container(NamedTuple):
    """A container and its limits: number of devices by resource.

    `is_sidecar`: an init container with `restartPolicy: Always`, which runs beside the containers
    that follow.
    """

    name: str
    limits: Mapping[str, int] = MappingProxyType({})
    is_sidecar: bool = False


@dataclass(frozen=True)
class Pod:
    """A pod. Its `uid` is unique; `namespace` and `name` are unique only among existing pods."""

    name: str
    namespace: str = "default"
    uid: str = ""
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()

    def __post_init__(self) -> None:
        """Set a missing uid, for a manifest written by hand: always the same for the same name."""
        object.__setattr__(self, "uid", self.uid or f"{self.namespace}/{self.name}")
        object.__setattr__(self, "init_containers", tuple(self.init_containers))
        object.__setattr__(self, "containers", tuple(self.containers))

    def __iter__(self) -> Iterator[Container]:
        """Iterate over the containers in the order in which they get their devices."""
        yield from self.init_containers
        yield from self.containers

    @property
    def full_name(self) -> str:
        """`namespace/name`; the uid if the name is unknown, as after an import of a checkpoint."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid

    def is_plain_init(self, container: Container) -> bool:
        """Whether `container` is an init container that ends before the next container starts."""
        return not container.is_sidecar and any(
            container.name == init.name for init in self.init_containers
        )


def pod_device_request(pod: Pod, is_known: Callable[[str], bool]) -> dict[str, int]:
    """Return the largest number of devices that the pod needs at one time, per known resource.

    App containers and sidecars run together. An init container runs beside the sidecars before it.
    """
    together: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.containers:
        _add(together, container.limits)
    for container in pod.init_containers:
        step = dict(sidecars)
        _add(step, container.limits)
        if container.is_sidecar:
            sidecars = step
            _add(together, container.limits)
        for resource, count in step.items():
            peak[resource] = max(peak.get(resource, 0), count)
    for resource, count in together.items():
        peak[resource] = max(peak.get(resource, 0), count)
    return {resource: count for resource, count in peak.items() if is_known(resource) and count}


def _add(total: dict[str, int], limits: Mapping[str, int]) -> None:
    for resource, count in limits.items():
        total[resource] = total.get(resource, 0) + count


# ---------------------------------------------------------------- manifests


def parse_pod(manifest: Any, *, source: str = "pod", locate: Locate | None = None) -> Pod:
    """Return the pod of a manifest; raises `ConfigError` with all mistakes.

    Messages name the file `source`; `locate` returns the line of a key.
    """
    reader = _ManifestReader(source, locate or (lambda _: (0, 0)))
    pod = reader.pod(manifest)
    if reader.problems:
        raise ConfigError(reader.problems)
    return pod


def format_pod(pod: Pod) -> dict[str, Any]:
    """Return the smallest manifest for which `parse_pod` returns `pod`."""

    def one(container: Container, *, init: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"name": container.name}
        if init and container.is_sidecar:
            made["restartPolicy"] = "Always"
        if container.limits:
            made["resources"] = {"limits": {name: str(n) for name, n in container.limits.items()}}
        return made

    spec: dict[str, Any] = {"containers": [one(c, init=False) for c in pod.containers]}
    if pod.init_containers:
        spec["initContainers"] = [one(c, init=True) for c in pod.init_containers]
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class _ManifestReader:
    """Reads a manifest and collects all mistakes."""

    def __init__(self, source: str, locate: Locate) -> None:
        self._source, self._locate = source, locate
        self.problems: list[ConfigProblem] = []

    def wrong(self, path: Path, problem: str, suggestion: str = "") -> None:
        line, column = self._locate(path)
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        self.problems.append(
            ConfigProblem(self._source, line, column, key.lstrip("."), problem, suggestion)
        )

    def misspelt(
        self, parent: Mapping[Any, Any], path: Path, ours: tuple[str, ...], *, only: bool = False
    ) -> None:
        """Report keys that look like a key of `ours`, and with `only` all keys not in `ours`."""
        for key in parent:
            if key in ours:
                continue
            meant = closest(str(key), ours, alike=0.8)  # a pod has many keys that we ignore
            if meant or only:
                hint = f"did you mean {meant!r}?" if meant else ""
                self.wrong((*path, str(key)), "unknown key", hint)

    def mapping(self, parent: Mapping[Any, Any], path: Path) -> Mapping[Any, Any]:
        """Return the mapping with the last key of `path` in `parent`; empty if it is missing."""
        value = parent.get(path[-1])
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(path, f"must be a mapping, not {_kind(value)}")
            return {}
        return value

    def text(self, parent: Mapping[Any, Any], path: Path) -> str:
        value = parent.get(path[-1])
        if value is None or isinstance(value, str):
            return value or ""
        self.wrong(path, f"must be text, not {_kind(value)}", f'write "{value}"')
        return ""

    def pod(self, manifest: Any) -> Pod:
        if not isinstance(manifest, Mapping):
            self.wrong((), f"a pod manifest must be a mapping, not {_kind(manifest)}")
            return Pod("")
        if manifest.get("kind", "Pod") != "Pod":
            self.wrong(("kind",), f"must be Pod, not {manifest['kind']!r}")
        if manifest.get("apiVersion", "v1") != "v1":
            self.wrong(("apiVersion",), f"must be v1, not {manifest['apiVersion']!r}")
        metadata = self.mapping(manifest, ("metadata",))
        name = self.text(metadata, ("metadata", "name"))
        if not name and not self.problems:
            self.wrong(("metadata", "name"), "is missing")
        spec = self.mapping(manifest, ("spec",))
        self.misspelt(spec, ("spec",), ("containers", "initContainers"))
        self.refuse_devices_of_the_pod(spec)
        names: set[str] = set()
        init = self.containers(spec, ("spec", "initContainers"), names)
        app = self.containers(spec, ("spec", "containers"), names)
        if not app and not self.problems:
            self.wrong(("spec", "containers"), "needs at least one container")
        return Pod(
            name,
            self.text(metadata, ("metadata", "namespace")) or "default",
            self.text(metadata, ("metadata", "uid")),
            init,
            app,
        )

    def refuse_devices_of_the_pod(self, spec: Mapping[Any, Any]) -> None:
        """Report devices that no container would get: an admitted pod without them helps nobody.

        KEP-2837: the resources of a whole pod are CPU and memory only. Claims are for DRA.
        """
        resources = self.mapping(spec, ("spec", "resources"))
        for part in ("limits", "requests"):
            for resource in self.mapping(resources, ("spec", "resources", part)):
                if not _is_native(str(resource)):
                    self.wrong(
                        ("spec", "resources", part, str(resource)),
                        "devices belong to a container, not to the whole pod",
                        "move it to the resources of a container",
                    )
        if spec.get("resourceClaims"):
            self.wrong(
                ("spec", "resourceClaims"),
                "claims are for DRA drivers, and only device plugins are served here",
                "request a resource of a device plugin in the limits of a container",
            )

    def containers(
        self, spec: Mapping[Any, Any], path: Path, names: set[str]
    ) -> tuple[Container, ...]:
        entries = spec.get(path[-1])
        if entries is None:
            return ()
        if not isinstance(entries, list | tuple):
            self.wrong(path, f"must be a list, not {_kind(entries)}")
            return ()
        found = []
        for index, entry in enumerate(entries):
            here = (*path, index)
            if not isinstance(entry, Mapping):
                self.wrong(here, f"must be a mapping, not {_kind(entry)}")
                continue
            name = self.text(entry, (*here, "name"))
            if not name:
                self.wrong((*here, "name"), "is missing")
            elif name in names:
                self.wrong((*here, "name"), f"{name!r} is taken by another container of the pod")
            names.add(name)
            self.misspelt(entry, here, ("resources",))
            sidecar = path[-1] == "initContainers" and entry.get("restartPolicy") == "Always"
            found.append(Container(name, self.limits(entry, here), sidecar))
        return tuple(found)

    def limits(self, container: Mapping[Any, Any], here: Path) -> dict[str, int]:
        """Return the limits on extended resources. A request must be equal to its limit."""
        resources = self.mapping(container, (*here, "resources"))
        self.misspelt(resources, (*here, "resources"), _RESOURCE_KEYS, only=True)
        limits = self.quantities(resources, (*here, "resources", "limits"))
        requests = self.quantities(resources, (*here, "resources", "requests"))
        given = resources.get("limits")
        for resource, count in requests.items():
            if resource not in limits and not (isinstance(given, Mapping) and resource in given):
                self.wrong(
                    (*here, "resources", "limits", resource),
                    "must be set: devices are allocated by limits, and cannot be overcommitted",
                    f"limits: {resource}: {count}",
                )
            elif limits.get(resource, count) != count:
                self.wrong(
                    (*here, "resources", "requests", resource),
                    f"must be equal to the limit, {limits[resource]}",
                )
        return limits

    def quantities(self, resources: Mapping[Any, Any], path: Path) -> dict[str, int]:
        found = {}
        for resource, value in self.mapping(resources, path).items():
            here = (*path, str(resource))
            if _is_native(str(resource)):
                continue
            if rule := explain_resource_name(str(resource)):
                self.wrong(here, f"is not a resource: {rule}")
                continue
            try:
                found[str(resource)] = whole_units(value)
            except BadQuantity as error:
                self.wrong(here, str(error))
        return found


def _is_native(resource: str) -> bool:
    """Whether the kubelet itself provides `resource`, without a plugin."""
    return resource in _NATIVE or resource.startswith(_NATIVE_PREFIX) or _NATIVE_DOMAIN in resource


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)
