"""Directories of a host that no plugin may see: they open the host or the cluster. Pure."""

import re

_ALONE = (
    *("/", "/etc", "/home", "/home/[^/]+", "/run", "/var", "/var/lib", "/var/run"),
    "/var/lib/kubelet",
)
_WITH_ALL_BELOW = (
    *("/boot", "/proc", "/root", "/etc/kubernetes", "/etc/rancher", "/etc/ssh"),
    "(/var)?/run/(containerd|crio|docker|k3s|secrets)",
    "/var/lib/(containerd|containers|crio|docker|etcd|rancher)",
    "/var/lib/kubelet/(pki|pods)",
)
PATTERN = f"^({'|'.join(_ALONE)}|({'|'.join(_WITH_ALL_BELOW)})(/[\\s\\S]*)?)$"
"""All of them, for the regular expressions of Python and of Go."""

ADVICE = "has secrets or sockets of the host: use a directory of its own, such as /run/widgets"


def is_secret(directory: str) -> bool:
    """Whether a directory has what a plugin must not see, such as keys or a runtime's socket."""
    return re.fullmatch(PATTERN, directory) is not None
