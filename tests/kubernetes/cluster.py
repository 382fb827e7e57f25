"""A real Kubernetes with one node: of release binaries, or by a program `cluster`.

docs/development/real-kubernetes.md lists the binaries, and the commands of the program.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.host_needs import CLUSTER, needs, require
from tests.kubernetes.single_node.images import make_image
from tests.kubernetes.single_node.layout import program

CLUSTER_TEST = [needs("real Kubernetes"), pytest.mark.slow]
"""The marks of each test on a cluster."""

START_LIMIT = 300
DEADLINE = 60
BUSYBOX = "local/busybox:1"
"""An image that every such cluster has."""

# Ends the cluster when its standard input ends: however the tests end.
KEEPER = 'cat; "$@" down; rm -rf "$0"'


class Cluster:
    """`kubectl` and the node of a running cluster; paths are those of this host."""

    def __init__(self, words: Sequence[str], directory: Path) -> None:
        self.directory = directory
        self.kubelet_dir = directory / "kubelet"
        """The kubelet's /var/lib/kubelet."""
        self.plugin_dir = self.kubelet_dir / "device-plugins"
        self.cdi_dir = directory / "cdi"
        """The node's /var/run/cdi."""
        self._words = [*words, "--dir", str(directory)]

    def words(self, *arguments: object) -> list[str]:
        """Return the command for `cluster` with these arguments, for `subprocess.Popen`."""
        return [*self._words, *map(str, arguments)]

    def run(
        self, *arguments: object, stdin: str | None = None, timeout: float = DEADLINE
    ) -> "subprocess.CompletedProcess[str]":
        """Run `cluster ARGUMENTS` to its end, with any exit code."""
        return subprocess.run(
            self.words(*arguments),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def __call__(self, *arguments: object, **options: Any) -> str:
        """Run `cluster ARGUMENTS`, which must succeed, and return its output."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def kubectl(self, *arguments: object, **options: Any) -> str:
        """Run kubectl as admin, which must succeed, and return its output."""
        return self("kubectl", *arguments, **options)

    def get(self, *arguments: object) -> Any:
        """Return the result of `kubectl get ARGUMENTS`, as parsed JSON."""
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def allocatable(self, resource: str) -> int | None:
        """Return the node's allocatable devices in the API, None for an unknown resource."""
        (node,) = self.get("nodes")["items"]
        count = node["status"]["allocatable"].get(resource)
        return None if count is None else int(count)

    def wait(self, what: str, condition: Callable[[], object], timeout: float = DEADLINE) -> None:
        """Wait until `condition()` is true; call it five times a second."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
            time.sleep(0.2)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """Give a namespace, and delete it with all its objects at the end.

        pytest shows its pods and events beside the failure of a test. A test that runs again waits
        for the end of the namespace that it had before.
        """
        create = ("kubectl", "create", "namespace", name)
        self.wait(f"a new namespace {name}", lambda: self.run(*create).returncode == 0)
        try:
            yield name
        finally:
            print(self.run("kubectl", "get", "pods,events", f"--namespace={name}").stdout)
            self.kubectl("delete", "namespace", name, "--now", "--wait=false")

    def load_directory(self, root: Path, image: str, *command: object) -> None:
        """Give the node an image of the files below `root` that starts `command`."""
        tar = self.directory / "image.tar"
        make_image(tar, image, root, [*map(str, command)] or ["sh"])
        self("load", tar)
        tar.unlink()


@contextmanager
def running_cluster(*options: str) -> Iterator[Cluster]:
    """Start a cluster with `options` in its own directory, or skip the test."""
    require("real Kubernetes")
    words = program(Path(os.environ[CLUSTER]))
    directory = Path(tempfile.mkdtemp(prefix="kd-kubernetes-", dir="/tmp"))
    # A session of its own, so that Ctrl-C in the terminal does not end the keeper before its work.
    keeper = subprocess.Popen(
        ["sh", "-c", KEEPER, str(directory), *words, "--dir", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        cluster = Cluster(words, directory)
        cluster("up", "--fresh", *options, timeout=START_LIMIT)
        yield cluster
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(DEADLINE)
        shutil.rmtree(directory, ignore_errors=True)
