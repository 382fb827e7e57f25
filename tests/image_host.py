"""A host for our container image: a separate podman, and the packages for the build.

Everything runs in a mount namespace and a process namespace that end with the test. The storage is
a file system in memory, so no process and no mount is left, however the tests end. The base image
is built from Debian packages, downloaded as this host downloads its own. The build installs
packages from two directories that are filled before: one with Debian packages, so that the long
lists of the mirror are read once, and one with Python packages, downloaded by this host's pip.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubedevices.cli.cluster.manifests import IMAGE
from tests.host_needs import Need, refuse, require
from tests.podman_judge import NAMESPACES, SETTINGS

ROOT = Path(__file__).parents[1]
CONTAINERFILE = ROOT / "deploy/image/Containerfile"
SUITE, PYTHON = "bookworm", "3.11"
"""The Debian release and the Python of the base image in the Containerfile."""

BUILD_LIMIT = 400
DEADLINE = 60
PREPARE = """\
set -e
cp /etc/resolv.conf "$DIR/resolv.conf"
resolver=$(readlink -m /etc/resolv.conf)
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
if [ ! -e "$resolver" ]; then
  mkdir -p "$(dirname "$resolver")"
  cp "$DIR/resolv.conf" "$resolver"
fi
mount -t tmpfs tmpfs "$DIR/storage"
echo ready
exec cat
"""
# As in Debian's images: no documentation, no caches of apt.
DPKG_SETTINGS = """\
path-exclude /usr/share/doc/*
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
"""
APT_SETTINGS = """\
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
DEBS = "deb [trusted=yes] file:/debs ./\n"
PIP_SETTINGS = """\
[global]
no-index = true
find-links = /wheels
"""


class ImageHost:
    """Runs podman; `image` is the name of the image that `build_image` builds."""

    image = IMAGE

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = directory / "storage"
        self.storage.mkdir()
        (directory / "containers.conf").write_text(
            SETTINGS.replace("[engine]", 'log_driver = "k8s-file"\n[engine]')
        )
        settings = {
            "HOME": str(directory),
            "TMPDIR": str(self.storage),
            "CONTAINERS_CONF": str(directory / "containers.conf"),
        }
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        self._keeper = subprocess.Popen(
            [*NAMESPACES, "sh", "-c", PREPARE],
            env=os.environ | {"DIR": str(directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "ready\n"
        pid = self._keeper.pid
        (inside,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # A benchmark may run with real-time priority, with which no container can be created.
        self._enter = [
            "chrt",
            "--other",
            "0",
            "nsenter",
            f"--target={inside}",
            "--mount",
            "--pid",
            "--",
        ]

    def close(self) -> None:
        """End all processes of the namespaces; this also removes the storage."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(DEADLINE)
        self._keeper.stdout.close()

    def words(self, *command: object) -> list[str]:
        """Return the command that runs `command` in the namespaces."""
        return [*self._enter, "env", *self._settings, *map(str, command)]

    def podman_words(self, *arguments: object) -> list[str]:
        """Return the podman command for a process that is already in the namespaces."""
        storage = [f"--root={self.storage}/root", f"--runroot={self.storage}/runroot"]
        return ["podman", *storage, "--storage-driver=overlay", *map(str, arguments)]

    def run(
        self, *command: object, timeout: float = DEADLINE, **options: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in the namespaces and wait for its end."""
        return subprocess.run(
            self.words(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    def podman(self, *arguments: object, timeout: float = DEADLINE) -> str:
        """Run podman, which must succeed; return its output."""
        done = self.run(*self.podman_words(*arguments), timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def engine(self) -> Path:
        """Return a program that runs this podman, for `make image ENGINE=`."""
        program = self.directory / "engine"
        program.write_text(
            "#!/bin/sh\nset -e\nverb=$1\nshift\n"
            'if [ "$verb" = build ]; then\n  set -- --pull=never --network=none '
            f"--volume {self.directory}/wheels:/wheels:ro "
            f'--volume {self.directory}/debs:/debs:ro "$@"\nfi\n'
            f'exec {shlex.join(self._enter)} env --chdir="$PWD" '
            f'{shlex.join(self._settings + self.podman_words())} "$verb" "$@"\n'
        )
        program.chmod(0o755)
        return program


@contextmanager
def image_host() -> Iterator[ImageHost]:
    """Give a host without any image, or skip the test."""
    require("mount", "podman", "runc", "mmdebstrap")
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    try:
        host = ImageHost(directory)
        try:
            yield host
        finally:
            host.close()
    finally:
        shutil.rmtree(directory)


def build_image(host: ImageHost) -> None:
    """Build our image with `make image`, on top of a base image made by `make_base`."""
    make_base(host)
    download_wheels(host.directory / "wheels")
    command = ["make", "--silent", "image", f"ENGINE={host.engine()}", f"IMAGE={host.image}"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def make_base(host: ImageHost) -> None:
    """Build a small Debian with the name of the base image; skip the test without a mirror."""
    containerfile = CONTAINERFILE.read_text()
    debs = host.directory / "debs"
    debs.mkdir()
    files = {"dpkg": DPKG_SETTINGS, "apt": APT_SETTINGS, "pip": PIP_SETTINGS, "debs": DEBS}
    for name, text in files.items():
        (host.directory / f"{name}.conf").write_text(text)
    (host.directory / "mirror.conf").write_text(_how_apt_connects())
    tar = host.storage / "base.tar"
    fetch = "apt-get --quiet --yes --no-install-recommends --download-only install"
    wanted = " ".join(installed_packages(containerfile))
    hooks = [
        f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" {fetch} {wanted}',
        f'mv "$1"/var/cache/apt/archives/*.deb {debs}',
        'rm -r "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/*',
        'rm -rf "$1"/etc/apt/sources.list.d/* "$1"/var/cache/apt/*.bin',
        f"upload {host.directory}/debs.conf /etc/apt/sources.list",
        f"upload {host.directory}/apt.conf /etc/apt/apt.conf.d/slim",
        f"upload {host.directory}/dpkg.conf /etc/dpkg/dpkg.cfg.d/slim",
        f"upload {host.directory}/pip.conf /etc/pip.conf",
    ]
    done = host.run(
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--format=tar"),
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        f"--aptopt={host.directory}/mirror.conf",
        '--aptopt=Acquire::Languages "none"',
        "--dpkgopt=force-unsafe-io",
        *(f"--customize-hook={hook}" for hook in hooks),
        *(SUITE, tar, *_sources()),
        timeout=BUILD_LIMIT,
    )
    if done.returncode:
        told = f"mmdebstrap says: {done.stderr[-2000:]}"
        refuse({"a mirror of Debian": Need("our container image", bool, told)})
    make_repository(debs)
    (name,) = re.findall(r"^ARG BASE=(.*)$", containerfile, re.MULTILINE)
    host.podman("import", "--quiet", tar, name)
    host.run("rm", tar)


def installed_packages(containerfile: str) -> list[str]:
    """Return the names of the Debian packages that the build installs with apt."""
    commands = re.findall(r"apt-get install ([^&\n]*)", containerfile.replace("\\\n", " "))
    return [word for each in commands for word in each.split() if not word.startswith("-")]


def make_repository(debs: Path) -> None:
    """Write the apt index of the packages in a directory."""
    described = []
    for deb in debs.iterdir():
        content = deb.read_bytes()
        fields = subprocess.check_output(["dpkg-deb", "--field", deb], text=True)
        plain = deb.rename(deb.with_name(f"{hashlib.sha256(content).hexdigest()}.deb"))
        described.append(
            f"{fields}Filename: ./{plain.name}\nSize: {len(content)}\nSHA256: {plain.stem}\n"
        )
    (debs / "Packages").write_text("\n".join(described))


def _sources() -> list[Path]:
    """Return the apt sources of this host if it has the same Debian release."""
    if f"VERSION_CODENAME={SUITE}\n" not in Path("/etc/os-release").read_text():
        return []
    apt = Path("/etc/apt")
    files = [apt / "sources.list", apt / "sources.list.d/debian.sources"]
    return [file for file in files if file.exists()]


def _how_apt_connects() -> str:
    """Return the apt settings of this host that a download needs: proxies, checks of dates."""
    told = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    wanted = re.compile(r"Acquire::(?:https?|Check-[\w-]+)(?:::\S*)? ")
    lines = [line for line in told.stdout.splitlines() if wanted.match(line)]
    return "".join(f"{line}\n" for line in lines)


def download_wheels(directory: Path) -> None:
    """Download the Python packages of the Containerfile, for the Python of its base."""
    settings = ("--quiet", "--disable-pip-version-check", "--only-binary=:all:")
    wanted = ("--requirement", ROOT / "requirements.txt")
    builder = ("--constraint", ROOT / "deploy/image/constraints.txt", "setuptools")
    into = (f"--python-version={PYTHON}", f"--dest={directory}")
    command = [sys.executable, "-m", "pip", "download", *settings, *into, *wanted, *builder]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=BUILD_LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
