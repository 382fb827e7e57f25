"""A plugin's private view of the file system: our directories at its fixed paths."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check import directories
from kubedevices.check.directories import PathMap
from kubedevices.check.harness_setup import open_harness
from kubedevices.check.processes import Supervisor, SupervisorRefused
from kubedevices.check.target import Target
from kubedevices.errors import NoPrivateView
from kubedevices.testing.kubelet.mounts import HIDDEN, Bind, directory_without_mounts
from tests.check.rig import FAST
from tests.host_needs import needs

pytestmark = needs("mount")


async def look(work: Path, binds: list[Bind], script: str) -> str:
    """Run a script in a private view and return what it printed."""
    supervisor = await Supervisor.open(work)
    try:
        await supervisor.enter_private_view(binds)
        process = await supervisor.start(["sh", "-c", script], env=os.environ, log=work / "log")
        assert await process.wait(10)
        return (work / "log").read_text().strip()
    finally:
        await supervisor.close()


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


async def test_a_missing_path_is_created_in_the_private_view_only(short_dir: Path) -> None:
    """Missing directories appear in the view, beside existing entries, and not on the host."""
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


async def test_a_missing_directory_of_the_root_is_created_in_the_view_only(short_dir: Path) -> None:
    """The plugin gets a new root with all our entries, including links and mounts."""
    for name in ("work", "ours"):
        (short_dir / name).mkdir()
    (short_dir / "ours" / "file").write_text("content")
    before, top = names(Path("/")), f"/kd-missing-{os.getpid()}"
    binds = [
        Bind(str(short_dir / "ours"), f"{top}/deep/x"),
        Bind(str(short_dir / "ours" / "file"), f"{top}-too/file"),
    ]
    script = (
        f"cat {top}/deep/x/file {top}-too/file; touch {top}/deep/x/new {short_dir}/made; echo; "
        "ls -A /; test -r /proc/self/stat && test -c /dev/null && pwd -P; "
        "for each in /*/; do echo $(ls -A $each | wc -l) $each; done"
    )
    content, *seen = (await look(short_dir / "work", binds, script)).splitlines()
    assert content == "content" * 2
    end = seen.index(str(Path.cwd()))
    assert sorted(seen[:end]) == sorted([*before, top[1:], f"{top[1:]}-too"])
    assert names(Path("/")) == before
    sizes = {line.split()[1]: int(line.split()[0]) for line in seen[end + 1 :]}
    for path in filter(Path.is_dir, map(Path, ("/boot", "/mnt", "/srv", "/usr"))):
        assert sizes[f"{path}/"] == len(names(path)), path
    assert names(short_dir / "ours") == ["file", "new"]
    assert (short_dir / "made").exists()


def test_the_new_root_is_mounted_on_a_directory_without_mounts(short_dir: Path) -> None:
    """A link, a file, or a directory with a mount on it or below it is not used."""
    file, link, mounted, above, free = (short_dir / f"{n}" for n in range(5))
    for directory in (mounted, above / "below", free):
        directory.mkdir(parents=True)
    file.touch()
    link.symlink_to(free)
    entries, mounts = [file, link, mounted, above, free], [Path("/"), mounted, above / "below"]
    assert directory_without_mounts(entries, mounts) == free
    assert directory_without_mounts(entries[:-1], mounts) is None


def test_paths_of_the_plugin_are_found_outside(short_dir: Path) -> None:
    """The last bind that covers a path says where it is for us; symbolic links count."""
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to("real")
    paths = PathMap(
        [Bind("/a", "/dev"), Bind("/b", "/dev/net"), Bind("/c", str(short_dir / "link"))]
    )
    assert paths.outside("/dev/null") == Path("/a/null")
    assert paths.outside("/dev/net/tun") == Path("/b/tun")
    assert paths.outside("/device") == Path("/device")
    assert paths.outside(f"{short_dir}/real/x") == Path("/c/x")


async def test_a_command_with_socket_dir_needs_no_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """If even root may not mount, a command with {socket_dir} runs without a private view."""

    async def refused(supervisor: Supervisor, binds: object) -> None:
        raise SupervisorRefused("Operation not permitted: unshare")

    monkeypatch.setattr(Supervisor, "enter_private_view", refused)
    async with open_harness(Target(("true", "{socket_dir}")), FAST) as harness:
        assert harness.directories.sockets.is_dir()
        assert harness.path_map == PathMap([])
    assert not harness.directories.root.exists()
    with pytest.raises(NoPrivateView, match="Operation not permitted"):
        async with open_harness(Target(("true",)), FAST):
            pass


async def test_a_hidden_path_does_not_exist_in_the_view(short_dir: Path) -> None:
    """The plugin sees the neighbours of the path, and binds beside it; the host keeps the path."""
    for name in ("work", "ours", "lib", "lib/registry", "lib/plugins"):
        (short_dir / name).mkdir()
    (short_dir / "lib" / "file").touch()
    (short_dir / "ours" / "a").touch()
    lib = short_dir / "lib"
    binds = [
        Bind(str(short_dir / "ours"), str(lib / "plugins")),
        Bind(HIDDEN, str(lib / "registry")),
        Bind(HIDDEN, str(lib / "missing")),
    ]
    seen = await look(short_dir / "work", binds, f"ls {lib} {lib}/plugins")
    assert seen.split() == [f"{lib}:", "file", "plugins", f"{lib}/plugins:", "a"]
    assert names(lib) == ["file", "plugins", "registry"]
    assert PathMap(binds).outside(f"{lib}/registry/x") == lib / "registry" / "x"


async def test_cdi_files_of_the_host_are_seen_and_not_changed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin sees a copy of /etc/cdi, which is fresh at each start; --bind may show another."""
    host, other = short_dir / "host", short_dir / "other"
    for directory, name in ((host, "a.json"), (other, "b.json")):
        directory.mkdir()
        (directory / name).write_text("{}")
    monkeypatch.setattr(directories, "STATIC_DIRECTORY", host)
    plugin = Target(("sh", "-c", f"ls {host}; echo new > {host}/a.json; touch {host}/new.json"))
    async with open_harness(plugin, FAST) as harness:
        for _ in range(2):
            process = await harness.start_fresh()
            assert await process.wait(10)
            assert process.output().split() == ["a.json"]
        assert names(harness.directories.etc_cdi) == ["a.json", "new.json"]
    assert (names(host), (host / "a.json").read_text()) == (["a.json"], "{}")
    bound = replace(plugin, binds=(Bind(str(other), str(host)),))
    async with open_harness(bound, FAST) as harness:
        process = await harness.launch()
        assert await process.wait(10)
        assert process.output().split() == ["b.json"]
