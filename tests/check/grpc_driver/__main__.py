"""The command line."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.check.grpc_driver.defects import all_defects
from tests.check.grpc_driver.driver import Driver, Options
from tests.check.grpc_driver.parts import Parts


def main(argv: Sequence[str]) -> int:
    """Run the driver until it ends; return the exit code."""
    parser = argparse.ArgumentParser(prog="grpc_driver")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--node-name", required=True)
    parser.add_argument("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"))
    parser.add_argument("--cdi-dir", type=Path, default=Path("/var/run/cdi"))
    parser.add_argument("--pod-uid", default="")
    parser.add_argument("--devices", type=Path)
    parser.add_argument("--defect", choices=sorted(all_defects()))
    args = parser.parse_args(argv)
    options = Options(
        kubeconfig=args.kubeconfig,
        node=args.node_name,
        kubelet_dir=args.kubelet_dir,
        cdi_dir=args.cdi_dir,
        pod_uid=args.pod_uid,
        devices=args.devices,
    )
    parts = Parts(all_defects().get(args.defect, ()))
    return parts.of(Driver)(options, parts).run()


if __name__ == "__main__":
    # Threads of grpc and of the watch still run: all that has to be closed is closed.
    os._exit(main(sys.argv[1:]))
