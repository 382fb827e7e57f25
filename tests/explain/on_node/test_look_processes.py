"""Processes, by a /proc made of files."""

import os
from pathlib import Path

import pytest

from kubedevices.explain.on_node.facts import SANDBOX, ProcessFacts
from kubedevices.explain.on_node.look_processes import (
    described,
    in_root,
    kubelets,
    pod_names,
    process,
    processes,
    read_text,
)
from tests.planted import PLANTS, Outside, plant

ROOT = "Uid:\t0\t0\t0\t0\n"


def add_process(
    proc: Path, pid: int, name: str, *arguments: str, namespace: str = "net:[1]", unix: str = ""
) -> Path:
    place = proc / str(pid)
    for folder in ("ns", "net", "fd"):
        (place / folder).mkdir(parents=True)
    (place / "comm").write_text(name + "\n")
    (place / "status").write_text(f"Name:\t{name}\n{ROOT}")
    (place / "cmdline").write_text("\0".join((name, *arguments)) + "\0")
    (place / "ns" / "net").symlink_to(namespace)
    (place / "net" / "unix").write_text(unix)
    return place


def test_processes_are_listed_in_order(tmp_path: Path) -> None:
    """Only what is a process; one that ended meanwhile is none."""
    add_process(tmp_path, 10, "b")
    add_process(tmp_path, 9, "a")
    (tmp_path / "self").mkdir()
    (tmp_path / "11").mkdir()
    assert [*processes(tmp_path)] == [ProcessFacts(9, "a"), ProcessFacts(10, "b")]
    assert process(0, tmp_path) is None
    assert [*processes(tmp_path / "nothing")] == []


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("/opt/my tools/bin/kubedevices", "expose"), "kubedevices"),
        (("-m", "kubedevices.cli"), "python3.11"),
        ((), "python3.11"),
    ],
)
def test_a_script_has_its_own_name(tmp_path: Path, arguments: tuple[str, ...], name: str) -> None:
    """And not that of Python, as it has where pip lets a shell start the interpreter."""
    add_process(tmp_path, 9, "python3.11", *arguments)
    assert process(9, tmp_path) == ProcessFacts(9, name)


def test_a_kubelet_that_hides_its_command_line_has_the_usual_root(tmp_path: Path) -> None:
    """As it is for a user who is not root, where /proc is mounted so."""
    (add_process(tmp_path, 9, "kubelet", "--root-dir=/data/k") / "cmdline").unlink()
    (found,) = kubelets(tmp_path)
    assert found.root_dir == Path("/var/lib/kubelet")


@pytest.mark.parametrize(
    ("arguments", "root", "policy"),
    [
        ((), "/var/lib/kubelet", None),
        (("--root-dir", "/data/k"), "/data/k", None),
        (("--root-dir=/data/k", "--v=2"), "/data/k", None),
        (("--topology-manager-policy=restricted",), "/var/lib/kubelet", "restricted"),
        (("--config={config}",), "/var/lib/kubelet", "single-numa-node"),
        (("--config={empty}",), "/var/lib/kubelet", "none"),
    ],
)
def test_kubelets_are_found_with_their_settings(
    tmp_path: Path, arguments: tuple[str, ...], root: str, policy: str | None
) -> None:
    """By name, command line and configuration file, as far as they can be read."""
    config, empty = tmp_path / "config.yaml", tmp_path / "empty.yaml"
    config.write_text("kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\n")
    empty.write_text("kind: KubeletConfiguration\n")
    add_process(tmp_path, 8, "widgets")
    filled = [each.format(config=config, empty=empty) for each in arguments]
    add_process(tmp_path, 9, "kubelet", *filled)
    (found,) = kubelets(tmp_path)
    assert (found.process, found.root_dir) == (ProcessFacts(9, "kubelet"), Path(root))
    if policy is not None:  # without --config it is whatever this host has
        assert found.topology_policy == policy


