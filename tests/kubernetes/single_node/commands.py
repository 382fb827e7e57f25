"""The commands of the cluster, and their arguments."""

import argparse
import fcntl
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kubernetes.single_node import node_mounts
from tests.kubernetes.single_node.credentials import ADMIN_TOKEN, make_credentials
from tests.kubernetes.single_node.images import make_base_images
from tests.kubernetes.single_node.layout import (
    CNI_PROGRAMS,
    HIDDEN,
    LONGEST_DIRECTORY,
    NODE,
    NODE_ADDRESS,
    ON_NODE,
    PACKAGES,
    PATH,
    PLANE,
    SERVICE_ADDRESS,
    SERVICES,
    Layout,
    fail,
    find_programs,
)
from tests.kubernetes.single_node.processes import Processes, call
from tests.kubernetes.single_node.settings import (
    CONTAINERD,
    Options,
    arguments,
    kubelet_configuration,
)

_ALL_NAMESPACES = ("mnt", "net", "uts", "ipc", "pid")
_READY_LIMIT = 120
_STATE = ("etcd", "kubelet", "containerd", "cni", "etc-cdi", "manifests", "log", "pki", "pid")
"""What `up --fresh` removes from `DIR`."""
_NETWORK = f"""
ip link set lo up
ip link add node0 type bridge
ip addr add {NODE_ADDRESS}/24 dev node0
ip addr add {SERVICE_ADDRESS}/32 dev node0
ip link set node0 up
ip route add default via 10.136.0.254
echo 1 > /proc/sys/net/ipv4/ip_forward
"""
_PASSED_ON = ("kubectl", "exec")
"""Commands whose further words belong to the program that they run."""


