"""A process with a scanner in both device APIs, for tests that kill it.

`python -m tests.serving.switching_process DIRECTORY`, in the directory of a `NodeRig`.
"""

import sys
from pathlib import Path
from typing import Any

import kubedevices as kd
from tests.serving.node_rig import DOMAIN, QUICK, Widgets


def main(directory: Path) -> None:
    options: Any = {
        "socket_dir": directory / "k" / "device-plugins",
        "kubelet_dir": directory / "k",
        "node_name": "node1",
        "kubeconfig": directory / "config",
        "cdi_dir": directory / "cdi",
        "mode_file": directory / "mode",
        **QUICK,
    }
    kd.run(Widgets(), domain=DOMAIN, mode="device-plugin", **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
