"""The single file of `make onefile` in a container with glibc, zlib, busybox and no Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.host_needs import needs
from tests.podman_judge import podman_judge

LIMIT = 25_000_000
DEADLINE = 400
LOADER = Path("/lib64/ld-linux-x86-64.so.2")
LIBRARIES = ("c.so.6", "m.so.6", "dl.so.2", "pthread.so.0", "rt.so.1", "util.so.1", "z.so.1")

SCRIPT = """\
set -e
kubedevices --version
busybox mkdir /tmp/sockets /tmp/dev
busybox touch /tmp/dev/fuse
at="--socket-dir /tmp/sockets"
kubedevices node $at > /tmp/node.log &
kubedevices simulate $at --resource-name example.com/gpu 2> /tmp/simulate.log &
kubedevices expose $at --profile fuse --dev-root /tmp/dev 2> /tmp/expose.log &
kubedevices wait $at example.com/gpu --allocatable 2
kubedevices wait $at devices.example.com/fuse --allocatable 10
kubedevices allocate $at example.com/gpu=1 --pod-name training
kubedevices check --in-place --quick --only list grpc.ping -- kubedevices simulate
LD_LIBRARY_PATH=/mine kubedevices check --in-place --only grpc.ping -- /bin/sh -c '
  echo "libraries: $LD_LIBRARY_PATH" > /tmp/libraries; exec kubedevices simulate'
busybox cat /tmp/libraries
"""


@needs("x86_64", "glibc", "pyinstaller")
@pytest.mark.slow
@pytest.mark.timeout(2 * DEADLINE)
def test_the_single_file_runs_without_python(short_dir: Path) -> None:
    """The file is small. node, simulate, expose and check work.

    Started programs get their own libraries.
    """
    podman = podman_judge(short_dir)
    builder = Path(sys.executable).parent / "pyinstaller"
    root = short_dir / "rootfs"
    spec = ROOT / "deploy/onefile/kubedevices.spec"
    built = subprocess.run(
        [builder, f"--distpath={root}/bin", f"--workpath={short_dir}/build", spec],
        env=os.environ | {"PYINSTALLER_CONFIG_DIR": str(short_dir / "cache")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    assert (root / "bin/kubedevices").stat().st_size < LIMIT
    libraries = LOADER.resolve().parent
    for source, target in [
        (LOADER, root / "lib64"),
        *((libraries / f"lib{name}", root / "lib") for name in LIBRARIES),
    ]:
        target.mkdir(exist_ok=True)
        shutil.copy(source, target)
    done = podman.shell(
        podman.command(["--network=none"], ["/bin/sh", "-c", SCRIPT]), deadline=DEADLINE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "kubedevices 0.1.0",
        "example.com/gpu: 2 allocatable devices",
        "devices.example.com/fuse: 10 allocatable devices",
        "pod default/training is admitted",
        "libraries: /mine",
    ):
        assert line in done.stdout.splitlines(), done.stdout + done.stderr
