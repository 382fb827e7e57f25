"""`kubedevices simulate`: several resources, faults, and telling it what to do."""

from pathlib import Path

import pytest

from kubedevices.errors import RpcError
from kubedevices.host.cdi_specs import read_registry
from kubedevices.simulate.settings import SETTINGS
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from tests.cli.commands import run, running
from tests.command_line import CommandLine
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until

WORLD = """\
deviceIDPrefix: d
resources:
- {resourceName: example.com/gpu, preferred: packed}
- {resourceName: example.com/nic, preStart: {failEvery: 2}}
- {resourceName: example.com/mute, faults: {neverList: true}}
- {resourceName: example.com/short, faults: {dropStreamEvery: 300ms}}
"""


@pytest.fixture(autouse=True)
def directory(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in (*(s.variable for s in SETTINGS), "PLUGIN_SOCK_DIR", "REGISTER_CONTROL_FILE"):
        monkeypatch.delenv(variable, raising=False)
    (short_dir / "s").mkdir()
    (short_dir / "world.yaml").write_text(WORLD)
    monkeypatch.chdir(short_dir)
    return short_dir


async def test_each_resource_is_served_in_its_way(directory: Path) -> None:
    """Options differ; one sends no list, one drops its streams and comes back."""
    env = {"NODE_NAME": "n", "PLUGIN_SOCK_DIR": "s"}
    async with FakeKubelet(directory / "s") as kubelet:
        with running(["simulate", "--config", "world.yaml"], env=env, log=directory / "log"):
            gpu = await kubelet.wait_for("example.com/gpu", 2)
            nic = await kubelet.wait_for("example.com/nic", 2)
            assert gpu.options.get_preferred_allocation_available
            assert not gpu.options.pre_start_required
            assert nic.options.pre_start_required
            assert {request.endpoint.partition(".")[0] for request in kubelet.requests} == {
                f"simple-device-plugin-{name}" for name in ("gpu", "nic", "mute", "short")
            }
            await until(
                lambda: sum(each.resource == "example.com/short" for each in kubelet.accepted) > 1
            )
            assert kubelet.connected("example.com/mute")
            assert kubelet.lists("example.com/mute") == []
            assert kubelet.connected("example.com/gpu") == [gpu]


async def test_a_running_simulator_accepts_steps(directory: Path) -> None:
    """With the same command, in the words of a timeline."""
    serve = ["simulate", "--control-socket", "sim.sock", "--socket-dir", "s"]
    tell = ["simulate", "--control-socket", "sim.sock", "--tell"]
    async with FakeKubelet(directory / "s") as kubelet:
        with running(serve, env={"NODE_NAME": "n"}, log=directory / "log"):
            await kubelet.wait_for("example.com/simple-device", 2)
            await until((directory / "sim.sock").exists)
            ended = run(*tell, '{set: {id: "*-1", health: Unhealthy}}')
            assert (ended.returncode, ended.stdout) == (0, "1 device\n")
            await kubelet.wait_for(
                "example.com/simple-device",
                {"simple-device-n-0": "Healthy", "simple-device-n-1": "Unhealthy"},
            )
            assert run(*tell, "list").stdout == (
                "simple-device:\n  simple-device-n-0: Healthy\n  simple-device-n-1: Unhealthy\n"
            )
            ended = run(*tell, "{remove: nothing}")
            assert (ended.returncode, ended.stdout) == (1, "0 devices\n")
            ended = run(*tell, "{cuont: 3}")
            problem = "kubedevices: the step: cuont: unknown key (did you mean 'count'?)\n"
            assert (ended.returncode, ended.stderr) == (2, problem)


async def test_faults_are_switched_while_it_runs(directory: Path) -> None:
    """At once, and off again."""
    serve = ["simulate", "--control-socket", "sim.sock", "--socket-dir", "s"]
    tell = ["simulate", "--control-socket", "sim.sock", "--tell"]
    wanted = AllocateRequest((ContainerAllocateRequest(("simple-device-n-0",)),))
    async with FakeKubelet(directory / "s") as kubelet:
        with running(serve, env={"NODE_NAME": "n"}, log=directory / "log"):
            connected = await kubelet.wait_for("example.com/simple-device", 2)
            await until((directory / "sim.sock").exists)
            assert run(*tell, "{faults: {failAllocateEvery: 1}}").stdout == "2 devices\n"
            with pytest.raises(RpcError, match="simulated failure"):
                await connected.client.allocate(wanted, timeout=5)
            assert run(*tell, "{faults: {}}").returncode == 0
            await connected.client.allocate(wanted, timeout=5)


def test_settings_can_be_checked(directory: Path, cli: CommandLine) -> None:
    """Without serving; the schema says the keys."""
    out = cli("simulate", "--config", "world.yaml", "--check").out
    assert out == "world.yaml: 4 resources, no mistakes\n"
    (directory / "world.yaml").write_text(WORLD.replace("300ms", "soon"))
    assert "world.yaml:6:" in cli("simulate", "--config", "world.yaml", "--check", code=2).err
    schema = cli("simulate", "--schema").data
    resource = schema["properties"]["resources"]["items"]
    assert resource["required"] == ["resourceName"]
    assert "allocateDelay" in resource["properties"]["faults"]["properties"]
    assert "faults" in schema["properties"]["timeline"]["items"]["properties"]


async def test_cdi_files_follow_the_devices(directory: Path) -> None:
    """A device is in the file before it is in a list; verbs add and remove; the end does not."""
    serve = ["simulate", "--cdi", "--cdi-dir", "cdi", "--number-devices", "1", "--env-prefix", "E"]
    serve += ["--control-socket", "sim.sock", "--socket-dir", "s", "--cdi-annotations"]
    tell = ["simulate", "--control-socket", "sim.sock", "--tell"]
    resource, first = "example.com/simple-device", "simple-device-n-0"

    def defined() -> dict[str, tuple[str, ...]]:
        registry = read_registry([directory / "cdi"])
        return {name.partition("=")[2]: registry.edits([name]).env for name in registry.devices}

    async with FakeKubelet(directory / "s") as kubelet:
        with running(serve, env={"NODE_NAME": "n"}, log=directory / "log"):
            connected = await kubelet.wait_for(resource, 1)
            assert defined() == {first: (f"E_{first}=/dev/0",)}
            request = AllocateRequest((ContainerAllocateRequest((first,)),))
            (answer,) = (await connected.client.allocate(request, timeout=5)).containers
            assert answer.cdi_devices == [f"{resource}={first}"]
            assert [*answer.annotations.values()] == answer.cdi_devices
            assert run(*tell, "{add: [spare]}").returncode == 0
            await kubelet.wait_for(resource, 2)
            assert defined().keys() == {first, "spare"}
            assert run(*tell, '{remove: "*-0"}').returncode == 0
            await kubelet.wait_for(resource, 1)
            assert defined().keys() == {"spare"}
    assert defined().keys() == {"spare"}


@pytest.mark.parametrize("errors", ["fail", "log"])
async def test_a_cdi_directory_that_is_a_file(errors: str, directory: Path) -> None:
    """Allocations fail with the reason or, if that is wanted, go on without CDI."""
    (directory / "cdi").touch()
    serve = ["simulate", "--cdi", "--cdi-dir", "cdi", "--cdi-errors", errors, "--socket-dir", "s"]
    async with FakeKubelet(directory / "s") as kubelet:
        with running(serve, env={"NODE_NAME": "n"}, log=directory / "log"):
            connected = await kubelet.wait_for("example.com/simple-device", 2)
            request = AllocateRequest((ContainerAllocateRequest(("simple-device-n-0",)),))
            if errors == "fail":
                with pytest.raises(RpcError, match="cannot write the CDI file"):
                    await connected.client.allocate(request, timeout=5)
            else:
                (answer,) = (await connected.client.allocate(request, timeout=5)).containers
                assert answer.cdi_devices == []
    assert "cannot write the CDI file" in (directory / "log").read_text()


async def test_registration_can_be_held_up(directory: Path) -> None:
    """Until a file is deleted, as the sample plugin of Kubernetes does."""
    hold = directory / "hold"
    hold.touch()
    env = {"REGISTER_CONTROL_FILE": str(hold), "PLUGIN_SOCK_DIR": "elsewhere"}  # the option wins
    log = directory / "log"
    async with FakeKubelet(directory / "s") as kubelet:
        with running(["simulate", "--socket-dir", "s"], env=env, log=log):
            await until(lambda: "not registering before" in log.read_text())
            assert kubelet.requests == []
            hold.unlink()
            await kubelet.wait_for("example.com/simple-device", 2)


async def test_the_preset_is_served(directory: Path) -> None:
    """Eight GPUs on two NUMA nodes; settings still count."""
    arguments = ["simulate", "--preset", "eight-gpus", "--socket-dir", "s"]
    env = {"RESOURCE_NAME": "example.com/card"}
    async with FakeKubelet(directory / "s") as kubelet:
        with running(arguments, env=env, log=directory / "log"):
            card = await kubelet.wait_for("example.com/card", 8)
            assert {device.numa_nodes for device in card.lists[0]} == {(0,), (1,)}


async def test_the_preset_is_served_with_fewer_devices(directory: Path) -> None:
    """A flag wins over the file, whose map knows more devices."""
    arguments = ["simulate", "--preset", "eight-gpus", "--number-devices", "4"]
    async with FakeKubelet(directory / "s") as kubelet:
        with running([*arguments, "--socket-dir", "s"], log=directory / "log"):
            gpu = await kubelet.wait_for("example.com/gpu", 4)
            assert {device.numa_nodes for device in gpu.lists[0]} == {(0,)}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--preset", "x"], 2, "there is no preset 'x', only eight-gpus"),
        (["--preset", "eight-gpus", "--config", "x"], 2, "not allowed with argument"),
        (["--tell", "{count: 1}"], 2, "--tell needs --control-socket PATH"),
        (["--tell", "[", "--control-socket", "x"], 2, "--tell: not valid YAML"),
        (["--tell", "count", "--control-socket", "x"], 2, "--tell: 'count' is not a step"),
        (["--tell", "{count: 1}", "--control-socket", "x"], 3, "cannot connect to x"),
    ],
)
def test_wrong_usage_is_reported(
    arguments: list[str], code: int, message: str, cli: CommandLine
) -> None:
    """In one line."""
    captured = cli("simulate", *arguments, code=code)
    assert message in captured.err
    assert captured.err.count("\n") == 1
