"""The default answer to Allocate: what a container gets for its devices. Pure.

For the plugin server, and for a plugin's own `allocate` that starts from the default answer. Also
the checks of answers that a plugin gives itself.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias, TypeVar

from kubedevices.errors import (
    AllocationRefused,
    ConflictingDevices,
    NoDevicesNamed,
    RpcError,
    StatusCode,
)
from kubedevices.errors.words import counted, some_of
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
)
from kubedevices.values.device import (
    Device,
    DeviceSpec,
    Mount,
    is_name_of_text,
    natural_key,
    place_problem,
)

EnvMerge: TypeAlias = Literal["last", "join", "error"]
Inject: TypeAlias = Literal["nodes", "cdi", "both"]
"""How a container gets a device: by its device files, by the name of a CDI device, or by both."""

JOINT = ","
_PERMISSIONS = "rwm"

_Part = TypeVar("_Part", DeviceSpec, Mount)

_log = logging.getLogger(__name__)


def default_response(
    request: AllocateRequest,
    devices: Mapping[str, Device],
    *,
    env_merge: EnvMerge = "last",
    strict: bool = False,
    on_conflict: Callable[[ConflictingDevices], None] | None = None,
) -> AllocateResponse:
    """Return one answer per container of `request`, made of the parts of its devices.

    The parts are in natural order of the device IDs, so that the answer does not depend on the
    order of the request. Raises `AllocationRefused` for an unknown or unhealthy device, and for a
    container without devices.

    If two devices have different values for one variable or annotation, `env_merge` decides: the
    last value counts, all values are joined by commas, or `ConflictingDevices` is raised. If two
    devices put different host paths at one path of the container, the first counts, or with
    `strict` `ConflictingDevices` is raised. `on_conflict` is called for each value or path that is
    left out (default: a warning).
    """
    on_lost_text = on_conflict or _warn
    on_lost_path = _raise if strict else (on_conflict or _warn_first_counts)
    return AllocateResponse(
        [
            _container_response(
                _find(container.device_ids, devices), env_merge, on_lost_path, on_lost_text
            )
            for container in request.containers
        ]
    )


def checked(response: AllocateResponse, request: AllocateRequest, author: str) -> AllocateResponse:
    """Return `response`; raises `RpcError` if no container can be started with it."""
    if len(response.containers) < len(request.containers):
        # After such an answer a kubelet fails the pod and keeps the devices; after an error it
        # gives the devices back.
        raise RpcError(
            StatusCode.INTERNAL,
            f"{author} answered for {len(response.containers)} containers, "
            f"{len(request.containers)} were asked for",
        )
    if problem := explain_response(response):
        raise RpcError(StatusCode.INTERNAL, f"{author} answered with {problem}")
    return response


def explain_response(response: AllocateResponse) -> str:
    """Return why no container can be started with an author's answer, or an empty string."""
    for container in response.containers:
        for texts, is_variable in ((container.env, True), (container.annotations, False)):
            for name in texts:
                if not is_name_of_text(name, is_variable=is_variable):
                    return f"{name!r}, which cannot be a name"
        problem = place_problem(container.devices) or place_problem(container.mounts)
        parts: list[DeviceSpec | Mount] = [*container.devices, *container.mounts]
        if problem := problem or next(filter(None, (part.problem() for part in parts)), ""):
            return problem
    return ""


def explain_preference(asked: ContainerPreferredRequest, preferred: tuple[str, ...]) -> str:
    """Return what is wrong with the preference for one container, or an empty string.

    An empty preference is always right.
    """
    chosen = set(preferred)
    if not chosen:
        return ""
    if foreign := chosen - set(asked.available):
        return f"{some_of(sorted(foreign))} not available"
    if missing := set(asked.must_include) - chosen:
        return f"{some_of(sorted(missing))} missing, though they must be included"
    if len(chosen) != asked.size:
        return f"{counted(len(chosen), 'device')} instead of {asked.size}"
    return ""


