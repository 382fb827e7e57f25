"""A plugin's private view of the file system: our directories at its fixed paths."""

import os
from pathlib import Path

import pytest

from kubedevices.conformance.processes import Keeper, KeeperRefused
from kubedevices.conformance.stage import open_stage
from kubedevices.conformance.target import Target
from kubedevices.conformance.view import View
from kubedevices.errors import NoPrivateView
from kubedevices.probe.mounts import Bind
from tests.conformance.rig import FAST

pytestmark = [
    pytest.mark.needs_host("root with CAP_SYS_ADMIN"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount"),
]


async def look(work: Path, binds: list[Bind], script: str) -> str:
    """Run a script in a private view and return what it printed."""
    keeper = await Keeper.open(work)
    try:
        await keeper.enter_private_view(binds)
        process = await keeper.start(["sh", "-c", script], env=os.environ, log=work / "log")
        assert await process.wait(10)
        return (work / "log").read_text().strip()
    finally:
        await keeper.close()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_directory_that_exists_is_covered(short_dir: Path) -> None:
    """Inside, an existing path shows ours; outside it stays what it was."""
    for name in ("work", "ours", "theirs"):
        (short_dir / name).mkdir()
    (short_dir / "ours" / "a").touch()
    (short_dir / "theirs" / "b").touch()
    binds = [Bind(str(short_dir / "ours"), str(short_dir / "theirs"))]
    script = f"ls {short_dir}/theirs; touch {short_dir}/theirs/c"
    assert await look(short_dir / "work", binds, script) == "a"
    assert names(short_dir / "theirs") == ["b"]
    assert names(short_dir / "ours") == ["a", "c"]


async def test_a_path_that_does_not_exist_is_made_for_us_alone(short_dir: Path) -> None:
    """Missing directories appear inside, beside everything that is there; never on the host."""
    for name in ("work", "ours", "host"):
        (short_dir / name).mkdir()
    host = short_dir / "host"
    (host / "file").write_text("content")
    (host / "folder").mkdir()
    (host / "link").symlink_to("file")
    binds = [Bind(str(short_dir / "ours"), str(host / "lib" / "kubelet" / "device-plugins"))]
    script = f"touch {host}/lib/kubelet/device-plugins/s; cat {host}/link; ls {host}"
    seen = await look(short_dir / "work", binds, script)
    assert seen.split() == ["content" + "file", "folder", "lib", "link"]
    assert names(host) == ["file", "folder", "link"]
    assert names(short_dir / "ours") == ["s"]


async def test_a_single_file_can_be_bound(short_dir: Path) -> None:
    """--bind takes files as well, to a path that is missing too."""
    (short_dir / "work").mkdir()
    (short_dir / "online").write_text("0-7\n")
    binds = [Bind(str(short_dir / "online"), str(short_dir / "sys" / "node" / "online"))]
    script = f"cat {short_dir}/sys/node/online"
    assert await look(short_dir / "work", binds, script) == "0-7"
    assert not (short_dir / "sys").exists()


async def test_the_root_itself_cannot_be_covered(short_dir: Path) -> None:
    """A path whose first directory is missing is refused with a reason."""
    work = short_dir / "work"
    work.mkdir()
    with pytest.raises(KeeperRefused, match="its first directory does not exist"):
        await look(work, [Bind(str(short_dir), "/kd-no-such-directory/x")], "true")


def test_paths_of_the_plugin_are_found_outside(short_dir: Path) -> None:
    """The last bind that covers a path says where it is for us; symbolic links count."""
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to("real")
    view = View([Bind("/a", "/dev"), Bind("/b", "/dev/net"), Bind("/c", str(short_dir / "link"))])
    assert view.outside("/dev/null") == Path("/a/null")
    assert view.outside("/dev/net/tun") == Path("/b/tun")
    assert view.outside("/device") == Path("/device")
    assert view.outside(f"{short_dir}/real/x") == Path("/c/x")


async def test_a_plugin_that_was_told_needs_no_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even root may not mount, a command with {socket_dir} is checked without a view."""

    async def refused(keeper: Keeper, binds: object) -> None:
        raise KeeperRefused("Operation not permitted: unshare")

    monkeypatch.setattr(Keeper, "enter_private_view", refused)
    async with open_stage(Target(("true", "{socket_dir}")), FAST) as stage:
        assert stage.place.sockets.is_dir()
        assert stage.view == View([])
    assert not stage.place.root.exists()
    with pytest.raises(NoPrivateView, match="Operation not permitted"):
        async with open_stage(Target(("true",)), FAST):
            pass
