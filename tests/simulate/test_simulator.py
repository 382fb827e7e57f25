"""The simulator: its settings and what it answers."""

import platform
import re
from dataclasses import fields
from pathlib import Path

import pytest

from kubedevices.errors import ConfigError, RpcError, StatusCode
from kubedevices.plugin.allocate_response import default_response
from kubedevices.plugin.capabilities import USE_DEFAULT
from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.plugin.notifier import Notifier
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.simulate.devices import SimulatedDevices
from kubedevices.simulate.settings import SETTINGS, merge_resources
from kubedevices.simulate.simulation_file import ResourceEntry, read_simulator_file
from kubedevices.simulate.simulator import Simulator
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.values.device import Device, DeviceSpec
from kubedevices.values.device_tree import DeviceTree

# A file as the Makefile of simple-device-plugin leaves it: blanks behind the keys without a value.
ORIGINAL = """\
resourceName: nvidia.com/gpu
numberDevicesOnNode: 3
pluginName: simple-device-plugin
deviceIDPrefix: gpu-device
annotationPrefix: 
envPrefix: GPU_DEVICE
deviceFilePrefix: 
"""  # noqa: W291

NO_RESOURCE = (
    "'foo' is not a resource name: it needs a domain and a slash, for example example.com/foo"
)
KEYS = (
    "resourceName, numberDevicesOnNode, pluginName, deviceIDPrefix, annotationPrefix, envPrefix, "
    "deviceFilePrefix, devicePathStyle, numaNodes, cdi, createDeviceFiles, preferred, preStart, "
    "faults, resources, timeline, timelineLoop"
)


def from_file(tmp_path: Path, text: str, **environment: str) -> SimulatorConfig:
    file = tmp_path / "simulate.yaml"
    file.write_text(text)
    (config,) = merge_resources(read_simulator_file(file), environment, {})
    return config


def test_defaults_are_those_of_the_original() -> None:
    """Its Makefile's, and the host name where it has none."""
    (config,) = merge_resources(None, {}, {})
    assert config == SimulatorConfig(
        resource_name="example.com/simple-device",
        number_devices=2,
        plugin_name="simple-device-plugin",
        device_id_prefix="simple-device",
        annotation_prefix="",
        env_prefix="",
        device_file_prefix="",
        node_name=platform.node(),
        device_path_style="index",
        numa_nodes=(),
        namespace="simple-device-plugin",
    )


def test_the_originals_file_works_unchanged(tmp_path: Path) -> None:
    """A key without a value is absent."""
    config = from_file(tmp_path, ORIGINAL, NODE_NAME="n1")
    assert config == SimulatorConfig(
        resource_name="nvidia.com/gpu",
        number_devices=3,
        device_id_prefix="gpu-device",
        env_prefix="GPU_DEVICE",
        node_name="n1",
    )


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("RESOURCE_NAME", "a.example/b", "resource_name", "a.example/b"),
        ("NUMBER_DEVICES", "7", "number_devices", 7),
        ("NUMBER_DEVICES", "0", "number_devices", 0),
        ("PLUGIN_NAME", "p", "plugin_name", "p"),
        ("DEVICE_ID_PREFIX", "d", "device_id_prefix", "d"),
        ("ANNOTATION_PREFIX", "a", "annotation_prefix", "a"),
        ("ENV_PREFIX", "e", "env_prefix", "e"),
        ("DEVICE_FILE_PREFIX", "f", "device_file_prefix", "f"),
        ("NODE_NAME", "n", "node_name", "n"),
        ("DEVICE_PATH_STYLE", "id", "device_path_style", "id"),
        ("NUMA_NODES", "0,1", "numa_nodes", (0, 1)),
        ("NUMA_NODES", "0=1, 1=0", "numa_nodes", {0: 1, 1: 0}),
        ("CDI_ENABLED", "1", "cdi", True),
        ("CDI_ENABLED", "No", "cdi", False),
        ("NAMESPACE", "ns", "namespace", "ns"),
    ],
)
def test_every_setting_is_variable_and_flag(
    variable: str, text: str, field: str, value: object
) -> None:
    """Both take the same texts."""
    for environment, flags in (({variable: text}, {}), ({}, {field: text})):
        (config,) = merge_resources(None, environment, flags)
        assert getattr(config, field) == value
    assert field in {setting.field for setting in SETTINGS if setting.variable == variable}


