"""What the inject rule adds to an answer to Allocate; variables numbered within a container. Pure.

The number of a device within a container is known only when Allocate is answered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from kubedevices.config.checks import absolute, template
from kubedevices.config.keys import Declared, key
from kubedevices.config.placeholders import fill, placeholders
from kubedevices.errors import ConflictingDevices
from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.values.device import DeviceSpec, Mount, is_name_of_text, natural_key

JOINT = ","

_text = template("id", "index", "numa")
"""Checks a text. `{index}` is the number of a device within the container: 0, 1, 2 …"""

_Part = TypeVar("_Part", DeviceSpec, Mount)


def renumber(response: AllocateResponse, prefix: str) -> None:
    """Rename every variable that begins with `prefix` to `prefix` and a number, in place.

    Numbers count from 0 in each container, in the natural order of the values. So the answer does
    not depend on the order of the devices in the request.
    """
    for container in response.containers:
        # Remove all old names before adding new names: a new name may equal an old name.
        matching = [name for name in container.env if name.startswith(prefix)]
        values = sorted((container.env.pop(name) for name in matching), key=natural_key)
        container.env.update({f"{prefix}{i}": value for i, value in enumerate(values)})


_TEXTS: Mapping[str, Any] = {"default_factory": dict, "check": _text, "check_key": _text}


def _path(text: str) -> str:
    return _text(text) or absolute(text)


@dataclass(frozen=True, kw_only=True)
class _WrittenMount:
    """A directory or file of the host."""

    HINT: ClassVar[str] = "write '{host: /opt/gpu, container: /opt/gpu}'"

    host: str = key("path on the host", check=_path)
    container: str = key("path in the container", check=_path)
    read_only: bool = key("whether the container cannot write", default=True)

    def value(self) -> Mount:
        return Mount(self.host, self.container, self.read_only)


@dataclass(frozen=True, kw_only=True)
class _WrittenDevice:
    """A device file of the host."""

    HINT: ClassVar[str] = "write '{host: /dev/gpuctl}'"

    host: str = key("path on the host", check=_path)
    container: str | None = key("path in the container, if another", default=None, check=_path)
    permissions: str = key("one or more of r, w and m (mknod)", default="rw")

    def value(self) -> DeviceSpec:
        return DeviceSpec(self.host, self.container, self.permissions)


@dataclass(frozen=True, kw_only=True)
class InjectRule(Declared):
    """Additions to the plugin's answer, for every container.

    Texts may have the placeholders `{id}`, `{index}` and `{numa}`, which are filled for each device
    of the container. If several devices give a variable or annotation different values, its value
    is all of them, joined by commas. With `cdi` a CDI device has also the files of the plugin.
    """

    HINT: ClassVar[str] = "write 'inject: {env: {GPU_IDS: \"{id}\"}}'"

    env: Mapping[str, str] = key("environment variables", **_TEXTS)
    mounts: tuple[Mount, ...] = key(
        "files and directories", default=(), written=tuple[_WrittenMount, ...]
    )
    devices: tuple[DeviceSpec, ...] = key(
        "device files", default=(), written=tuple[_WrittenDevice, ...]
    )
    annotations: Mapping[str, str] = key("annotations", **_TEXTS)
    cdi_devices: tuple[str, ...] = key("qualified names of CDI devices", default=(), check=_text)
    cdi: bool = key(
        "whether containers get device files and mounts by a CDI device of the proxy", default=False
    )

    def __post_init__(self) -> None:
        """Raise `UsageError` also if no container can be started with these additions."""
        super().__post_init__()
        if problem := next(filter(None, map(_text, self.texts)), ""):
            self._refuse(problem)
        try:
            # Try with an example device: so a mistake is reported at the start, not by the first
            # pod.
            added = additions(self, [PlaceholderValues("id", "0")])
        except ConflictingDevices as error:
            self._refuse(error.problem)
        for texts, is_variable in ((added.env, True), (added.annotations, False)):
            for name in texts:
                if not is_name_of_text(name, is_variable=is_variable):
                    self._refuse(f"{name!r} cannot be a name")
        parts: list[DeviceSpec | Mount] = [*added.devices, *added.mounts]
        for part in parts:
            if problem := part.problem():
                self._refuse(problem)

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


class PlaceholderValues(NamedTuple):
    """The values of the placeholders of one device, except `{index}`."""

    id: str
    numa: str


def additions(rule: InjectRule, devices: Iterable[PlaceholderValues]) -> ContainerAllocateResponse:
    """Return what `rule` adds for a container with these devices, numbered in natural order.

    Raises `ConflictingDevices` if two devices put different host paths at one container path.
    """
    env: dict[str, dict[str, None]] = {}
    annotations: dict[str, dict[str, None]] = {}
    mounts: dict[str, Mount] = {}
    specs: dict[str, DeviceSpec] = {}
    names: dict[str, None] = {}
    # A set: if a container has several replicas of one device, the device gets one number.
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
    """Put `added` into an answer in place; return the names and paths that it replaces."""
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
    """Return `parts` and `more` (which replaces equal container paths), and the replaced paths."""
    places = {each.container_path: each for each in more}
    kept: list[_Part] = [each for each in parts if each.container_path not in places]
    lost = [
        each.container_path
        for each in parts
        if places.get(each.container_path, each).host_path != each.host_path
    ]
    return kept + more, lost
