"""One CDI file for each prepared claim."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.check.grpc_driver.state import replace_file

Prepared = Mapping[str, Any]


class CdiFiles:
    """The files of one driver in `directory`, which all drivers of the node share."""

    def __init__(self, directory: Path, driver: str) -> None:
        self.directory, self.driver = directory, driver

    def path(self, uid: str) -> Path:
        """Return the file of a claim."""
        return self.directory / f"{self.driver}-claim_{uid}.json"

    def name(self, uid: str, each: Prepared) -> str:
        """Return the name of a CDI device. One device may be there for two requests."""
        words = (uid, each["request"], each["device"], each["share"])
        return "-".join(word for word in words if word)

    def device_id(self, uid: str, each: Prepared) -> str:
        """Return what a runtime resolves."""
        return f"{self.driver}/claim={self.name(uid, each)}"

    def text(self, uid: str, devices: Iterable[Prepared]) -> str:
        """Return the content of the file of a claim."""
        entries = [
            {"name": self.name(uid, each), "containerEdits": self.edits(each)} for each in devices
        ]
        kind = f"{self.driver}/claim"
        return json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": entries}, indent=1)

    def edits(self, each: Prepared) -> dict[str, Any]:
        """Return what a container gets: the device file of this node, and its settings."""
        word = each["device"].upper().replace("-", "_")
        settings = {"REQUEST": each["request"], **each["parameters"]}
        if each["admin"]:
            settings = {"MONITORED_BY": each["request"]}
        return {
            "env": [f"{word}_{key.upper()}={text}" for key, text in sorted(settings.items())],
            "deviceNodes": [{"path": f"/dev/grpc/{each['device']}", "hostPath": "/dev/null"}],
        }

    def ensure(self, uid: str, devices: Iterable[Prepared]) -> None:
        """Write the file of a claim unless it is right; raises OSError."""
        path, text = self.path(uid), self.text(uid, devices)
        try:
            if path.read_text() == text:
                return
        except (OSError, UnicodeDecodeError):
            pass
        replace_file(path, text)

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, also of one that nobody knows any more."""
        self.path(uid).unlink(missing_ok=True)