def test_every_setting_and_every_key_is_a_field_of_the_configuration() -> None:
    """`merge_resources` passes them on by these names."""
    known = {field.name for field in fields(SimulatorConfig)}
    of_the_file = {field.name for field in fields(ResourceEntry)}
    assert {setting.field for setting in SETTINGS} | of_the_file == known
    assert {setting.field for setting in SETTINGS if setting.yaml_key} <= of_the_file


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("resourceName: a.example/b", "resource_name", "a.example/b"),
        ("numberDevicesOnNode: 7", "number_devices", 7),
        ("pluginName: p", "plugin_name", "p"),
        ("cdi: true", "cdi", True),
        ("deviceIDPrefix: 7", "device_id_prefix", "7"),
        ("annotationPrefix: a", "annotation_prefix", "a"),
        ("envPrefix: on", "env_prefix", "on"),
        ("deviceFilePrefix: f", "device_file_prefix", "f"),
        ("devicePathStyle: id", "device_path_style", "id"),
        ("numaNodes: [0, 1]", "numa_nodes", (0, 1)),
        ("numaNodes: {0: 1, 1: 0}", "numa_nodes", {0: 1, 1: 0}),
    ],
)
def test_every_key_of_the_file_is_read(
    tmp_path: Path, line: str, field: str, value: object
) -> None:
    """A number is good enough where text is wanted, as in the original."""
    assert getattr(from_file(tmp_path, line), field) == value


def test_a_later_source_wins(tmp_path: Path) -> None:
    """Defaults < file < environment < flags; an empty variable says nothing, an empty flag does."""
    file = tmp_path / "simulate.yaml"
    file.write_text("pluginName: file\nenvPrefix: file\nannotationPrefix: file\n")
    environment = {"PLUGIN_NAME": "env", "ENV_PREFIX": "env", "ANNOTATION_PREFIX": ""}
    flags = {"plugin_name": "flag", "env_prefix": None, "device_id_prefix": ""}
    (config,) = merge_resources(read_simulator_file(file), environment, flags)
    assert (config.plugin_name, config.env_prefix) == ("flag", "env")
    assert (config.annotation_prefix, config.device_id_prefix) == ("file", "")


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("RESOURCE_NAME", "foo", "'foo' is not a resource name: it needs a domain and a slash"),
        ("NUMBER_DEVICES", "-1", "-1 is negative"),
        ("NUMBER_DEVICES", "two", "'two' is not a whole number"),
        ("NUMBER_DEVICES", "1000000", "is more than any list holds"),
        ("PLUGIN_NAME", "a/b", "'a/b' cannot be the name of a socket"),
        ("PLUGIN_NAME", "kubelet", "'kubelet' cannot be the name of a socket"),
        ("DEVICE_ID_PREFIX", "a\nb", "must not contain"),
        ("ENV_PREFIX", "A=B", "'A=B' cannot be part of a variable's name"),
        ("DEVICE_FILE_PREFIX", "a/b", "must not contain '/'"),
        ("NODE_NAME", "a/b", "must not contain '/'"),
        ("DEVICE_PATH_STYLE", "name", "'name' is not known, must be index or id"),
        ("NUMA_NODES", "0;1", "'0;1' must be like 0,1 or like 0=0,1=1"),
        ("NUMA_NODES", "0,-1", "-1 is negative"),
        ("NUMA_NODES", "0=0,2=0", "there is no device 2, only 2 devices"),
    ],
)
def test_a_mistake_names_its_source(variable: str, text: str, problem: str) -> None:
    """The variable or the flag it came from."""
    setting = next(setting for setting in SETTINGS if setting.variable == variable)
    with pytest.raises(ConfigError) as caught:
        merge_resources(None, {variable: text}, {})
    assert str(caught.value).startswith(f"environment: {variable}: ")
    assert problem in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        merge_resources(None, {}, {setting.field: text})
    assert str(caught.value).startswith(f"command line: {setting.flag}: ")


def test_as_many_devices_as_a_list_holds() -> None:
    """One more is a mistake that says how many there may be; NUMA nodes take room, too."""
    given = {"device_id_prefix": "a" * 1000, "numa_nodes": "0,1"}
    with pytest.raises(ConfigError, match="more than a kubelet accepts in one list: ") as caught:
        merge_resources(None, {}, {**given, "number_devices": "10000"})
    (most,) = re.findall(r"in one list: (\d+) devices with IDs such as aaa", str(caught.value))
    (config,) = merge_resources(None, {}, {**given, "number_devices": most})
    devices = SimulatedDevices([config]).of("simple-device")
    assert len(DeviceListBuilder("example.com/gpu").build(devices).devices) == int(most)
    with pytest.raises(ConfigError):
        merge_resources(None, {}, {**given, "number_devices": str(int(most) + 1)})
    short = {"device_id_prefix": "a", "node_name": "b", "number_devices": "130000"}
    assert merge_resources(None, {}, short)[0].number_devices == 130_000


