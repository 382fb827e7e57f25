"""What is added to an answer of Allocate, and variables numbered within a container. Pure.

A device cannot know which number it will have beside others; whoever answers Allocate can.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kubedevices.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.config.placeholders import fill, placeholders
from kubedevices.device import DeviceSpec, Mount, is_name_of_text, natural_key
from kubedevices.errors import ConflictingDevices, UsageError

PLACEHOLDERS: Mapping[str, str] = {
    "id": "the device's ID, as the plugin lists it",
    "index": "0, 1, 2 ...: the device's number within the container",
    "numa": "the device's NUMA nodes with commas",
}
JOINT = ","

_Part = TypeVar("_Part", DeviceSpec, Mount)


def renumber(response: AllocateResponse, prefix: str) -> None:
    """Rename every variable that begins with `prefix` to `prefix` and a number, in place.

    Numbers count from 0 in each container and follow the natural order of the values, so that the
    answer does not depend on the order in which devices were asked for.
    """
    for container in response.containers:
        # Taken out before any is put in: new names may be among the old ones.
        matching = [name for name in container.env if name.startswith(prefix)]
        values = sorted((container.env.pop(name) for name in matching), key=natural_key)
        container.env.update({f"{prefix}{i}": value for i, value in enumerate(values)})


@dataclass(frozen=True, kw_only=True)
class InjectRule:
    """What every container gets beside the plugin's answer.

    Texts may have the placeholders `{id}`, `{index}` and `{numa}`: they are filled for each device
    of the container. A variable or annotation that several devices give different values has them
    all, joined by commas. `cdi_devices` are qualified names of CDI devices. With `cdi` the
    container gets device files and mounts, the plugin's too, by a CDI device of ours.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    cdi: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for what no container could be started with."""
        try:
            for text in self.texts:
                placeholders(text)
            # Tried with a device that stands for any: so a mistake is told at the start and not by
            # the first pod.
            added = additions(self, [Known("id", "0")])
        except (ValueError, KeyError) as error:
            raise UsageError(f"inject: {_placeholder_problem(error)}") from None
        except ConflictingDevices as error:
            raise UsageError(f"inject: {error.problem}") from None
        for texts, is_variable in ((added.env, True), (added.annotations, False)):
            for name in texts:
                if not is_name_of_text(name, is_variable=is_variable):
                    raise UsageError(f"inject: {name!r} cannot be a name")
        parts: list[DeviceSpec | Mount] = [*added.devices, *added.mounts]
        for part in parts:
            if problem := part.problem():
                raise UsageError(f"inject: {problem}")

    @property
    def texts(self) -> Iterable[str]:
        """Every text that may have placeholders."""
        for pair in (*self.env.items(), *self.annotations.items()):
            yield from pair
        parts: tuple[Mount | DeviceSpec, ...] = (*self.mounts, *self.devices)
        for part in parts:
            yield from (part.host_path, part.container_path)
        yield from self.cdi_devices

    def needs(self, placeholder: str) -> bool:
        """Whether any text has this placeholder."""
        return any(placeholder in placeholders(text) for text in self.texts)


class Known(NamedTuple):
    """What placeholders stand for, but for the number in the container."""

    id: str
    numa: str


def additions(rule: InjectRule, devices: Iterable[Known]) -> ContainerAllocateResponse:
    """Return what `rule` adds for a container with these devices, numbered in natural order.

    Raises `ConflictingDevices` if two of them would put different things in one place.
    """
    env: dict[str, dict[str, None]] = {}
    annotations: dict[str, dict[str, None]] = {}
    mounts: dict[str, Mount] = {}
    specs: dict[str, DeviceSpec] = {}
    names: dict[str, None] = {}
    # A set, because several replicas of one device may be in a container: it is numbered once.
    for index, device in enumerate(sorted(set(devices), key=lambda each: natural_key(each.id))):
        values = {"id": device.id, "index": str(index), "numa": device.numa}
        for texts, found in ((rule.env, env), (rule.annotations, annotations)):
            for name, text in texts.items():
                found.setdefault(fill(name, values), {})[fill(text, values)] = None
        for mount in rule.mounts:
            host, place = fill(mount.host_path, values), fill(mount.container_path, values)
            _put(mounts, device.id, Mount(host, place, mount.read_only))
        for spec in rule.devices:
            host, place = fill(spec.host_path, values), fill(spec.container_path, values)
            _put(specs, device.id, DeviceSpec(host, place, spec.permissions))
        names |= dict.fromkeys(fill(name, values) for name in rule.cdi_devices)
    return ContainerAllocateResponse(
        env={name: JOINT.join(found) for name, found in env.items()},
        annotations={name: JOINT.join(found) for name, found in annotations.items()},
        mounts=[*mounts.values()],
        devices=[*specs.values()],
        cdi_devices=[*names],
    )


def add(container: ContainerAllocateResponse, added: ContainerAllocateResponse) -> list[str]:
    """Put `added` into an answer in place; return what of the answer it replaces, in words."""
    replaced = [
        name
        for texts, more in ((container.env, added.env), (container.annotations, added.annotations))
        for name, value in more.items()
        if texts.get(name, value) != value
    ]
    container.env.update(added.env)
    container.annotations.update(added.annotations)
    container.mounts, lost_mounts = _over(container.mounts, added.mounts)
    container.devices, lost_devices = _over(container.devices, added.devices)
    known = container.cdi_devices
    container.cdi_devices = [*known, *(name for name in added.cdi_devices if name not in known)]
    return [*replaced, *lost_mounts, *lost_devices]


def _put(placed: dict[str, _Part], device_id: str, part: _Part) -> None:
    first = placed.setdefault(part.container_path, part)
    if first != part:
        problem = (
            f"device {device_id} puts {part.host_path} at {part.container_path}, where "
            f"{first.host_path} already is (use {{id}} or {{index}} in the container path)"
        )
        raise ConflictingDevices(device_id, problem)


def _over(parts: list[_Part], more: list[_Part]) -> tuple[list[_Part], list[str]]:
    """Return `parts` and `more`, of which the latter win a place, and the places they won."""
    places = {each.container_path: each for each in more}
    kept: list[_Part] = [each for each in parts if each.container_path not in places]
    lost = [
        each.container_path
        for each in parts
        if places.get(each.container_path, each).host_path != each.host_path
    ]
    return kept + more, lost


def _placeholder_problem(error: Exception) -> str:
    if isinstance(error, KeyError):
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        return f"{{{error.args[0]}}} has no value, there are {known}"
    return str(error)
