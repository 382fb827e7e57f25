"""Putting facts and judgements together: where a kubelet keeps what, and who is asked."""

from dataclasses import replace
from pathlib import Path

from kubedevices.device import ReportedDevice
from kubedevices.explain import walk
from kubedevices.explain.facts import DeviceState, PluginAnswer, ResourceState, Socket, Watched
from kubedevices.explain.walk import Places, explain
from tests.explain.test_judge_directory import GOOD, OFFER

NAME = "example.com/widget"


def test_what_moves_with_the_root_directory(tmp_path: Path) -> None:
    """Beside the plugin directory if it is there, else below a root that has it."""
    places = Places(tmp_path / "k" / "device-plugins", tmp_path / "s")
    roots = [tmp_path / "none", tmp_path / "root"]
    (tmp_path / "root" / "pr").mkdir(parents=True)
    assert walk._below_root(places, roots, "pr") == tmp_path / "root" / "pr"
    assert walk._below_root(places, [], "pr") == tmp_path / "k" / "pr"
    (tmp_path / "k" / "pr").mkdir(parents=True)
    assert walk._below_root(places, roots, "pr") == tmp_path / "k" / "pr"


def test_a_plugin_of_the_registry_belongs_to_the_resource_it_names() -> None:
    """Those of the plugin directory do not tell, so each of them may be it."""
    plugin = Socket(Path("/p/w.sock"))
    watched = [
        Watched(Path("/r/w.sock"), OFFER),
        Watched(Path("/r/other.sock"), OFFER._replace(name="example.com/other")),
        Watched(Path("/r/left.sock"), problem="nobody answers"),
    ]
    directory = replace(GOOD, plugins=(plugin,))
    assert walk._plugins_of(NAME, directory, watched) == (plugin, Socket(Path("/r/w.sock")))


def test_a_plugin_that_was_asked_completes_what_a_kubelet_says() -> None:
    """It is known by one of its devices; holders stay those that the kubelet named."""
    listed = (ReportedDevice("w0", "Healthy", (1,)), ReportedDevice("w1", "Unhealthy"))
    plugin = Socket(Path("/p/w.sock"), answer=PluginAnswer(listed))
    held = DeviceState("w0", "Unknown", (), ("pod",))
    state = walk._completed(ResourceState(NAME, (held,)), [plugin], {}, NAME)
    assert state is not None
    assert (state.capacity, state.allocatable, state.socket) == (2, 1, "w.sock")
    assert state.devices == (
        DeviceState("w0", "Healthy", (1,), ("pod",)),
        DeviceState("w1", "Unhealthy"),
    )
    by_checkpoint = walk._completed(None, [plugin], {NAME: ("w1",)}, NAME)
    assert by_checkpoint is not None
    assert by_checkpoint.capacity == 2
    assert walk._completed(None, [plugin], {NAME: ("other",)}, NAME) is None
    told = ResourceState(NAME, (held,), capacity=1)
    assert walk._completed(told, [plugin], {}, NAME) is told


async def test_a_checkpoint_that_nobody_can_read_is_a_problem(short_dir: Path) -> None:
    """Whatever else is known; one that cannot be opened is unknown, one that is missing is none."""
    places = Places(short_dir, short_dir / "s", short_dir / "nobody.sock", short_dir / "none")
    assert not [each for each in (await explain(places)).findings if each.step == "held"]
    (short_dir / "kubelet_internal_checkpoint").write_text("{}")
    (told,) = [each for each in (await explain(places)).findings if each.step == "held"]
    assert str(told.result) == "problem"
    assert told.command == f"kubedevices checkpoint show {short_dir}/kubelet_internal_checkpoint"
    (short_dir / "kubelet_internal_checkpoint").unlink()
    (short_dir / "kubelet_internal_checkpoint").mkdir()
    (told,) = [each for each in (await explain(places)).findings if each.step == "held"]
    assert (str(told.result), "cannot read" in told.found) == ("unknown", True)
