"""podman checks our CDI files and our podman arguments."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.host.cdi_specs import read_registry, write_spec
from kubedevices.host.runtimes import cdi, engine
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.cdi import CdiDevice, CdiName, CdiSpec, ContainerEdits, DeviceNode, edits_of
from kubedevices.values.device import DeviceSpec, Mount
from tests.containers import try_to_open, two_devices
from tests.podman_judge import Podman, podman_judge
from tests.widgets import Widgets

KIND = "example.com/widget"


@pytest.fixture
def judge(short_dir: Path) -> Podman:
    """A separate podman, without any CDI file."""
    return podman_judge(short_dir)


def node(path: str, host_path: str = "") -> ContainerEdits:
    return ContainerEdits(device_nodes=(DeviceNode(path, host_path),))


def test_a_container_sees_the_devices_of_our_file(judge: Podman) -> None:
    """Podman applies our CDI file to containers that name the device, and to no other."""
    allocated, other = two_devices()
    devices = [
        CdiDevice("w0", container_edits=node("/dev/widget", allocated)),
        CdiDevice("w1", container_edits=node(other)),
    ]
    CdiInventory(judge.run_cdi, read_also=[judge.etc_cdi]).publish({KIND: devices})
    done = judge.run([f"--device={KIND}=w0"], try_to_open("/dev/widget", other))
    assert done.stdout.splitlines() == ["opened /dev/widget", f"refused {other}"], done.stderr
    done = judge.run([], try_to_open("/dev/widget"))
    assert done.stdout.splitlines() == ["refused /dev/widget"], done.stderr


def test_podman_accepts_each_cdi_version_that_we_write(judge: Podman) -> None:
    """We write the lowest version that has the needed fields, and podman 4.3 reads it."""
    allocated, _ = two_devices()
    plain = CdiDevice("plain", container_edits=ContainerEdits(env=("A=1",)))
    typed = edits_of(mounts=[Mount("/etc/hostname", "/tmp/name", read_only=True)])
    contents = {
        "v3": CdiSpec(kind="example.com/v3", devices=(plain,)),
        "v3m": CdiSpec(kind="example.com/v3m", devices=(CdiDevice("m", (), typed),)),
        "v5": CdiSpec(kind="example.com/v5", devices=(CdiDevice("0", (), node("/d", allocated)),)),
    }
    for name, spec in contents.items():
        write_spec(judge.run_cdi, f"{name}.json", spec)
    names = [str(CdiName.of(spec.kind, spec.devices[0].name)) for spec in contents.values()]
    script = 'echo "$A"; read line </tmp/name && echo named; : </d && echo opened'
    done = judge.run([f"--device={name}" for name in names], ["/bin/sh", "-c", script])
    assert done.stdout.splitlines() == ["1", "named", "opened"], done.stderr


def test_podman_and_we_agree_which_names_resolve(judge: Podman) -> None:
    """Precedence, conflicts, broken files and file endings: our answer equals the runtime's."""

    def put(path: Path, *devices: str, kind: str = KIND) -> None:
        edits = ContainerEdits(env=(f"FROM={path.parent.name}/{path.name}",))
        members = tuple(CdiDevice(device, container_edits=edits) for device in devices)
        write_spec(path.parent, path.name, CdiSpec(kind=kind, devices=members))

    put(judge.etc_cdi / "a.json", "below", "both", "twice-below")
    put(judge.etc_cdi / "b.json", "twice-below")
    put(judge.run_cdi / "c.json", "both", "twice-below", "twice")
    put(judge.run_cdi / "d.yaml", "twice", "fine")
    put(judge.run_cdi / "e.yml", "ending")
    (judge.run_cdi / "broken.json").write_text('{"cdiVersion": "0.5.0", "kind": "example.com/bad"}')
    registry = read_registry([judge.etc_cdi, judge.run_cdi])
    devices = ["below", "both", "twice-below", "twice", "fine", "ending", "missing"]
    names = [f"{KIND}={device}" for device in devices]
    script = "\n".join(
        f"{judge.command([f'--device={name}'], ['/bin/sh', '-c', 'echo $FROM'])} || echo no"
        for name in names
    )
    done = judge.shell(script.replace("set -e", ""))
    ours = [
        env.removeprefix("FROM=").replace("run-cdi/", "cdi/")
        for name in names
        for env in (registry.edits([name]).env if registry.explain(name).resolves else ("no",))
    ]
    theirs = [line.replace("run-cdi/", "cdi/") for line in done.stdout.splitlines()]
    assert theirs == ours == ["cdi/a.json", "cdi/c.json", "no", "no", "cdi/d.yaml", "no", "no"]


def test_printed_podman_arguments_start_a_container(judge: Podman) -> None:
    """Device, mount, variable, annotation and CDI name all arrive in the container."""
    allocated, other = two_devices()
    write_spec(
        judge.run_cdi,
        "w.json",
        CdiSpec(kind=KIND, devices=(CdiDevice("w", container_edits=node(other)),)),
    )
    shared = judge.directory / "shared, and more"
    shared.mkdir()
    (shared / "note").write_text("hello\n")
    options = ContainerOptions(
        env={"WIDGET": "two words"},
        devices=(DeviceSpec(allocated, "/dev/mine", "rw"),),
        mounts=(Mount(str(shared), "/shared", read_only=True),),
        annotations={"example.com/widget": "0"},
        cdi_devices=(f"{KIND}=w",),
    )
    script = (
        'echo "$WIDGET"; read line </shared/note && echo "$line"; (echo >/shared/x) || echo ro;'
    )
    opening = f": </dev/mine && : <{other} && echo opened"
    done = judge.run(engine.args("podman", options), ["/bin/sh", "-c", f"{script} {opening}"])
    assert done.stdout.splitlines() == ["two words", "hello", "ro", "opened"], done.stderr


def test_an_allocation_as_a_cdi_file_starts_a_container(judge: Podman) -> None:
    """One CDI name for all parts of the allocation."""
    allocated, _ = two_devices()
    options = ContainerOptions(env={"WIDGET": "0"}, devices=(DeviceSpec(allocated, "/dev/mine"),))
    name = CdiName.parse("kubedevices.local/allocation=pod-1")
    (judge.run_cdi / "pod-1.json").write_text(cdi.text(options, name))
    done = judge.run([f"--device={name}"], try_to_open("/dev/mine"))
    assert done.stdout.splitlines() == ["opened /dev/mine"], done.stderr


async def test_podman_starts_a_container_with_a_published_cdi_name(judge: Podman) -> None:
    """From a scanner's device to a container, by CDI name alone; also after the plugin ended."""
    allocated, other = two_devices()
    device = kd.Device("w0", paths=[allocated])
    sockets = judge.directory / "p"
    sockets.mkdir()
    async with (
        DeviceManager(sockets) as manager,
        kd.serve(
            Widgets(widget=[device]),
            domain="example.com",
            socket_dir=sockets,
            inject="cdi",
            cdi_dir=judge.run_cdi,
        ),
    ):
        await manager.wait_for(KIND, allocatable=1)
        pod = Pod("train", containers=(Container("main", {KIND: 1}),))
        await manager.allocate(pod)
        options = await manager.get_device_run_container_options(pod, "main")
        assert options is not None
    assert (options.devices, options.cdi_devices) == ((), (f"{KIND}=w0",))
    done = judge.run(engine.args("podman", options), try_to_open(allocated, other))
    assert done.stdout.splitlines() == [f"opened {allocated}", f"refused {other}"], done.stderr