def test_a_kubelets_configuration_is_found_below_the_hosts_root(tmp_path: Path) -> None:
    """By its own root, links as there, or where the host is mounted for us."""
    place = add_process(tmp_path / "proc", 9, "kubelet", "--config=/etc/kubelet/config.yaml")
    (found,) = kubelets(tmp_path / "proc", tmp_path / "host")
    assert found.topology_policy is None  # it cannot be read, which is not `none`
    config = tmp_path / "host" / "etc" / "kubernetes"
    config.mkdir(parents=True)
    (tmp_path / "host" / "etc" / "kubelet").symlink_to("/etc/kubernetes")
    (config / "config.yaml").write_text("topologyManagerPolicy: restricted\n")
    (found,) = kubelets(tmp_path / "proc", tmp_path / "host")
    assert found.topology_policy == "restricted"
    (place / "root" / "etc" / "kubelet").mkdir(parents=True)
    own = place / "root" / "etc" / "kubelet" / "config.yaml"
    own.write_text('{\n  "kind": "X",\n  "topologyManagerPolicy": "best-effort"\n}')
    (found,) = kubelets(tmp_path / "proc", tmp_path / "host")
    assert found.topology_policy == "best-effort"


def test_the_kubelet_of_a_node_in_a_container_is_not_this_hosts(tmp_path: Path) -> None:
    """It has another process ID inside, so it runs in a process namespace below ours."""
    place = add_process(tmp_path / "proc", 9, "kubelet")
    (place / "status").write_text(f"Name:\tkubelet\n{ROOT}NSpid:\t9\n")
    assert kubelets(tmp_path / "proc")
    (place / "status").write_text(f"Name:\tkubelet\n{ROOT}NSpid:\t9\t4\n")
    assert not kubelets(tmp_path / "proc")


def test_the_last_file_of_a_configuration_directory_counts(tmp_path: Path) -> None:
    """Only `*.conf`, in the order of their names, after --config."""
    (tmp_path / "config.yaml").write_text("topologyManagerPolicy: restricted\n")
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "10.conf").write_text("topologyManagerPolicy: best-effort\n")
    (folder / "20.conf").write_text("topologyManagerPolicy: single-numa-node\n")
    (folder / "30.conf").write_text("kind: KubeletConfiguration\n")
    (folder / "40.yaml").write_text("topologyManagerPolicy: none\n")
    options = (f"--config={tmp_path}/config.yaml", f"--config-dir={folder}")
    add_process(tmp_path / "proc", 9, "kubelet", *options)
    assert kubelets(tmp_path / "proc")[0].topology_policy == "single-numa-node"


def test_a_kubelet_inside_another_program_hides_its_policy(tmp_path: Path) -> None:
    """k3s gives it its configuration inside: that it names none would be a guess."""
    add_process(tmp_path, 9, "k3s-server", "server")
    assert kubelets(tmp_path)[0].topology_policy is None


# ---------------------------------------------------------------- pods

UID = "22a1337f-1bf2-4fd9-8998-d7c1ff84ae84"
MOUNT = f"208 186 254:0 /kubelet/pods/{UID}/containers/plugin/e32ed650 /dev/termination-log rw\n"


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/burstable/pod{UID}/abc\n",
        f"1:name=systemd:/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-abc.scope\n",
        f"0::/../../kubepods/pod{UID}/abc\n",
    ],
)
def test_a_process_of_a_pod_is_described(tmp_path: Path, cgroup: str) -> None:
    """By its cgroup, in both spellings, and by what the kubelet mounts into its containers."""
    place = add_process(tmp_path, 9, "widgets")
    (place / "cgroup").write_text(cgroup)
    (place / "status").write_text("Name:\twidgets\nState:\tT (stopped)\n")
    pause = described(ProcessFacts(9, "widgets"), tmp_path)
    assert (pause.pod, pause.container, pause.state) == (UID, "", "T")
    (place / "mountinfo").write_text("207 184 254:0 / / rw\n")
    assert described(ProcessFacts(9, "pause"), tmp_path).container == SANDBOX
    (place / "mountinfo").write_text(MOUNT)
    logs = tmp_path / "logs"
    (logs / f"kube-system_widgets-x1_{UID}").mkdir(parents=True)
    found = described(ProcessFacts(9, "widgets"), tmp_path, pod_names(logs))
    assert (found.pod, found.container) == ("kube-system/widgets-x1", "plugin")
    assert str(found) == "widgets (pid 9 of pod kube-system/widgets-x1)"


