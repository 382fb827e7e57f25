"""The CDI files of a running plugin."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import CdiWriteFailed, InvalidCdiSpec, RpcError, StatusCode, UsageError
from kubedevices.host import cdi_inventory, cdi_specs
from kubedevices.host.cdi_specs import read_registry, read_spec_file
from kubedevices.plugin import cdi, options
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.scanners import static
from kubedevices.rules.replicas import replicate
from kubedevices.serving.modes import serve
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
)
from kubedevices.values.cdi import CdiDevice, ContainerEdits
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, healthy

FILE = "kubedevices_example.com-widget.json"


def edits(value: str) -> ContainerEdits:
    return ContainerEdits(env=(f"WIDGET={value}",))


def widget(name: str, value: str = "1", **parts: Any) -> kd.Device:
    return kd.Device(name, cdi=edits(value), numa_nodes=(), **parts)


@pytest.fixture
def cdi_dir(short_dir: Path) -> Path:
    """A directory for CDI files that is not there yet."""
    return short_dir / "run/cdi"


@asynccontextmanager
async def serving(
    scanner: kd.Scanner, directory: Path, **options: Any
) -> AsyncIterator[tuple[FakeKubelet, PluginRunner]]:
    """Run a plugin beside a kubelet that knows it."""
    options = {"timing": QUICK, "cdi_dir": directory / "run/cdi", **options}
    async with (
        FakeKubelet(directory) as kubelet,
        serve(scanner, domain=DOMAIN, socket_dir=directory, **options) as runner,
    ):
        yield kubelet, runner


async def allocate(runner: PluginRunner, *ids: str) -> ContainerAllocateResponse:
    request = AllocateRequest((ContainerAllocateRequest(ids),))
    return (await runner.servers["widget"].allocate(request)).containers[0]


def resolved(cdi_dir: Path, name: str) -> tuple[str, ...]:
    return read_registry([cdi_dir]).edits([name]).env


async def test_a_file_is_there_before_the_list_is(short_dir: Path, cdi_dir: Path) -> None:
    """Whoever hears of a device can resolve its name; file 0644, directory 0755."""
    async with serving(Widgets(widget=[widget("w0")]), short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        assert resolved(cdi_dir, f"{RESOURCE}=w0") == ("WIDGET=1",)
        assert (cdi_dir / FILE).stat().st_mode & 0o777 == 0o644
        assert cdi_dir.stat().st_mode & 0o777 == 0o755
        assert (await allocate(runner, "w0")).cdi_devices == [f"{RESOURCE}=w0"]


async def test_the_order_is_file_then_list(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by chance: while the file is held up, the list of the new device is not sent."""
    scanner = Widgets(widget=[widget("w0")])
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    publish = cdi_inventory.CdiInventory.publish

    def publish_late(self: Any, devices: Any) -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(10)
        publish(self, devices)

    async with serving(scanner, short_dir) as (kubelet, _):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        monkeypatch.setattr(cdi_inventory.CdiInventory, "publish", publish_late)
        scanner.show(widget=[widget("w0"), widget("w1")])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kubelet.wait_for(RESOURCE, healthy("w0", "w1")), 0.1)
        release.set()
        await kubelet.wait_for(RESOURCE, healthy("w0", "w1"))


async def test_changed_edits_are_written(short_dir: Path, cdi_dir: Path) -> None:
    """A refresh needs no new device, and no Allocate."""
    scanner = Widgets(widget=[widget("w0")])
    async with serving(scanner, short_dir) as (kubelet, _):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        scanner.show(widget=[widget("w0", "2")])
        await until(lambda: resolved(cdi_dir, f"{RESOURCE}=w0") == ("WIDGET=2",))


