"""Changes of a socket file that do not make it another file."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.host_needs import is_given, require


def _change_owner(path: Path) -> None:
    require("root")
    os.chown(path, 12345, 12345)


def _change_label(path: Path) -> None:
    require("mount")
    os.setxattr(path, "trusted.kubedevices", b"relabelled")


def _gain_and_lose_a_link(path: Path) -> None:
    other = path.with_name(".link")
    other.hardlink_to(path)
    other.unlink()


def _rename_back_and_forth(path: Path) -> None:
    path.rename(path.with_name(".away"))
    path.with_name(".away").rename(path)


METADATA_CHANGES: dict[str, Callable[[Path], None]] = {
    "chmod": lambda path: path.chmod(0o640),
    "touch": lambda path: os.utime(path, (1, 1)),
    "link": _gain_and_lose_a_link,
    "rename": _rename_back_and_forth,
    "chown": _change_owner,
    "setxattr": _change_label,
}


def change_everything(path: Path) -> None:
    """Make every change to `path` that we may make, except the one that renames it."""
    for name, change in METADATA_CHANGES.items():
        if name != "rename" and (name not in ("chown", "setxattr") or is_given("mount")):
            change(path)
