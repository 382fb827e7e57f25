"""What to check: a plugin, and the trigger, a shell command that makes its devices change."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubedevices.testing.kubelet.mounts import Bind
from kubedevices.values.resource_name import explain_resource_name

NUMBER = "{n}"
NUMBER_VARIABLE = "KUBEDEVICES_TRIGGER_NUMBER"


@dataclass(frozen=True)
class Trigger:
    """A shell command that changes devices, of `resource` alone unless that is `""`.

    `undo` runs once for every run of `command`, for the last run first.
    """

    command: str = ""
    resource: str = ""
    undo: str = ""

    @classmethod
    def parse(cls, text: str, undo: str = "") -> "Trigger":
        """Parse `CMD` or `RESOURCE=CMD`.

        A shell assignment such as `A=1 cmd` is a command: the name of a shell variable has no `/`.
        """
        name, equals, command = text.partition("=")
        if equals and "/" in name and not explain_resource_name(name):
            return cls(command, name, undo)
        return cls(text, "", undo)


NO_TRIGGER = Trigger()


@dataclass(frozen=True)
class TriggerRun:
    """One run of the trigger, or of its undo command."""

    command: str
    number: int

    def argv(self) -> tuple[str, ...]:
        """Return the words of the command line, with `{n}` replaced by the number of the run."""
        return ("sh", "-c", self.command.replace(NUMBER, str(self.number)))

    def environment(self) -> Mapping[str, str]:
        """Return our environment and, in `NUMBER_VARIABLE`, the number of the run."""
        return os.environ | {NUMBER_VARIABLE: str(self.number)}


@dataclass(frozen=True)
class Target:
    """What to check: a command that the check starts, or a directory with a plugin of the user.

    resource      checks only this resource, all resources if `""`
    trigger       changes the devices
    side_by_side  several copies may run at once, each with directories of its own
    registry      there is a plugin watcher
    in_place      the directories of the check are the usual paths, without a mount, on a machine
                  that has no kubelet
    waited        seconds in which the command has registered nothing in an earlier start
    """

    command: tuple[str, ...] = ()
    directory: Path | None = None
    binds: tuple[Bind, ...] = ()
    resource: str = ""
    trigger: Trigger = NO_TRIGGER
    side_by_side: bool = False
    registry: bool = True
    in_place: bool = False
    waited: float = 0.0

    @property
    def needs_private_view(self) -> bool:
        """Whether no word of the command tells the plugin where its directories are."""
        names = ("{socket_dir}", "{registry_dir}")
        has_name = any(name in word for name in names for word in self.command)
        return bool(self.command) and not has_name and not self.in_place


def registry_beside(socket_dir: Path | None) -> Path | None:
    """Return the plugin registry directory beside a plugin directory, None if it does not exist."""
    registry = socket_dir.with_name("plugins_registry") if socket_dir else None
    return registry if registry and registry.is_dir() else None
