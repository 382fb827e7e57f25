"""A separate podman for a test, in its own mount namespace.

/run and /dev/shm are empty there, because podman reads CDI files from fixed directories, and the
directories of the host must not change. (`/var/run` is `/run`; an overlay of /etc has `/etc/cdi`.)
"""

import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.containers import make_root_file_system
from tests.host_needs import require

DEADLINE = 60
SETTINGS = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
# A process namespace too, so that podman's helper processes end with it.
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PREPARE = """\
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir /run/cdi
mount --bind "$DIR/run-cdi" /run/cdi
mount -t overlay overlay -o "lowerdir=$DIR/etc:/etc" /etc
"""


class Podman:
    """Runs podman with its storage in `directory`; podman reads CDI files of `run_cdi` and
    `etc_cdi`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run_cdi, self.etc_cdi = directory / "run-cdi", directory / "etc/cdi"
        for each in (self.run_cdi, self.etc_cdi):
            each.mkdir(parents=True)
        make_root_file_system(directory / "rootfs")
        # The default directory is below /etc, which is not writable here.
        networks = f'[network]\nnetwork_config_dir = "{directory}/networks"\n'
        (directory / "containers.conf").write_text(SETTINGS + networks)

    def command(self, options: Iterable[str], command: Iterable[str]) -> str:
        """Return the shell words that run a container once."""
        storage = [f"--root={self.directory}/root", f"--runroot={self.directory}/runroot"]
        start = ["podman", *storage, "--storage-driver=vfs", "run", "--rm"]
        rootfs = str(self.directory / "rootfs")
        return shlex.join([*start, *options, "--rootfs", rootfs, *command])

    def shell(self, script: str, *, deadline: float = DEADLINE) -> subprocess.CompletedProcess[str]:
        """Run a shell script in the private mount namespace, for at most `deadline` seconds."""
        home = {"HOME": str(self.directory), "DIR": str(self.directory)}
        return subprocess.run(
            [*NAMESPACES, "sh", "-c", PREPARE + script],
            env=os.environ | home | {"CONTAINERS_CONF": str(self.directory / "containers.conf")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )

    def run(
        self, options: Iterable[str], command: Iterable[str]
    ) -> subprocess.CompletedProcess[str]:
        """Run one container to its end."""
        return self.shell(self.command(options, command))


def podman_judge(directory: Path) -> Podman:
    """Return a podman without any CDI file, or skip the test."""
    require("mount", "podman", "runc")
    return Podman(directory)
