"""The schema of the keys of one rule in the proxy's file, with every check of their values."""

# ruff: noqa: RUF009  # `key` makes a field, not a value

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kubedevices.config.durations import parse_duration
from kubedevices.config.placeholders import placeholders
from kubedevices.config.yaml_config import Complain, key
from kubedevices.errors import UsageError
from kubedevices.rules.additions import InjectRule
from kubedevices.rules.damping import DampingRule
from kubedevices.rules.health_gate import SHORTEST_INTERVAL, Check
from kubedevices.rules.replicas import SPREADINGS
from kubedevices.rules.share import REPLICAS_LIMIT
from kubedevices.values.device import DeviceSpec, Health, Mount
from kubedevices.values.resource_name import explain_resource_name

DURATION_HINT = "for example 30s or 5m"
_LAST_NUMA_NODE = 1023


def _replicas(count: int) -> str:
    return "" if 1 <= count <= REPLICAS_LIMIT else f"must be from 1 to {REPLICAS_LIMIT}"


def _at_least(least: int) -> Callable[[int], str]:
    return lambda count: "" if count >= least else f"must be {least} or more"


def _interval(seconds: float) -> str:
    return "" if seconds >= SHORTEST_INTERVAL else "shorter than 100ms"


DURATION: Mapping[str, Any] = {"parse": parse_duration, "hint": DURATION_HINT}


def one_of(*words: str) -> Callable[[str], str]:
    """Return a check that a text is one of `words`."""
    listed = " or ".join(words)
    return lambda text: "" if text in words else f"must be {listed}, not {text!r}"


def _type(text: str) -> str:
    if "/" in text:
        return f"{text!r}: write only the part after the slash; the domain stays, or is renamed"
    return explain_resource_name(f"example.com/{text}")


def _numa_node(number: int) -> str:
    return "" if 0 <= number <= _LAST_NUMA_NODE else f"{number} is not a NUMA node"


def _absolute(text: str) -> str:
    return "" if text.startswith("/") else "an absolute path is needed"


def _of_device(text: str) -> str:
    """Check the placeholders of a text about one device."""
    unknown = [name for name in placeholders(text) if name not in {"id", "address"}]
    return f"{{{unknown[0]}}} has no value; known: {{id}} and {{address}}" if unknown else ""


