"""What a container gets for the devices it was given, unless the plugin answers itself. Pure.

For the plugin server, and for a plugin's own `allocate` that wants to start from the default.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias, TypeVar

from kubedevices.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
)
from kubedevices.device import (
    Device,
    DeviceSpec,
    Mount,
    is_name_of_text,
    natural_key,
    place_problem,
)
from kubedevices.errors import (
    AllocationRefused,
    ConflictingDevices,
    NoDevicesNamed,
    RpcError,
    StatusCode,
)
from kubedevices.words import counted, some_of

EnvMerge: TypeAlias = Literal["last", "join", "error"]
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

    Devices are taken in natural order of their IDs, so that the answer does not depend on the
    order in which they were asked for. Raises `AllocationRefused` for an unknown or unhealthy one,
    and for a container that names none.

    Two devices may ask for different values of one variable or annotation: `env_merge` says
    whether the last wins, all are joined by a comma, or `ConflictingDevices` is raised. Two that
    put different host paths in one place of the container: the first is kept, or with `strict`
    that is raised. `on_conflict` is called for what is lost (default: a warning).
    """
    told = on_conflict or _warn
    report = _raise if strict else (on_conflict or _warn_of_second)
    return AllocateResponse(
        [
            _container_response(_find(container.device_ids, devices), env_merge, report, told)
            for container in request.containers
        ]
    )


def checked(response: AllocateResponse, request: AllocateRequest, author: str) -> AllocateResponse:
    """Return `response`; raises `RpcError` if no container could be started with it."""
    if len(response.containers) < len(request.containers):
        # A kubelet fails the pod for it and keeps the devices; an error gives them back.
        raise RpcError(
            StatusCode.INTERNAL,
            f"{author} answered for {len(response.containers)} containers, "
            f"{len(request.containers)} were asked for",
        )
    if problem := explain_response(response):
        raise RpcError(StatusCode.INTERNAL, f"{author} answered with {problem}")
    return response


def explain_response(response: AllocateResponse) -> str:
    """Return what in an author's answer no container could be started with, or an empty string."""
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
    """Return what is wrong with the answer for one container, or an empty string.

    No preference at all is always right.
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
    report: Callable[[ConflictingDevices], None],
    told: Callable[[ConflictingDevices], None],
) -> ContainerAllocateResponse:
    specs: dict[str, DeviceSpec] = {}
    mounts: dict[str, Mount] = {}
    env = _MergedTexts("environment variable", env_merge, told)
    annotations = _MergedTexts("annotation", env_merge, told)
    cdi_names: dict[str, None] = {}
    for device in devices:
        for spec in device.all_specs:
            _place(specs, device, spec, _unite_specs, report)
        for mount in device.mounts:
            _place(mounts, device, mount, _unite_mounts, report)
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
    report: Callable[[ConflictingDevices], None],
) -> None:
    """Put `part` at its place in the container, if that is free or taken by the same thing."""
    place = str(part.container_path)
    first = placed.setdefault(place, part)
    if first is part:
        return
    if first.host_path == part.host_path:
        placed[place] = unite(first, part)
        return
    report(
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
    """Variables or annotations of several devices; equal values count once."""

    def __init__(
        self, what: str, merge: EnvMerge, told: Callable[[ConflictingDevices], None]
    ) -> None:
        self._what, self._merge, self._told = what, merge, told
        self._values: dict[str, dict[str, None]] = {}
        self._lost: set[str] = set()

    def add(self, device_id: str, texts: Mapping[str, str]) -> None:
        for name, value in texts.items():
            values = self._values.setdefault(name, {})
            if self._merge != "join" and values and value not in values:
                problem = (
                    f"device {device_id} sets the {self._what} {name} to {value!r}, "
                    f"another one to {next(iter(values))!r}"
                )
                if self._merge == "error":
                    raise ConflictingDevices(device_id, problem)
                if name not in self._lost:  # once, however many devices there are
                    self._lost.add(name)
                    kept = "the last counts (a name per device, or env_merge=join, keeps all)"
                    self._told(ConflictingDevices(device_id, f"{problem}: {kept}"))
            if self._merge == "last":
                values.clear()
            values[value] = None

    def result(self) -> dict[str, str]:
        """Return one value per name, names in order of appearance."""
        if self._merge == "join":
            return {name: JOINT.join(values) for name, values in self._values.items()}
        return {name: next(iter(values)) for name, values in self._values.items()}


def _warn(conflict: ConflictingDevices) -> None:
    _log.warning("%s", conflict.problem)


def _warn_of_second(conflict: ConflictingDevices) -> None:
    _log.warning("%s: the first is kept", conflict.problem)


def _raise(conflict: ConflictingDevices) -> None:
    raise conflict