def _find(device_ids: Collection[str], devices: Mapping[str, Device]) -> list[Device]:
    if not device_ids:
        raise NoDevicesNamed
    found = []
    for device_id in sorted(set(device_ids), key=natural_key):
        device = devices.get(device_id)
        if device is None:
            raise AllocationRefused(device_id, StatusCode.NOT_FOUND)
        if not device.is_healthy:
            raise AllocationRefused(device_id, StatusCode.FAILED_PRECONDITION)
        found.append(device)
    return found


def _container_response(
    devices: list[Device],
    env_merge: EnvMerge,
    on_lost_path: Callable[[ConflictingDevices], None],
    on_lost_text: Callable[[ConflictingDevices], None],
) -> ContainerAllocateResponse:
    specs: dict[str, DeviceSpec] = {}
    mounts: dict[str, Mount] = {}
    env = _MergedTexts("environment variable", env_merge, on_lost_text)
    annotations = _MergedTexts("annotation", env_merge, on_lost_text)
    cdi_names: dict[str, None] = {}
    for device in devices:
        for spec in device.all_specs:
            _place(specs, device, spec, _unite_specs, on_lost_path)
        for mount in device.mounts:
            _place(mounts, device, mount, _unite_mounts, on_lost_path)
        env.add(device.id, device.env)
        annotations.add(device.id, device.annotations)
        if device.cdi is not None:
            cdi_names[device.cdi] = None
    return ContainerAllocateResponse(
        env=env.result(),
        mounts=list(mounts.values()),
        devices=list(specs.values()),
        annotations=annotations.result(),
        cdi_devices=list(cdi_names),
    )


def _place(
    placed: dict[str, _Part],
    device: Device,
    part: _Part,
    unite: Callable[[_Part, _Part], _Part],
    on_lost: Callable[[ConflictingDevices], None],
) -> None:
    """Put `part` at its container path, if the path is free or has the same host path."""
    place = str(part.container_path)
    first = placed.setdefault(place, part)
    if first is part:
        return
    if first.host_path == part.host_path:
        placed[place] = unite(first, part)
        return
    on_lost(
        ConflictingDevices(
            device.id,
            f"device {device.id} puts {part.host_path} at {place}, "
            f"where {first.host_path} already is",
        )
    )


def _unite_specs(first: DeviceSpec, second: DeviceSpec) -> DeviceSpec:
    both = set(first.permissions + second.permissions)
    permissions = "".join(letter for letter in _PERMISSIONS if letter in both)
    return DeviceSpec(first.host_path, first.container_path, permissions)


def _unite_mounts(first: Mount, second: Mount) -> Mount:
    return Mount(first.host_path, first.container_path, first.read_only and second.read_only)


class _MergedTexts:
    """The variables or the annotations of several devices; equal values count once."""

    def __init__(
        self, what: str, merge: EnvMerge, on_lost: Callable[[ConflictingDevices], None]
    ) -> None:
        self._what, self._merge, self._on_lost = what, merge, on_lost
        self._values: dict[str, dict[str, None]] = {}
        self._lost: set[str] = set()

    def add(self, device_id: str, texts: Mapping[str, str]) -> None:
        for name, value in texts.items():
            values = self._values.setdefault(name, {})
            if self._merge != "join" and values and value not in values:
                problem = (
                    f"device {device_id} sets the {self._what} {name} to {value!r}, "
                    f"another device sets it to {next(iter(values))!r}"
                )
                if self._merge == "error":
                    raise ConflictingDevices(device_id, problem)
                if name not in self._lost:  # once per name
                    self._lost.add(name)
                    kept = "the last counts (a name per device, or env_merge=join, keeps all)"
                    self._on_lost(ConflictingDevices(device_id, f"{problem}: {kept}"))
            if self._merge == "last":
                values.clear()
            values[value] = None

    def result(self) -> dict[str, str]:
        """Return one value per name, the names in order of appearance."""
        if self._merge == "join":
            return {name: JOINT.join(values) for name, values in self._values.items()}
        return {name: next(iter(values)) for name, values in self._values.items()}


def _warn(conflict: ConflictingDevices) -> None:
    _log.warning("%s", conflict.problem)


def _warn_first_counts(conflict: ConflictingDevices) -> None:
    _log.warning("%s: the first is kept", conflict.problem)


def _raise(conflict: ConflictingDevices) -> None:
    raise conflict
