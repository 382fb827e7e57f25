"""What to check: a command we start, or a directory where somebody else starts a plugin."""

from dataclasses import dataclass
from pathlib import Path

from kubedevices.conformance.trigger import NO_TRIGGER, Trigger
from kubedevices.probe.mounts import Bind


@dataclass(frozen=True)
class Target:
    """What to check: a command we start, or a directory where somebody else starts a plugin.

    `resource` limits the checks to one; `trigger` is what makes devices change; `side_by_side`
    allows several plugins at once, each in directories of its own; `registry` is whether there is
    a plugin watcher. `in_place`: the plugin finds the directories of the check at the usual paths
    without a mount, on a machine that has no kubelet.
    """

    command: tuple[str, ...] = ()
    directory: Path | None = None
    binds: tuple[Bind, ...] = ()
    resource: str = ""
    trigger: Trigger = NO_TRIGGER
    side_by_side: bool = False
    registry: bool = True
    in_place: bool = False

    @property
    def needs_private_view(self) -> bool:
        """Whether nothing in the command tells the plugin where its directories are."""
        told = ("{socket_dir}", "{registry_dir}")
        is_told = any(name in word for name in told for word in self.command)
        return bool(self.command) and not is_told and not self.in_place


def registry_beside(socket_dir: Path | None) -> Path | None:
    """Return the plugin registry directory that belongs to a plugin directory, if there is one."""
    registry = socket_dir.with_name("plugins_registry") if socket_dir else None
    return registry if registry and registry.is_dir() else None