def test_a_mistake_in_the_file_names_its_place(tmp_path: Path) -> None:
    """All of them at once, those of other sources too."""
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, "numberDevicesOnNode: -2\nresourceName: foo\n", PLUGIN_NAME="/")
    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems] == [
        "simulate.yaml:2:15: resourceName: " + NO_RESOURCE,
        "simulate.yaml:1:22: numberDevicesOnNode: -2 is negative; a number of devices is 0 or more",
        "environment: PLUGIN_NAME: '/' cannot be the name of a socket",
    ]


def test_a_wrong_value_is_reported_once(tmp_path: Path) -> None:
    """Not for what it replaces as well."""
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, "numberDevicesOnNode: -2", NUMBER_DEVICES="x")
    assert str(caught.value) == "environment: NUMBER_DEVICES: 'x' is not a whole number"


def test_a_value_that_is_replaced_need_not_be_right(tmp_path: Path) -> None:
    """A template may carry what every deployment sets."""
    config = from_file(tmp_path, "resourceName: RESOURCE_NAME", RESOURCE_NAME="example.com/x")
    assert config.resource_name == "example.com/x"


MAP = "numberDevicesOnNode: 4\nnumaNodes: {0: 0, 1: 0, 2: 1, 3: 1}\n"


def test_a_source_that_wins_may_ask_for_fewer_devices(tmp_path: Path) -> None:
    """What the map of a source before it says of the others is for nobody."""
    file = tmp_path / "simulate.yaml"
    file.write_text(MAP)
    settings = read_simulator_file(file)
    (by_variable,) = merge_resources(settings, {"NUMBER_DEVICES": "2"}, {})
    (by_flag,) = merge_resources(settings, {"NUMA_NODES": "0=0,3=1"}, {"number_devices": "3"})
    assert (by_variable.number_devices, by_flag.number_devices) == (2, 3)
    assert [
        each.numa_nodes for each in SimulatedDevices([by_variable]).of("simple-device").values()
    ] == [(0,), (0,)]


@pytest.mark.parametrize(
    ("environment", "flags", "source"),
    [
        ({}, {}, "simulate.yaml:2:12: numaNodes: "),
        ({"NUMBER_DEVICES": "2", "NUMA_NODES": "2=0"}, {}, "environment: NUMA_NODES: "),
        ({"NUMBER_DEVICES": "2"}, {"numa_nodes": "2=0"}, "command line: --numa-nodes: "),
        ({}, {"number_devices": "2", "numa_nodes": "2=0"}, "command line: --numa-nodes: "),
    ],
)
def test_a_map_must_fit_what_its_own_source_counts(
    tmp_path: Path, environment: dict[str, str], flags: dict[str, str], source: str
) -> None:
    """And what sources before it count: whoever wrote it could know."""
    file = tmp_path / "simulate.yaml"
    file.write_text(MAP.replace("OnNode: 4", "OnNode: 2"))
    with pytest.raises(ConfigError) as caught:
        merge_resources(read_simulator_file(file), environment, flags)
    (problem,) = caught.value.problems
    told = str(problem).removeprefix(f"{tmp_path}/")
    assert told == f"{source}there is no device 2, only 2 devices of example.com/simple-device"


def test_a_wrong_type_in_the_file_is_a_mistake(tmp_path: Path) -> None:
    """Lenient is not careless."""
    with pytest.raises(ConfigError, match="numberDevicesOnNode: must be a whole number, not text"):
        from_file(tmp_path, "numberDevicesOnNode: many")
    with pytest.raises(ConfigError, match=r"numaNodes: must be a list, not a number \(\[0, 1\]"):
        from_file(tmp_path, "numaNodes: 2")


def test_unknown_keys_give_a_warning(tmp_path: Path) -> None:
    """The original ignores them."""
    file = tmp_path / "simulate.yaml"
    file.write_text("numberDevices: 3\nhealthPort: 8080\n")
    settings = read_simulator_file(file)
    assert settings.values == {}
    assert [str(warning).removeprefix(f"{file}:") for warning in settings.warnings] == [
        "1:1: numberDevices: unknown key, ignored (did you mean 'numberDevicesOnNode'?)",
        f"2:1: healthPort: unknown key, ignored (known: {KEYS})",
    ]


