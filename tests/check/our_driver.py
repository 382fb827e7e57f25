"""Our own DRA drivers as targets of the check: `python -m tests.check.our_driver ARG…`.

The program is `kubedevices ARG…`, but it does not wait until a kubelet that has just started knows
its pods.
"""

import sys

from kubedevices.check.drivers.target import DriverTarget
from kubedevices.cli import main
from kubedevices.dra.device_plugin_guard import KubeletGuard

OUR_DRIVER = (sys.executable, "-W", "error", "-m", "tests.check.our_driver")
SIMULATE = ("simulate", "--mode", "dra", "--env-prefix", "GPU", "--number-devices", "3")
IN_A_POD = ("--kube-node", "{node}", "--kubelet-dir", "{kubelet_dir}", "--cdi-dir", "{cdi_dir}")
PLACES = ("--kubeconfig", "{kubeconfig}", *IN_A_POD)


def simulator() -> DriverTarget:
    """Return our simulator."""
    program = ("env", "POD_UID={pod_uid}", *OUR_DRIVER)
    return DriverTarget((*program, *SIMULATE, *PLACES))


if __name__ == "__main__":
    setattr(KubeletGuard, "_is_young", lambda *_words: False)  # noqa: B010 - mypy knows no patch
    sys.exit(main())
