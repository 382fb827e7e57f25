"""One resource of the proxy on its way to the kubelet."""

import subprocess
import sys

PROGRAM = """\
import sys
sys.modules["h11"] = None
import kubedevices.proxy.proxy
print(*[name for name in sys.modules if name.startswith("kubedevices.dra.")])
"""


def test_a_proxy_of_device_plugins_needs_nothing_of_a_driver() -> None:
    """A driver is half of the memory of a proxy, and needs a package that may be missing."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("kubedevices.dra.names\n", "")