def test_a_process_outside_of_pods_is_described_too(tmp_path: Path) -> None:
    """Without a pod, and without what cannot be read."""
    place = add_process(tmp_path, 9, "widgets")
    assert described(ProcessFacts(9, "widgets"), tmp_path) == ProcessFacts(9, "widgets")
    (place / "cgroup").write_text("0::/system.slice/podman.service\n")
    assert described(ProcessFacts(9, "widgets"), tmp_path).pod == ""
    assert pod_names(tmp_path / "nothing") == {}


def test_links_of_a_container_stay_in_it(tmp_path: Path) -> None:
    """Absolute ones begin at its root, `..` ends there, and a circle is an error."""
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("/run")
    (tmp_path / "var" / "up").symlink_to("../../../run/x")
    assert in_root(tmp_path, Path("/var/run/cdi")) == tmp_path / "run" / "cdi"
    assert in_root(tmp_path, Path("/var/up")) == tmp_path / "run" / "x"
    assert in_root(tmp_path, Path("/../../a")) == tmp_path / "a"
    assert in_root(tmp_path, Path("/a/b/../c")) == tmp_path / "a" / "c"
    (tmp_path / "loop").symlink_to("/loop")
    with pytest.raises(OSError, match="symbolic links"):
        in_root(tmp_path, Path("/loop"))


@pytest.mark.parametrize(
    ("uids", "counts"),
    [
        ("0\t0", True),
        (f"{os.geteuid()}\t{os.geteuid()}", True),
        ("4242\t4242", False),
        ("4242\t0", False),
        ("0\t4242", False),
    ],
)
def test_a_kubelet_of_another_user_is_no_kubelet(tmp_path: Path, uids: str, counts: bool) -> None:
    """Any user may start a process with this name: only root and our own user count."""
    place = add_process(tmp_path, 9, "kubelet")
    (place / "status").write_text(f"Name:\tkubelet\nUid:\t{uids}\t{uids}\n")
    assert bool(kubelets(tmp_path)) is counts
    (place / "status").unlink()
    assert not kubelets(tmp_path)


@pytest.mark.parametrize("option", ["--config={0}", "--config-dir={1}"])
@pytest.mark.parametrize("kind", [*PLANTS, "large file", "device of the host", "many files"])
def test_a_trap_in_a_configuration_is_not_read(tmp_path: Path, kind: str, option: str) -> None:
    """A pipe, an endless device, a socket or a large file is a policy that is not known."""
    folder = tmp_path / "host" / "etc"
    folder.mkdir(parents=True)
    trap = folder / "a.conf"
    if kind in PLANTS:
        plant(kind, trap, Outside(tmp_path / "outside"))
    elif kind == "many files":
        for number in range(1001):
            (folder / f"{number}.conf").touch()
    elif kind == "large file":
        trap.write_bytes(b"#" * (2**20 + 1))
    else:
        trap.symlink_to("/dev/zero")
        (tmp_path / "host" / "dev").mkdir()
        (tmp_path / "host" / "dev" / "zero").symlink_to("../../../../../dev/zero")
    add_process(tmp_path / "proc", 9, "kubelet", option.format("/etc/a.conf", "/etc"))
    (found,) = kubelets(tmp_path / "proc", tmp_path / "host")
    assert found.topology_policy == ("none" if kind == "file" else None)


def test_the_longest_path_has_a_limit(tmp_path: Path) -> None:
    """The arguments of a process may have megabytes."""
    add_process(tmp_path, 9, "kubelet", "--config=" + "/a" * 500_000)
    (found,) = kubelets(tmp_path)
    assert found.topology_policy is None


def test_a_pipe_in_place_of_a_file_of_the_kernel_is_not_read(tmp_path: Path) -> None:
    """Reading never waits for another process."""
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path / "pipe") is None
    assert read_text(Path("/dev/zero")) is None
    assert "Uid:" in (read_text(Path("/proc/self/status")) or "")
