"""What tests need of the host beside Python: one registry, one way to ask, one way to skip.

A test says its needs with a mark; a fixture or a helper calls `require` with the same names:

    @pytest.mark.needs("root", "runc")
    @pytest.mark.needs(descriptors=4096)
    @pytest.mark.parametrize("kind", [..., pytest.param("device", marks=needs("mknod"))])

Where the host lacks one of them, the test is skipped, and the end of the run tells once for each
reason how many tests are lost and which command brings them. In CI it fails instead, if CI promises
the need: a skip there would hide a broken setup.
"""

import functools
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

IN_CI = os.environ.get("CI") == "true"
CLUSTER = "KUBEDEVICES_KUBERNETES"
"""The environment variable that names the folder of a real Kubernetes."""

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
"""The words before a command that runs it as an ordinary user; for root only."""

DEVICE_FILES = (
    *("/dev/fuse", "/dev/kvm", "/dev/loop-control", "/dev/hwrng", "/dev/net/tun", "/dev/loop0"),
    "/dev/tty1",
)
"""Device files that no container has by default."""

_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23}
_DEPS = "make test-deps"
_AS_ROOT = "start the tests as root"
_DEV = "pip install -r requirements-dev.txt"

needs = pytest.mark.needs


class Need(NamedTuple):
    """What a test may ask of the host."""

    loses: str
    """What is not tested without it: "N tests of ..."."""
    probe: Callable[[], object]
    """Says whether the host gives it; called once in a process."""
    bring: str
    """The command or the step that brings it."""
    in_ci: bool = True
    """Whether CI promises it. No package can install what is False here."""


def program(name: str) -> Callable[[], object]:
    """Return a probe for a program, also where only the PATH of root would find it."""
    return lambda: shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def succeeds(*words: str) -> bool:
    """Return whether a command runs and ends well."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def is_root() -> bool:
    """Return whether the tests run as root."""
    return os.geteuid() == 0


def has_capability(name: str) -> bool:
    """Return whether we may use a capability; root in a container lacks some of them."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAPABILITIES[name] & 1)


def may_make_devices() -> bool:
    """Return whether mknod makes a device file that opens: a file system may forbid this."""
    with tempfile.TemporaryDirectory(prefix="kd-") as directory:
        path = Path(directory) / "null"
        try:
            os.mknod(path, 0o20666, os.makedev(1, 3))
            path.open("rb").close()
        except OSError:
            return False
    return True


@functools.cache
def openable_devices() -> tuple[str, ...]:
    """Return the files of `DEVICE_FILES` that open here."""
    found = []
    for path in DEVICE_FILES:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        found.append(path)
    return tuple(found)


def has_static_busybox() -> bool:
    """Return whether busybox asks for no dynamic loader, so it runs in an empty file system."""
    path = shutil.which("busybox")
    return path is not None and b"/ld-linux" not in Path(path).read_bytes()[:4096]


def _beside_python(name: str) -> Path:
    return Path(sys.executable).parent / name


