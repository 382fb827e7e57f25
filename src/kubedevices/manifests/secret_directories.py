"""Directories of a host that no plugin may see: they give access to host or cluster. Pure."""

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
"""Matches all of these directories, as a regular expression for Python and for Go."""

ADVICE = "has secrets or sockets of the host: use a separate directory, such as /run/widgets"


def is_secret(directory: str) -> bool:
    """Whether a directory has files that a plugin must not see: keys or a runtime's socket."""
    return re.fullmatch(PATTERN, directory) is not None
