"""Putting facts and judgements together: where a kubelet keeps what, and who is asked."""

from dataclasses import replace
from pathlib import Path

from kubedevices.explain import diagnosis
from kubedevices.explain.diagnosis import explain
from kubedevices.explain.facts import Kubelet, ProcessFacts, RegistrySocket, Socket
from kubedevices.explain.host_paths import HostPaths, below_kubelet_root, find_host_root
from kubedevices.explain.look_node import policy_of
from tests.explain.test_judge_directory import GOOD, OFFER, SERVED

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
