"""What `kubedevices manifests --systemd` prints: a plugin or a node as a service of the host."""

import argparse
from collections.abc import Callable, Mapping

from kubedevices.errors import UsageError
from kubedevices.manifests.deployment import METRICS_PORT
from kubedevices.manifests.units import node_unit, plugin_unit
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR, INSIDE_DIR

_OF_A_POD = (
    "name",
    "namespace",
    "image",
    "node_label",
    "toleration",
    "dev_dir",
    "selinux",
    "preset",
    "profile",
    "patch",
    "mode",
    "mode_file",
    "values",
    "as_values",
)


def unit_of(
    args: argparse.Namespace, env_of: Callable[[argparse.Namespace], Mapping[str, str]]
) -> str:
    """Return the unit that `args` mean; raises `KubedevicesError` for what would not start."""
    for name in _OF_A_POD:
        if getattr(args, name):
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --systemd")
    if not args.program.startswith("/"):
        raise UsageError(f"--program {args.program!r} is not an absolute path")
    if args.what == "node":
        return node_unit(args.program)
    if args.config is None and args.what == "expose":
        raise UsageError("--systemd: which devices? Give --config FILE, with its absolute path")
    if args.config is not None and not args.config.is_absolute():
        raise UsageError(f"--config {args.config}: a service needs the absolute path")
    arguments = [args.what]
    if args.config is not None:
        arguments += ["--config", str(args.config)]
    if args.plugin_dir != str(DEVICE_PLUGIN_DIR):
        arguments += ["--socket-dir", args.plugin_dir]
    if args.what == "proxy" and args.inside_dir != str(INSIDE_DIR):
        arguments += ["--plugin-dir", args.inside_dir]
    if args.cdi:
        arguments += ["--inject", "cdi"]
    if args.metrics:
        arguments += ["--pod-resources", f"{args.kubelet_dir}/pod-resources/kubelet.sock"]
    arguments += ["--listen", f"127.0.0.1:{METRICS_PORT}", "--log-format", "json"]
    return plugin_unit(args.program, arguments, env_of(args))