async def test_a_removed_file_is_back_at_allocate(short_dir: Path, cdi_dir: Path) -> None:
    """The name in the answer resolves, whoever tidied up."""
    async with serving(Widgets(widget=[widget("w0")]), short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        (cdi_dir / FILE).unlink()
        assert (await allocate(runner, "w0")).cdi_devices == [f"{RESOURCE}=w0"]
        assert resolved(cdi_dir, f"{RESOURCE}=w0") == ("WIDGET=1",)


async def test_a_foreign_definition_is_left_alone(short_dir: Path, cdi_dir: Path) -> None:
    """The administrator's device wins, and is what the name means."""
    device = CdiDevice("w0", container_edits=edits("theirs"))
    cdi_specs.write_spec(cdi_dir, "admin.json", kd_spec(RESOURCE, device))
    async with serving(Widgets(widget=[widget("w0")]), short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        assert (await allocate(runner, "w0")).cdi_devices == [f"{RESOURCE}=w0"]
    assert resolved(cdi_dir, f"{RESOURCE}=w0") == ("WIDGET=theirs",)


def kd_spec(kind: str, *devices: CdiDevice) -> Any:
    from kubedevices.values.cdi import CdiSpec

    return CdiSpec(kind=kind, devices=devices)


async def test_removed_devices_leave_the_files_and_the_end_removes_nothing(
    short_dir: Path, cdi_dir: Path
) -> None:
    """A device goes from the file, the last one with the file; a stop changes nothing."""
    scanner = Widgets(widget=[widget("w0"), widget("w1")], tool=[widget("t")])
    async with serving(scanner, short_dir) as (kubelet, _):
        await kubelet.wait_for(RESOURCE, healthy("w0", "w1"))
        scanner.show(widget=[widget("w0")])
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        spec = read_spec_file(cdi_dir / FILE).spec
        assert spec is not None
        assert [each.name for each in spec.devices] == ["w0"]
        assert [path.name for path in cdi_dir.iterdir()] == [FILE]
    assert resolved(cdi_dir, f"{RESOURCE}=w0") == ("WIDGET=1",)


async def test_a_name_lives_as_long_as_its_device(short_dir: Path, cdi_dir: Path) -> None:
    """A container that got it is started again by it, though nobody gets it any more."""
    scanner = Widgets(widget=[widget("w0"), widget("w1")])
    plain = [kd.Device(name, paths=["/dev/null"], numa_nodes=()) for name in ("w0", "w1")]
    async with serving(scanner, short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0", "w1"))
        scanner.show(widget=plain)
        await until(lambda: not runner.servers["widget"].devices["w0"].cdi)
        assert (await allocate(runner, "w0")).cdi_devices == []
        assert resolved(cdi_dir, f"{RESOURCE}=w0") == ("WIDGET=1",)
    async with serving(Widgets(widget=plain[:1]), short_dir) as (kubelet, _):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        spec = read_spec_file(cdi_dir / FILE).spec
        assert spec is not None
        assert [each.name for each in spec.devices] == ["w0"]


@pytest.mark.parametrize("types", [{}, {"widget": []}, {"tool": [widget("t")]}])
async def test_files_of_an_earlier_run_are_removed_after_the_first_scan(
    short_dir: Path, cdi_dir: Path, types: dict[str, list[kd.Device]]
) -> None:
    """Also when that scan finds nothing at all, and nothing of other vendors."""
    device = CdiDevice("old", container_edits=edits("old"))
    for kind in (RESOURCE, "other.com/widget"):
        cdi_specs.write_spec(cdi_dir, cdi_specs.file_name(kind), kd_spec(kind, device))
    scanner = Widgets(**types)
    async with serving(scanner, short_dir):
        await until(lambda: not (cdi_dir / FILE).exists())
    assert (cdi_dir / "kubedevices_other.com-widget.json").exists()


async def test_a_living_neighbour_of_the_same_domain_keeps_its_files(
    short_dir: Path, cdi_dir: Path
) -> None:
    """Two plugins may share a domain; the second does not take the first's file for dead."""
    async with serving(Widgets(widget=[widget("w0")]), short_dir) as (kubelet, _):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        other = Widgets(tool=[widget("t")])
        async with serve(other, domain=DOMAIN, socket_dir=short_dir, cdi_dir=cdi_dir, timing=QUICK):
            await kubelet.wait_for("example.com/tool", healthy("t"))
            assert (cdi_dir / FILE).exists()


async def test_a_file_that_cannot_be_written_fails_allocate(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INTERNAL with the reason; the list is sent all the same, and it heals by itself."""
    write = cdi_specs.write_text
    monkeypatch.setattr(cdi_specs, "write_text", _refuse)
    async with serving(Widgets(widget=[widget("w0")]), short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        with pytest.raises(RpcError, match="cannot write the CDI file") as caught:
            await allocate(runner, "w0")
        assert caught.value.code is StatusCode.INTERNAL
        monkeypatch.setattr(cdi_specs, "write_text", write)
        assert (await allocate(runner, "w0")).cdi_devices == [f"{RESOURCE}=w0"]


async def test_write_errors_may_be_logged_instead(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the container starts without its CDI device."""
    monkeypatch.setattr(cdi_specs, "write_text", _refuse)
    options = {"cdi_errors": "log", "cdi_annotations": True}
    async with serving(Widgets(widget=[widget("w0", env={"A": "1"})]), short_dir, **options) as (
        kubelet,
        runner,
    ):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        answer = await allocate(runner, "w0")
        assert (answer.cdi_devices, answer.annotations, answer.env) == ([], {}, {"A": "1"})
    assert "cannot write the CDI file" in caplog.text


def _refuse(path: Path, *_: object, **__: object) -> bool:
    raise CdiWriteFailed(str(path), "No space left on device")


async def test_annotations_name_the_same_devices(short_dir: Path) -> None:
    """On request; the default is the field alone."""
    for is_wanted in (False, True):
        scanner = Widgets(widget=[widget("w0"), widget("w1")])
        async with serving(scanner, short_dir, cdi_annotations=is_wanted) as (kubelet, runner):
            await kubelet.wait_for(RESOURCE, healthy("w0", "w1"))
            annotations = (await allocate(runner, "w0", "w1")).annotations
        assert list(annotations.values()) == [f"{RESOURCE}=w0,{RESOURCE}=w1"] * is_wanted
        assert all(key.startswith("cdi.k8s.io/example.com.widget_") for key in annotations)


async def test_inject_cdi_writes_device_files_into_cdi(short_dir: Path, cdi_dir: Path) -> None:
    """The answer has the name alone; a link is resolved, because engines refuse it."""
    dev = short_dir / "dev"
    dev.mkdir()
    (dev / "real0").touch()
    (dev / "widget0").symlink_to("real0")
    device = kd.Device("w0", paths=["/dev/widget0", "/dev/real0"], numa_nodes=())
    options = {"inject": "cdi", "dev_root": dev}
    async with serving(Widgets(widget=[device]), short_dir, **options) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        answer = await allocate(runner, "w0")
    assert (answer.devices, answer.cdi_devices) == ([], [f"{RESOURCE}=w0"])
    nodes = read_registry([cdi_dir]).edits([f"{RESOURCE}=w0"]).device_nodes
    assert [(node.path, node.host_path) for node in nodes] == [
        ("/dev/widget0", "/dev/real0"),
        ("/dev/real0", ""),
    ]


async def test_inject_nodes_writes_and_removes_nothing(short_dir: Path, cdi_dir: Path) -> None:
    """Containers that were started with names before the change still need their file."""
    device = CdiDevice("old", container_edits=edits("old"))
    cdi_specs.write_spec(cdi_dir, FILE, kd_spec(RESOURCE, device))
    scanner = Widgets(widget=[widget("w0", paths=["/dev/null"])])
    async with serving(scanner, short_dir, inject="nodes") as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        answer = await allocate(runner, "w0")
        assert ([each.host_path for each in answer.devices], answer.cdi_devices) == (
            ["/dev/null"],
            [],
        )
    assert resolved(cdi_dir, f"{RESOURCE}=old") == ("WIDGET=old",)


async def test_files_for_a_plugins_own_answer_are_checked_too(
    short_dir: Path, cdi_dir: Path
) -> None:
    """A hook may name the devices itself; a foreign name passes."""

    class Own(Widgets, kd.Allocator):
        def allocate(self, request: AllocateRequest) -> AllocateResponse:
            names = [f"{RESOURCE}=w0", "other.com/c=x"]
            return AllocateResponse([ContainerAllocateResponse(cdi_devices=names)])

    async with serving(Own(widget=[widget("w0")]), short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, healthy("w0"))
        (cdi_dir / FILE).unlink()
        assert len((await allocate(runner, "w0")).cdi_devices) == 2
        assert (cdi_dir / FILE).exists()


async def test_two_devices_with_one_cdi_name_end_the_plugin(short_dir: Path) -> None:
    """Two meanings of one name: the author's mistake, told with the name."""
    same = [CdiDevice("same", container_edits=edits(value)) for value in "12"]
    scanner = Widgets(widget=[kd.Device(d.container_edits.env[0], cdi=d) for d in same])
    runner = PluginRunner(
        scanner, domain=DOMAIN, socket_dir=short_dir, cdi_dir=short_dir / "cdi", timing=QUICK
    )
    with pytest.raises(InvalidCdiSpec, match="same"):
        await asyncio.wait_for(runner.run(), 10)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inject": "all"}, "inject must be one of 'nodes', 'cdi', 'both'"),
        ({"cdi_errors": "raise"}, "cdi_errors must be one of 'fail', 'log'"),
    ],
)
def test_wrong_options_are_an_error(options: dict[str, Any], text: str) -> None:
    """At the start."""
    make: Callable[..., PluginRunner] = PluginRunner
    with pytest.raises(UsageError, match=text):
        make(Widgets(), domain=DOMAIN, **options)


def test_a_plugin_without_cdi_loads_no_module_of_cdi() -> None:
    """What nobody uses costs nothing."""
    program = (
        "import sys; import kubedevices; from kubedevices.plugin import runner;"
        "kubedevices.Device('w', paths=['/dev/null']);"
        "print([name for name in sys.modules if 'cdi' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['kubedevices.plugin.cdi']"


async def test_replicas_of_a_named_cdi_device_share_it(short_dir: Path, cdi_dir: Path) -> None:
    """The same definition under one name is one CDI device, however many IDs lead to it."""
    card = kd.Device("card", cdi=CdiDevice("card0", container_edits=edits("1")), numa_nodes=())
    tree = replicate(kd.DeviceTree({"widget": [card]}), 2)
    async with serving(static(tree), short_dir) as (kubelet, runner):
        await kubelet.wait_for(RESOURCE, 2)
        assert resolved(cdi_dir, f"{RESOURCE}=card0") == ("WIDGET=1",)
        answer = await allocate(runner, "card::0", "card::1")
        assert answer.cdi_devices == [f"{RESOURCE}=card0"]


def test_the_repeated_constants_agree() -> None:
    """A plugin without CDI does not load the module that writes the files."""
    assert f"{cdi_specs.PREFIX}*" == cdi._OURS
    assert options.CDI_DIR == cdi_specs.GENERATED_DIRECTORY