def _below(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/") or "{" in text:
        return f"{text!r}: write a name below /sys/bus/pci/devices/ADDRESS"
    return "" if text else "a name is needed"


def _id(text: str) -> str:
    return "" if text else "a glob is needed"


@dataclass(frozen=True, kw_only=True)
class ShareOfKey:
    """How many replicas some devices have."""

    HINT: ClassVar[str] = "write '{ids: \"GPU-a*\", replicas: 8}'"

    ids: str = key(meaning="glob of device IDs")
    replicas: int = key(meaning="replicas of each of these devices", check=_replicas)


@dataclass(frozen=True, kw_only=True)
class ShareKey:
    """Several containers per device."""

    HINT: ClassVar[str] = "write 'share: {replicas: 4}'"

    replicas: int = key(
        meaning="replicas of each device that no rule names", default=1, check=_replicas
    )
    rules: tuple[ShareOfKey, ...] = key(
        meaning="replicas of some devices; the first rule that matches counts", default=()
    )
    per_container: int | None = key(
        meaning="the most replicas that one container may have", default=None, check=_at_least(1)
    )
    distinct: bool = key(
        meaning="whether replicas of one container must be of different devices", default=False
    )
    allocation: str = key(
        meaning="whether the least or the most used devices are allocated first",
        default="spread",
        check=one_of(*SPREADINGS),
        choices=SPREADINGS,
    )


@dataclass(frozen=True, kw_only=True)
class RecordKey:
    """A record of all lists and calls."""

    HINT: ClassVar[str] = "write 'record: {file: /var/log/gpu.jsonl}'"

    file: str = key(
        meaning="where the lines are written; {name} and {domain} stand for the parts of the name",
        check=_absolute,
    )
    max_size: int = key(
        meaning="bytes after which the next file begins", default=10 * 2**20, check=_at_least(1)
    )
    files: int = key(meaning="how many files are kept", default=5, check=_at_least(1))
    redact_env: bool = key(
        meaning="whether the values of environment variables are left out", default=False
    )


@dataclass(frozen=True, kw_only=True)
class FilterKey:
    """Devices that the kubelet does not get."""

    HINT: ClassVar[str] = "write 'filter: {ids: [\"GPU-bad*\"]}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("ids", "numa")

    ids: tuple[str, ...] = key(meaning="globs of device IDs", default=())
    numa: tuple[int, ...] = key(meaning="NUMA nodes", default=(), check=_numa_node)


@dataclass(frozen=True, kw_only=True)
class PciKey:
    """A PCI function; all given values must match."""

    HINT: ClassVar[str] = """write 'pci: {vendor: "10de", device: "20*"}'"""
    ANY_OF: ClassVar[tuple[str, ...]] = ("vendor", "device", "class", "driver", "address")

    vendor: str | None = key(meaning="vendor ID in hexadecimal, a glob", default=None)
    device: str | None = key(meaning="device ID in hexadecimal, a glob", default=None)
    class_: str | None = key(
        meaning="class or its beginning: 03 is every display controller", name="class", default=None
    )
    driver: str | None = key(meaning="the driver it is bound to, a glob", default=None)
    address: str | None = key(meaning="such as 0000:3b:00.0, a glob", default=None)


@dataclass(frozen=True, kw_only=True)
class SplitPartKey:
    """Devices that become another resource; all given values must match."""

    HINT: ClassVar[str] = "write '{to: gpu-a100, ids: [\"GPU-a*\"]}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("ids", "numa", "pci")

    to: str = key(meaning="the resource's name after the slash", check=_type)
    ids: tuple[str, ...] = key(meaning="globs of device IDs", default=())
    numa: tuple[int, ...] = key(meaning="NUMA nodes", default=(), check=_numa_node)
    pci: PciKey | None = key(meaning="what the PCI function of the device is", default=None)


@dataclass(frozen=True, kw_only=True)
class SplitKey:
    """Several resources from the devices of one."""

    HINT: ClassVar[str] = "write 'split: {rules: [{to: gpu-a100, ids: [\"GPU-a*\"]}]}'"

    rules: tuple[SplitPartKey, ...] = key(
        meaning="the first rule that matches a device says its resource", not_empty=True
    )
    rest: str = key(
        meaning="whether devices that match no rule stay in the resource or are left out",
        default="keep",
        check=one_of("keep", "drop"),
        choices=("keep", "drop"),
    )


@dataclass(frozen=True, kw_only=True)
class InjectMountKey:
    """A directory or file of the host."""

    HINT: ClassVar[str] = "write '{host: /opt/gpu, container: /opt/gpu}'"

    host: str = key(meaning="path on the host", check=_absolute)
    container: str = key(meaning="path in the container", check=_absolute)
    read_only: bool = key(meaning="whether the container cannot write", default=True)


@dataclass(frozen=True, kw_only=True)
class InjectDeviceKey:
    """A device file of the host."""

    HINT: ClassVar[str] = "write '{host: /dev/gpuctl}'"

    host: str = key(meaning="path on the host", check=_absolute)
    container: str | None = key(
        meaning="path in the container, if another", default=None, check=_absolute
    )
    permissions: str = key(meaning="one or more of r, w and m (mknod)", default="rw")


@dataclass(frozen=True, kw_only=True)
class InjectKey:
    """Additions to the plugin's answer, for every container."""

    HINT: ClassVar[str] = "write 'inject: {env: {GPU_IDS: \"{id}\"}}'"

    env: Mapping[str, str] = key(meaning="environment variables", default_factory=dict)
    mounts: tuple[InjectMountKey, ...] = key(meaning="files and directories", default=())
    devices: tuple[InjectDeviceKey, ...] = key(meaning="device files", default=())
    annotations: Mapping[str, str] = key(meaning="annotations", default_factory=dict)
    cdi_devices: tuple[str, ...] = key(meaning="qualified names of CDI devices", default=())
    cdi: bool = key(
        meaning="whether containers get device files and mounts by a CDI device of the proxy",
        default=False,
    )

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Report values with which no container could start."""
        try:
            make_inject_rule(cls(**values))
        except UsageError as error:
            complain((), str(error).removeprefix("inject: "), "")


def make_inject_rule(inject: InjectKey) -> InjectRule:
    """Return the rule; raises `UsageError`."""
    return InjectRule(
        env=inject.env,
        mounts=tuple(Mount(each.host, each.container, each.read_only) for each in inject.mounts),
        devices=tuple(
            DeviceSpec(each.host, each.container, each.permissions) for each in inject.devices
        ),
        annotations=inject.annotations,
        cdi_devices=inject.cdi_devices,
        cdi=inject.cdi,
    )


@dataclass(frozen=True, kw_only=True)
class CheckKey:
    """A check of whether a device works: the content of a file, or the exit code of a command."""

    HINT: ClassVar[str] = "write '{file: /sys/..., equals: ok}' or '{command: [...]}'"
    ONE_OF: ClassVar[tuple[str, ...]] = ("file", "command", "sysfs")

    file: str | None = key(
        meaning="a file that must exist, or contain the text of 'equals'",
        default=None,
        check=_of_device,
    )
    sysfs: str | None = key(
        meaning="the same for a file of the device's PCI function, for example enable",
        default=None,
        check=_below,
    )
    equals: str | None = key(meaning="text that the file must contain", default=None)
    command: tuple[str, ...] = key(
        meaning="a program and its arguments; exit code 0 means healthy",
        default=(),
        not_empty=True,
        check=_of_device,
    )
    interval: float = key(
        meaning="pause between two checks",
        default=Check.interval,
        **DURATION,
        check=_interval,
    )
    fail_after: int = key(
        meaning="failures in a row that make a device unhealthy",
        default=Check.fail_after,
        check=_at_least(1),
    )
    ok_after: int = key(
        meaning="successes in a row that make a device healthy again",
        default=Check.ok_after,
        check=_at_least(1),
    )


@dataclass(frozen=True, kw_only=True)
class HealthKey:
    """When a change of health is reported, and which checks decide beside the plugin.

    The defaults of damping are those of `DampingRule`.
    """

    HINT: ClassVar[str] = "write 'health: {unhealthyAfter: 5s, healthyAfter: 30s}'"

    unhealthy_after: float = key(
        meaning="how long a device must be unhealthy without a break",
        default=DampingRule.unhealthy_after,
        **DURATION,
    )
    healthy_after: float = key(
        meaning="how long a device must be healthy again without a break",
        default=DampingRule.healthy_after,
        **DURATION,
    )
    max_flaps: int | None = key(
        meaning="how often a device may turn Unhealthy within an hour; once more cordons it",
        default=DampingRule.max_flaps,
        check=_at_least(0),
    )
    recover_after: float | None = key(
        meaning="how long until a cordoned device comes back by itself",
        default=DampingRule.recover_after,
        **DURATION,
    )
    checks: tuple[CheckKey, ...] = key(
        meaning="a device is healthy if the plugin says Healthy and all of these checks succeed",
        default=(),
    )
    ignore: tuple[str, ...] = key(
        meaning="globs of IDs of devices that are always Healthy, whatever plugin and checks say",
        default=(),
    )
    recover: CheckKey | None = key(
        meaning="while the plugin says Unhealthy, this check alone decides", default=None
    )


@dataclass(frozen=True, kw_only=True)
class PreStartRule:
    """Faults of PreStartContainer."""

    HINT: ClassVar[str] = "write 'preStart: {delay: 1s, failEvery: 3}'"

    delay: float = key(meaning="how long it takes", default=0.0, **DURATION)
    fail_every: int = key(meaning="every n-th fails", default=0, check=_at_least(1))


@dataclass(frozen=True, kw_only=True)
class TurnKey:
    """A change of the health of devices at a given time."""

    HINT: ClassVar[str] = "write '{at: 30s, id: \"GPU-1*\", health: Unhealthy}'"

    at: float = key(meaning="when, after the start", **DURATION)
    id: str = key(meaning="glob of device IDs", default="*", check=_id)
    health: str = key(
        meaning="Healthy or Unhealthy", check=one_of(*Health), choices=tuple(map(str, Health))
    )


@dataclass(frozen=True, kw_only=True)
class FaultsKey:
    """Faults on purpose, to test programs that depend on the plugin."""

    HINT: ClassVar[str] = "write 'faults: {allocateDelay: 1s}'"

    allocate_delay: float = key(
        meaning="by how much each answer to Allocate is delayed",
        default=0.0,
        **DURATION,
    )
    fail_allocate_every: int = key(
        meaning="every n-th Allocate fails", default=0, check=_at_least(1)
    )
    hang_allocate_every: int = key(
        meaning="every n-th Allocate is never answered", default=0, check=_at_least(1)
    )
    refuse: tuple[str, ...] = key(
        meaning="globs of IDs: Allocate of such a device fails", default=(), check=_id
    )
    drop_stream_every: float = key(
        meaning="time after which each ListAndWatch stream is closed",
        default=0.0,
        parse=parse_duration,
        check=lambda seconds: "" if seconds > 0 else "must be more than 0s",
        hint=DURATION_HINT,
    )
    never_list: bool = key(meaning="whether ListAndWatch never sends a list", default=False)
    wrong_ids: bool = key(
        meaning="whether GetPreferredAllocation answers with IDs of no device",
        default=False,
        name="wrongIDs",
    )
    pre_start: PreStartRule | None = key(
        meaning="delays and failures of PreStartContainer", default=None
    )
    timeline: tuple[TurnKey, ...] = key(meaning="when the health of devices changes", default=())
    control: str | None = key(
        meaning="a socket for `kubedevices simulate --tell`, which sets the health of devices",
        default=None,
        check=_absolute,
    )
