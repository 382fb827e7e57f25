"""Merges the plugins' Allocate answers for one container into one set of run options. Pure.

If several resources name the same variable, path or annotation, the first resource counts. The
conflicts are returned, so that the caller can log them. The container runtime validates the
options.
"""

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from kubedevices.node.pods.pod_devices import HeldDevices
from kubedevices.values.allocation import ContainerAllocateResponse, ContainerOptions
from kubedevices.values.device import DeviceSpec, Mount

Value = TypeVar("Value", bound=Hashable)


class OptionConflict(NamedTuple):
    """Two resources with different values for one key; the options have the value `kept`."""

    kind: str
    key: str
    kept: str
    kept_from: str
    skipped: str
    skipped_from: str

    def __str__(self) -> str:
        """Return one line for a log."""
        return (
            f"{self.kind} {self.key!r}: {self.kept} of {self.kept_from} is kept, "
            f"{self.skipped} of {self.skipped_from} is skipped"
        )


class MergedOptions(NamedTuple):
    """Run options, and the values that are not in them because of a conflict."""

    options: ContainerOptions
    conflicts: tuple[OptionConflict, ...] = ()


class _Slots(Generic[Value]):
    """One value per key; the first value stays."""

    def __init__(self, kind: str, conflicts: list[OptionConflict]) -> None:
        self._kind, self._conflicts = kind, conflicts
        self._taken: dict[str, tuple[Value, str]] = {}

    def put(self, key: str, value: Value, resource: str) -> None:
        kept, kept_from = self._taken.setdefault(key, (value, resource))
        if kept != value:
            self._conflicts.append(
                OptionConflict(self._kind, key, _shown(kept), kept_from, _shown(value), resource)
            )

    def items(self) -> tuple[tuple[str, Value], ...]:
        return tuple((key, value) for key, (value, _) in self._taken.items())

    def values(self) -> tuple[Value, ...]:
        return tuple(value for value, _ in self._taken.values())


def merge_responses(
    responses: Iterable[tuple[str, ContainerAllocateResponse]],
) -> MergedOptions:
    """Merge the answers of several resources, in the order given."""
    conflicts: list[OptionConflict] = []
    env: _Slots[str] = _Slots("environment variable", conflicts)
    devices: _Slots[DeviceSpec] = _Slots("device file", conflicts)
    mounts: _Slots[Mount] = _Slots("mount", conflicts)
    annotations: _Slots[str] = _Slots("annotation", conflicts)
    cdi_devices: dict[str, None] = {}
    for resource, response in responses:
        for name, value in response.env.items():
            env.put(name, value, resource)
        for spec in response.devices:
            devices.put(spec.container_path or "", spec, resource)
        for mount in response.mounts:
            mounts.put(mount.container_path, mount, resource)
        for name, value in response.annotations.items():
            annotations.put(name, value, resource)
        cdi_devices.update(dict.fromkeys(response.cdi_devices))
    options = ContainerOptions(
        env=MappingProxyType(dict(env.items())),
        devices=devices.values(),
        mounts=mounts.values(),
        annotations=MappingProxyType(dict(annotations.items())),
        cdi_devices=tuple(cdi_devices),
    )
    return MergedOptions(options, tuple(conflicts))


def container_options(held: Mapping[str, HeldDevices]) -> MergedOptions | None:
    """Return the options of a container that holds `held`, None if it holds no devices.

    Resources are merged in the order of their names, so the same answers give the same options
    after a restart. The order of the kubelet is random.
    """
    if not held:
        return None
    return merge_responses((resource, held[resource].response) for resource in sorted(held))


def _shown(value: object) -> str:
    if isinstance(value, DeviceSpec):
        return f"{value.host_path} ({value.permissions})"
    if isinstance(value, Mount):
        return f"{value.host_path} ({'ro' if value.read_only else 'rw'})"
    return repr(value)