class Cluster:
    """A cluster with its state in a directory. Each public method is a command."""

    def __init__(self, directory: Path) -> None:
        self._layout = Layout(directory)
        self._processes = Processes(self._layout)

    # ------------------------------------------------------------ commands

    def up(self, options: Options, *, fresh: bool) -> None:
        """Start what does not run; return when pods can be created."""
        began = time.monotonic()
        layout = self._layout
        self._check_machine()
        runs = self._pid("plane") and self._pid("node") and not fresh
        if runs and Options.read(layout.options.read_text()) != options:
            fail(f"runs in {layout.directory} with other options: `down` first")
        if not runs:
            binaries = find_programs()
            self._processes.end()
            for name in _STATE if fresh else ("pid",):
                shutil.rmtree(layout.directory / name, ignore_errors=True)
            layout.options.write_text(options.text())
            self._link_programs(binaries)
            make_credentials(layout.credentials)
            self._start_plane()
        self._start("etcd")
        self._start("kube-apiserver")
        if not runs:
            self._start_node()
        self._start("containerd")
        for archive in make_base_images(layout.images):
            self.load(archive)
        self._wait("ready", lambda: self._api("/readyz"), "kube-apiserver")
        self._start("kube-controller-manager")
        self._start("kube-scheduler")
        if not self._pid("kubelet"):
            self._start_kubelet()
        self._wait("ready, with its service account", self._is_ready, "kubelet")
        print(f"{NODE} is ready after {time.monotonic() - began:.1f} s; logs: {layout.logs}")

    def down(self) -> None:
        """Kill all processes of the cluster, and remove its cgroups."""
        self._processes.end()

    def reboot(self) -> None:
        """Kill the node's processes and start it again, with another boot ID and an empty /run."""
        self._need_node()
        self._processes.end(kept=("plane", *PLANE))
        self._processes.shell("plane", ["net"], "ip link del cni0 || true")
        self._start_node()
        self._start("containerd")
        self._start_kubelet()
        self._wait("ready", self._is_ready, "kubelet")

    def restart(self, name: str, *, kill: bool) -> None:
        """Restart a service, with SIGKILL if `kill` is true; the kubelet accepts plugins then."""
        self._need_node()
        self._processes.stop(name, signal.SIGKILL if kill else signal.SIGTERM)
        if name == "kubelet":
            self._start_kubelet()
        else:
            self._start(name)
        self._wait("ready", lambda: self._api("/readyz"), "kube-apiserver")

    def status(self) -> None:
        """Print the processes; exit code 3 unless everything runs and the node is ready."""
        pids = {name: self._pid(name) for name in ("plane", "node", *SERVICES)}
        for name, pid in pids.items():
            print(f"{name:24} {pid or 'down'}")
        ready = all(pids.values()) and self._is_ready()
        print(f"{NODE:24} {'ready' if ready else 'not ready'}")
        sys.exit(0 if ready else 3)

    def load(self, archive: Path) -> None:
        """Give the node the images of an OCI or Docker archive."""
        with archive.open("rb") as file:
            done = self._on_node("ctr", "-n", "k8s.io", "images", "import", "-", stdin=file)
        if done.returncode:
            fail(f"{archive}: {done.stderr}")

    def kubectl(self, words: Sequence[str]) -> None:
        """Become kubectl, as admin."""
        self._processes.enter("plane", ["net"])
        config = self._layout.credentials / "admin.kubeconfig"
        cache = self._layout.directory / "cache"
        env = os.environ | {"KUBECONFIG": str(config), "KUBECACHEDIR": str(cache)}
        os.execve(self._layout.programs / "kubectl", ["kubectl", *words], env)

    def exec(self, words: list[str]) -> None:
        """Run a command as root on the node, in this directory if the node has it."""
        os.environ["KUBECONFIG"] = str(self._layout.credentials / "admin.kubeconfig")
        self._processes.run_in("node", _ALL_NAMESPACES, words)

    # ------------------------------------------------------------ parts

    def _pid(self, name: str) -> int | None:
        return self._processes.pid(name)

    def _need_node(self) -> None:
        if not self._pid("node"):
            fail(f"no node runs in {self._layout.directory}: start it with `up`")

    def _check_machine(self) -> None:
        packages = [name for program, name in PACKAGES.items() if not _find(program)]
        if not (CNI_PROGRAMS / "bridge").exists():
            packages.append("containernetworking-plugins")
        if packages:
            fail("a program is missing: apt-get install " + " ".join(packages))
        directory = self._layout.directory
        if len(str(directory)) > LONGEST_DIRECTORY:
            fail(f"{directory}: at most {LONGEST_DIRECTORY} characters, for the paths of sockets")
        if any(directory.is_relative_to(each) for each in HIDDEN):
            fail(f"{directory}: choose a directory outside of {', '.join(HIDDEN)}")

    def _link_programs(self, binaries: Mapping[str, Path]) -> None:
        shutil.rmtree(self._layout.programs, ignore_errors=True)
        self._layout.programs.mkdir()
        for name, path in binaries.items():
            (self._layout.programs / name).symlink_to(path)

    def _start_plane(self) -> None:
        self._processes.start(
            "plane", ["sleep", "infinity"], new=("net", "pid"), prepare=node_mounts.bury_orphans
        )
        self._processes.shell("plane", ["net"], _NETWORK)

    def _start_node(self) -> None:
        self._layout.boot_id.write_text(f"{uuid.uuid4()}\n")
        node_mounts.make_directories(self._layout)
        self._processes.start(
            "node",
            ["sleep", "infinity"],
            join=[("plane", ["net"])],
            new=("mnt", "uts", "ipc", "pid"),
            prepare=lambda: node_mounts.mount_node(self._layout),
        )

    def _start(self, name: str) -> None:
        if self._pid(name):
            return
        layout, options = self._layout, Options.read(self._layout.options.read_text())
        (layout.directory / "containerd.toml").write_text(CONTAINERD)
        kubelet = kubelet_configuration(layout, self._processes.cgroups.name, options)
        (layout.directory / "kubelet.json").write_text(kubelet)
        words = [str(layout.programs / name), *arguments(name, layout, options)]
        join = ("node", _ALL_NAMESPACES) if name in ON_NODE else ("plane", ("net", "pid"))
        self._processes.start(name, words, join=[join])
        if name == "containerd":
            self._wait("ready", lambda: self._on_node("ctr", "version").returncode == 0, name)

    def _start_kubelet(self) -> None:
        registration = self._layout.kubelet / "device-plugins/kubelet.sock"
        registration.unlink(missing_ok=True)  # as the kubelet does when it starts
        self._start("kubelet")
        self._wait("open for device plugins", registration.exists, "kubelet")

    def _on_node(self, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run a command on the node in a process of its own."""
        program = [sys.executable, str(Path(__file__).parent), "--dir", str(self._layout.directory)]
        return subprocess.run(
            [*program, "exec", *words], capture_output=True, text=True, check=False, **options
        )

    def _wait(self, what: str, condition: Callable[[], object], service: str) -> None:
        deadline = time.monotonic() + _READY_LIMIT
        while not condition():
            if not self._pid(service):
                fail(f"{service} ended before it was {what}", self._layout.log(service))
            if time.monotonic() > deadline:
                fail(f"{service} is not {what} after {_READY_LIMIT} s", self._layout.log(service))
            time.sleep(0.1)

    def _api(self, path: str) -> str | None:
        """GET from the API server as admin; None if it does not answer with 200."""
        outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            self._processes.enter("plane", ["net"])
            authority = ssl.create_default_context(cafile=self._layout.credentials / "ca.crt")
            connection = http.client.HTTPSConnection(
                NODE_ADDRESS, 443, timeout=5, context=authority
            )
            connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return None
        else:
            return text if answer.status == http.HTTPStatus.OK else None
        finally:
            call("setns", outside, 0)
            os.close(outside)

    def _is_ready(self) -> bool:
        """Whether the node says since its last boot that it is ready, and pods have an account."""
        node = json.loads(self._api(f"/api/v1/nodes/{NODE}") or "{}")
        status = node.get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        return (
            conditions.get("Ready") == "True"
            and status["nodeInfo"]["bootID"] == self._layout.boot_id.read_text().strip()
            and not node["spec"].get("taints")
            and self._api("/api/v1/namespaces/default/serviceaccounts/default") is not None
        )


def _find(program: str) -> str | None:
    return shutil.which(program, path=PATH)


# ---------------------------------------------------------------- arguments


def main() -> None:
    """Run the command of the command line."""
    words, passed_on = _split(sys.argv[1:])
    chosen = _parser().parse_args(words)
    if os.geteuid() != 0:
        fail("namespaces, cgroups and mounts need root")
    cluster = Cluster(chosen.dir)
    if chosen.command in ("up", "down", "restart", "reboot"):
        if chosen.command == "up":
            chosen.dir.mkdir(parents=True, exist_ok=True)
        if chosen.dir.exists():
            _lock(chosen.dir)
    match chosen.command:
        case "up":
            gates = {key: value == "true" for key, _, value in chosen.feature}
            options = Options(gates, tuple(chosen.kubelet_arg), tuple(chosen.apiserver_arg))
            cluster.up(options, fresh=chosen.fresh)
        case "restart":
            cluster.restart(chosen.name, kill=chosen.kill)
        case "load":
            cluster.load(chosen.archive)
        case "kubectl" | "exec":
            getattr(cluster, chosen.command)(passed_on)
        case _:
            getattr(cluster, chosen.command)()


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return our own words, and those that belong to the program of `kubectl` or `exec`."""
    for at, word in enumerate(words):
        if word in _PASSED_ON and words[at - 1] != "--dir":
            rest = words[at + 1 :]
            return words[: at + 1], rest[1:] if rest[:1] == ["--"] else rest
    return words, []


def _lock(directory: Path) -> None:
    """Wait until no other command changes the cluster; until the end of this process."""
    descriptor = os.open(directory / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def _gate(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    if value.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r}: write GATE=true or GATE=false")
    return name, equals, value.lower()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="single_node", description="A Kubernetes with one node, of release binaries. As root."
    )
    parser.add_argument("--dir", type=Path, required=True, help="the directory of the cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it; return when pods can be created")
    up.add_argument("--fresh", action="store_true", help="forget the state of last time")
    up.add_argument("--feature", action="append", default=[], type=_gate, metavar="GATE=BOOL")
    up.add_argument("--kubelet-arg", action="append", default=[], metavar="ARG")
    up.add_argument("--apiserver-arg", action="append", default=[], metavar="ARG")
    commands.add_parser("down", help="kill it")
    commands.add_parser("status", help="print its processes")
    commands.add_parser("reboot", help="restart the node, with another boot ID")
    restart = commands.add_parser("restart", help="restart a service")
    restart.add_argument("name", choices=SERVICES)
    restart.add_argument("--kill", action="store_true", help="SIGKILL instead of SIGTERM")
    load = commands.add_parser("load", help="give the node the images of an archive")
    load.add_argument("archive", type=Path)
    commands.add_parser("kubectl", help="run kubectl as admin")
    commands.add_parser("exec", help="run a command as root on the node")
    return parser