def make(style: str = "index", **more: object) -> list[Device]:
    config = SimulatorConfig(
        device_id_prefix="d", node_name="n", device_path_style=style, **more  # type: ignore[arg-type]
    )  # fmt: skip
    return list(SimulatedDevices([config]).of("simple-device").values())


PREFIXES = {"annotation_prefix": "a", "env_prefix": "E", "device_file_prefix": "f"}


def test_devices_are_named_by_index_as_the_originals_readme_says() -> None:
    """Our default."""
    assert make(**PREFIXES)[1] == Device(
        "d-n-1",
        env={"E_d-n-1": "/dev/1"},
        annotations={"a-d-n-1": ""},
        specs=[DeviceSpec("/dev/f-1", "/dev/f-1", "rw")],
        numa_nodes=(),
    )


def test_devices_are_named_by_id_as_the_originals_code_does() -> None:
    """On request."""
    assert make("id", **PREFIXES)[1] == Device(
        "d-n-1",
        env={"E_d-n-1": "/dev/d-n-1"},
        annotations={"a-d-n-1": ""},
        specs=[DeviceSpec("/dev/f-d-n-1", "/dev/f-d-n-1", "rw")],
        numa_nodes=(),
    )


def test_without_prefixes_a_device_gives_nothing() -> None:
    """Two healthy devices without env, annotation, device file or NUMA node."""
    assert make() == [Device("d-n-0", numa_nodes=()), Device("d-n-1", numa_nodes=())]
    assert make(number_devices=0) == []


def test_numa_nodes_are_dealt_out_in_turn_or_by_index() -> None:
    """A device that the map does not name has none."""
    in_turn = make(number_devices=5, numa_nodes=(0, 1))
    assert [device.numa_nodes for device in in_turn] == [(0,), (1,), (0,), (1,), (0,)]
    mapped = make(number_devices=3, numa_nodes={0: 1, 2: 0})
    assert [device.numa_nodes for device in mapped] == [(1,), (), (0,)]


def test_the_socket_is_called_after_the_plugin() -> None:
    """Not after the resource."""
    simulator = Simulator(SimulatorConfig(plugin_name="p", resource_name="a.example/b"))
    assert simulator.socket_name("b") == "p.sock"
    assert simulator.domain == "a.example"


class Recorder(Notifier):
    def __init__(self) -> None:
        super().__init__()
        self.trees: list[DeviceTree] = []

    def notify(self, tree: DeviceTree) -> None:
        self.trees.append(tree)


async def test_devices_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """And so is the warning that shells drop variables with a dash."""
    recorder = Recorder()
    config = SimulatorConfig(number_devices=3, node_name="n", env_prefix="GPU")
    await Simulator(config).scan(recorder)
    (tree,) = recorder.trees
    assert tree.count("simple-device") == 3
    (warning,) = caplog.messages
    assert warning.startswith("a shell drops variables with names such as GPU_simple-device-n-0")


async def test_a_simulator_without_devices_is_a_resource_with_none() -> None:
    """Capacity 0, not no resource."""
    recorder = Recorder()
    await Simulator(SimulatorConfig(number_devices=0)).scan(recorder)
    assert list(recorder.trees[0]) == ["simple-device"]


async def test_an_unknown_device_is_refused_in_the_originals_words() -> None:
    """NOT_FOUND; known ones get the default answer."""
    simulator = Simulator(SimulatorConfig(node_name="n")).abilities_of("simple-device")
    known = ContainerAllocateRequest(("simple-device-n-0",))
    assert await simulator.allocate(AllocateRequest((known,))) is USE_DEFAULT
    request = AllocateRequest((known, ContainerAllocateRequest(("simple-device-n-2",))))
    text = "requested device simple-device-n-2 is not available"
    with pytest.raises(RpcError, match=text) as caught:
        await simulator.allocate(request)
    assert (caught.value.code, caught.value.message) == (StatusCode.NOT_FOUND, text)


def test_an_answer_has_all_that_the_devices_give() -> None:
    """Two devices in one container."""
    found = {device.id: device for device in make(number_devices=2, **PREFIXES)}
    request = AllocateRequest((ContainerAllocateRequest(("d-n-1", "d-n-0")),))
    (answer,) = default_response(request, found).containers
    assert answer.env == {"E_d-n-0": "/dev/0", "E_d-n-1": "/dev/1"}
    assert answer.annotations == {"a-d-n-0": "", "a-d-n-1": ""}
    assert answer.devices == [DeviceSpec("/dev/f-0"), DeviceSpec("/dev/f-1")]
