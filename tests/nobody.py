"""Runs Python code as an ordinary user, also where only root may read this Python."""

import os
import subprocess
import sys
from collections.abc import Sequence

_PROGRAM = """\
import ctypes, os, pkgutil, sys
import encodings.idna, encodings.utf_8_sig, shutil, kubedevices
for module in pkgutil.walk_packages(kubedevices.__path__, "kubedevices."):
    if not module.name.endswith(".__main__"):
        __import__(module.name)
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: else /proc/self belongs to root
"""


def run_as_nobody(
    code: str, *arguments: str, before: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run `code` with `arguments` as nobody, or as ourselves if we are not root.

    Python may be installed where only root may read, so all our modules are imported before. The
    words of `before` are put in front of the command.
    """
    return subprocess.run(
        [*before, sys.executable, "-c", _PROGRAM + code, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
