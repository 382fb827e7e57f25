"""Putting facts and judgements together: where a kubelet keeps what, and who is asked."""

from dataclasses import replace
from pathlib import Path

from kubedevices.explain.on_node import diagnosis
from kubedevices.explain.on_node.diagnosis import explain
from kubedevices.explain.on_node.facts import Kubelet, ProcessFacts, RegistrySocket, Socket
from kubedevices.explain.on_node.host_paths import HostPaths, below_kubelet_root, find_host_root
from kubedevices.explain.on_node.look_node import policy_of
from kubedevices.kubelet_api.dra import PLUGIN_TYPE
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.values.allocation import PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer
from tests.explain.on_node.test_judge_directory import GOOD, OFFER, SERVED
from tests.explain.on_node.test_look_processes import add_process

NAME = "example.com/widget"


def test_places_that_follow_the_root_directory(tmp_path: Path) -> None:
    """Beside the plugin directory if it is there, else below a root that has it."""
    directory = tmp_path / "k" / "device-plugins"
    roots = [tmp_path / "none", tmp_path / "root"]
    (tmp_path / "root" / "pr").mkdir(parents=True)
    assert below_kubelet_root(directory, roots, "pr") == tmp_path / "root" / "pr"
    assert below_kubelet_root(directory, [], "pr") == tmp_path / "k" / "pr"
    (tmp_path / "k" / "pr").mkdir(parents=True)
    assert below_kubelet_root(directory, roots, "pr") == tmp_path / "k" / "pr"
    # Where it cannot look, there is nothing for it.
    unusable = Path("/" + "x" * 300)
    assert below_kubelet_root(directory, [unusable], "none") == tmp_path / "k" / "none"
    assert (
        below_kubelet_root(unusable / "device-plugins", [tmp_path / "root"], "pr")
        == roots[1] / "pr"
    )


def test_a_plugin_of_the_registry_belongs_to_the_resource_it_names() -> None:
    """Those of the plugin directory do not tell, so each of them may be it."""
    plugin = Socket(Path("/p/w.sock"))
    watched = [
        RegistrySocket(Path("/r/w.sock"), OFFER),
        RegistrySocket(Path("/r/other.sock"), OFFER._replace(name="example.com/other")),
        RegistrySocket(Path("/r/left.sock"), problem="no plugin answers"),
    ]
    directory = replace(GOOD, plugins=(plugin,))
    assert diagnosis._plugins_of(NAME, directory, watched) == (plugin, Socket(Path("/r/w.sock")))


async def test_an_unreadable_checkpoint_is_a_problem(short_dir: Path) -> None:
    """Whatever else is known; one that cannot be opened is unknown, one that is missing is none."""
    places = HostPaths(short_dir, short_dir / "s", short_dir / "nobody.sock", short_dir / "none")
    assert not [each for each in (await explain(places)).findings if each.step == "held"]
    (short_dir / "kubelet_internal_checkpoint").write_text("{}")
    (told,) = [each for each in (await explain(places)).findings if each.step == "held"]
    assert str(told.result) == "problem"
    assert told.command == f"kubedevices checkpoint show {short_dir}/kubelet_internal_checkpoint"
    (short_dir / "kubelet_internal_checkpoint").unlink()
    (short_dir / "kubelet_internal_checkpoint").mkdir()
    (told,) = [each for each in (await explain(places)).findings if each.step == "held"]
    assert (str(told.result), "cannot read" in told.found) == ("unknown", True)


def test_the_policy_is_that_of_the_kubelet_that_serves_the_directory() -> None:
    """Others run in containers of the same host; with one there is no question."""
    ours = Kubelet(ProcessFacts(7, "kubelet"), Path("/k"), "restricted")
    other = Kubelet(ProcessFacts(5, "kubelet"), Path("/k"), "none")
    directory = replace(GOOD, kubelet=SERVED)
    assert policy_of(directory, [other, ours]) == "restricted"
    assert policy_of(directory, [other]) == "none"
    assert policy_of(replace(directory, kubelet=None), [other, ours]) is None
    assert policy_of(directory, []) is None


def test_a_debugging_pod_is_known_by_its_mount(tmp_path: Path) -> None:
    """`kubectl debug node` mounts the host at /host, and has no kubelet's directory of its own."""
    assert find_host_root(tmp_path) == Path("/")
    (tmp_path / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    assert find_host_root(tmp_path, tmp_path / "none") == tmp_path
    assert find_host_root(tmp_path, tmp_path / "var") == Path("/")


async def test_a_driver_in_another_root_directory_is_not_registered(short_dir: Path) -> None:
    """The kubelet has another --root-dir than the driver knows."""
    proc = short_dir / "proc"
    add_process(proc, 9, "kubelet", "--root-dir=/data/k")
    places = HostPaths.below(short_dir, proc_root=proc)
    for root in (short_dir / "data/k", short_dir / "var/lib/kubelet"):
        (root / "plugins_registry").mkdir(parents=True)
    places.socket_dir.mkdir()
    info = PluginInfo(PLUGIN_TYPE, "gpu.vendor.org", "/p/dra.sock", ("v1.DRAPlugin",))
    usual = short_dir / "var/lib/kubelet/plugins_registry"
    server = GrpcServer(plugin_registration_methods(Registers(info)), name="driver")
    await server.start(usual / "gpu.vendor.org-reg.sock")
    try:
        for subject in ("gpu.vendor.org", ""):
            found = [
                each for each in (await explain(places, subject)).findings if each.step == "driver"
            ]
            assert [str(each.result) for each in found] == ["problem"]
            assert f"the kubelet of this host looks in {short_dir}/data/k" in found[0].found
        (short_dir / "data/k/plugins_registry").rmdir()
        (short_dir / "data/k/plugins_registry").symlink_to(usual)
        found = [*(await explain(places, "gpu.vendor.org")).findings]
        assert "looks in" not in str(found)
    finally:
        await server.stop()


class Registers:
    """Answers GetInfo."""

    def __init__(self, info: PluginInfo) -> None:
        self._info = info

    async def get_info(self) -> PluginInfo:
        return self._info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        raise AssertionError("only a kubelet says so")