NEEDS: dict[str, Need] = {
    # ---- rights
    "root": Need("what only root may do", is_root, _AS_ROOT),
    "user": Need(
        "what an ordinary user may not do", lambda: not is_root(), "start the tests as a user",
        in_ci=False,
    ),
    "mount": Need(
        "mounts in namespaces of their own",
        lambda: is_root() and has_capability("CAP_SYS_ADMIN"),
        f"{_AS_ROOT}, with CAP_SYS_ADMIN",
    ),
    "mknod": Need("device files that they make", may_make_devices, f"{_AS_ROOT}, with CAP_MKNOD"),
    "priority": Need(
        "raised priorities",
        lambda: is_root() and has_capability("CAP_SYS_NICE"),
        f"{_AS_ROOT}, with CAP_SYS_NICE",
        in_ci=False,
    ),
    "sudo": Need(
        "commands with sudo", lambda: succeeds("sudo", "-n", "true"),
        "install sudo, and allow it without a password", in_ci=False,
    ),
    "user namespaces": Need(
        "what a user namespace gives an ordinary user",
        lambda: succeeds(*(AS_NOBODY if is_root() else ()), "unshare", "-Urm", "true"),
        "sysctl kernel.unprivileged_userns_clone=1",
        in_ci=False,
    ),
    # ---- the machine
    "two device files": Need(
        "device files of this host in containers",
        lambda: len(openable_devices()) >= 2,
        f"load modules until two of these open: {', '.join(DEVICE_FILES)}",
    ),
    "x86_64": Need(
        "programs that we have for x86_64 only",
        lambda: platform.machine() == "x86_64",
        "use an x86_64 host",
    ),
    "glibc": Need(
        "the heap of glibc", lambda: platform.libc_ver()[0] == "glibc", "use a host with glibc"
    ),
    "cgroups of systemd": Need(
        "our units in systemd",
        Path("/sys/fs/cgroup/systemd").is_dir,
        "mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd",
    ),
    # ---- Debian packages: tests/debian-packages.txt
    "static busybox": Need("real containers", has_static_busybox, _DEPS),
    "runc": Need("real containers", program("runc"), _DEPS),
    "podman": Need("real containers", program("podman"), _DEPS),
    "mmdebstrap": Need("our container image", program("mmdebstrap"), _DEPS),
    "go": Need("grpc-go as a peer", program("go"), _DEPS),
    "grpc-go": Need(
        "grpc-go as a peer", Path("/usr/share/gocode/src/google.golang.org/grpc").is_dir, _DEPS
    ),
    "gofmt": Need("the format of programs in Go", program("gofmt"), _DEPS),
    "prometheus": Need("the queries of our dashboard", program("prometheus"), _DEPS),
    "promtool": Need("our alerts", program("promtool"), _DEPS),
    "systemd": Need("our units in systemd", Path("/lib/systemd/systemd").exists, _DEPS),
    "systemd-analyze": Need("our units in systemd", program("systemd-analyze"), _DEPS),
    # ---- Python packages
    "helm": Need("our chart in Helm", _beside_python("helm").exists, f"{_DEV}, on x86_64"),
    "pyinstaller": Need("the single file", _beside_python("pyinstaller").exists, _DEV),
    "mkdocs": Need("the site of the documentation", _beside_python("mkdocs").exists, _DEV),
    # ---- what no package brings
    "real Kubernetes": Need(
        "a real Kubernetes",
        lambda: os.environ.get(CLUSTER),
        f"set {CLUSTER} as docs/development/real-kubernetes.md says",
        in_ci=False,
    ),
}  # fmt: skip


@functools.cache
def is_given(name: str) -> bool:
    """Return whether this host gives a need of `NEEDS`."""
    return bool(NEEDS[name].probe())


def many_descriptors(count: int) -> Need:
    """Return the need for a number of open files; raises the soft limit where that is allowed."""

    def probe() -> bool:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count <= hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        return count <= hard

    how = f"ulimit -Hn {count}, as root"
    return Need("many open files", probe, how, in_ci=False)


def require(*names: str, descriptors: int = 0) -> None:
    """Skip the present test if the host lacks one of these; in CI fail if CI promises all of them.

    Raises KeyError for a name that `NEEDS` lacks.
    """
    lacking = {name: NEEDS[name] for name in names if not is_given(name)}
    if descriptors and not (limit := many_descriptors(descriptors)).probe():
        lacking[f"{descriptors} descriptors"] = limit
    if lacking:
        refuse(lacking)


def refuse(lacking: dict[str, Need]) -> None:
    """Skip the present test, or fail in CI, because the host lacks these needs."""
    what = ", ".join(dict.fromkeys(need.loses for need in lacking.values()))
    how = "; ".join(dict.fromkeys(need.bring for need in lacking.values()))
    reason = f"{what}: need {', '.join(lacking)}: {how}"
    if IN_CI and all(need.in_ci for need in lacking.values()):
        pytest.fail(f"would be skipped, but in CI everything must run: {reason}")
    pytest.skip(reason)


def require_marked(item: pytest.Item) -> None:
    """Skip a test if the host lacks what its marks `needs` name."""
    for mark in item.iter_markers("needs"):
        require(*mark.args, **mark.kwargs)


def skip_lines(reasons: Iterable[str]) -> list[str]:
    """Return one line for each reason to skip tests: how many, of what, how to get them."""
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [
        f"{count} test{'s' * (count != 1)} of {reason.replace(': ', ' skipped: ', 1)}"
        for reason, count in counted.most_common()
    ]
