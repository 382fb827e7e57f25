"""`--kubeconfig` and `--namespace`, and the client of the API server that they choose."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.shared.node_client import absolute_path
from kubedevices.errors import needs_h11

if TYPE_CHECKING:
    from kubedevices.dra.api_client import ApiClient


def add_cluster_arguments(parser: argparse._ActionsContainer, namespace: str) -> None:
    """Add both options; `namespace` says what the namespace is for."""
    parser.add_argument(
        "--kubeconfig",
        type=absolute_path,
        metavar="FILE",
        help="how to reach the API server (default: the variable KUBECONFIG, then ~/.kube/config, "
        "then as a pod does)",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help=f"{namespace} (default: that of the kubeconfig's context)",
    )


def connect(args: argparse.Namespace) -> "tuple[ApiClient, str]":
    """Return the client of the API server, and the namespace; raises `UsageError`."""
    with needs_h11("asking the API server"):
        from kubedevices.dra.api_client import ApiClient
    from kubedevices.dra.kubeconfig import find_access

    access = find_access(args.kubeconfig or usual_kubeconfig())
    return ApiClient(access), args.namespace or access.namespace or "default"


def usual_kubeconfig(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return ~/.kube/config if kubectl would read it; None also if it does not exist."""
    home = environment.get("HOME", "")
    file = Path(home, ".kube/config")
    return file if home and not environment.get("KUBECONFIG") and file.is_file() else None
