"""Keeps two deployments from being the same driver on a node. Blocking, no call waits.

The name of a driver is its domain, and a kubelet and the scheduler know one driver by this name.
Two instances of one deployment relieve each other. Two deployments, with different device types,
would take each other's devices out of the slices. Each instance holds a shared lock on a file; the
kernel releases the lock of a killed process.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import DriverTaken, PreparedUnwritable, os_errors_as
from kubedevices.host.shared_directory import SharedDirectory

FILE_NAME = "deployment.lock"
_SIZE_LIMIT = 2**20
_ATTEMPTS = 20
_POD_OF_DAEMON_SET = re.compile(r"(.+)-[a-z0-9]{5}")
_LONGEST_HOST_NAME = 63


class DriverUser(NamedTuple):
    """A process that is a driver: its DaemonSet, empty if unknown, and its device types."""

    deployment: str
    types: tuple[str, ...]

    def excludes(self, other: "DriverUser") -> bool:
        """Whether the two cannot be instances of one deployment.

        An update of a deployment may replace all its device types.
        """
        if self.deployment and self.deployment == other.deployment:
            return False
        return bool(self.types and other.types) and not {*self.types} & {*other.types}


def deployment_of(host_name: str, node_name: str) -> str:
    """Return the name of the DaemonSet of a pod from the pod's host name; empty if unknown.

    A pod has the name of its DaemonSet and five random characters. A pod with the network of the
    host has the host's name.
    """
    if len(host_name) >= _LONGEST_HOST_NAME:  # cut, perhaps within the random characters
        return host_name[: _LONGEST_HOST_NAME - len("-12345")]
    found = _POD_OF_DAEMON_SET.fullmatch(host_name)
    return found[1] if found and host_name != node_name else ""


class DeploymentLock:
    """The lock on `file` for the driver `driver`."""

    def __init__(self, file: Path, driver: str, deployment: str) -> None:
        self._path, self._driver, self._deployment = file, driver, deployment
        self._file: int | None = None
        self._noted: DriverUser | None = None

    def take(self, types: Collection[str]) -> None:
        """Take the lock for a process with these device types, or change its types.

        Raises `DriverTaken` if another deployment has it, and `PreparedUnwritable`.
        """
        mine = DriverUser(self._deployment, tuple(sorted(types)))
        with os_errors_as(PreparedUnwritable, self._path):
            if self._file is None:
                self._file = self._open(mine)
            if mine != self._noted:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, json.dumps(mine._asdict()).encode(), 0)
                self._noted = mine

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, mine: DriverUser) -> int:
        directory = SharedDirectory.at(self._path.parent)
        directory.create()
        file = directory.open_lock(self._path.name)
        try:
            # With the exclusive lock nobody else lives, whatever the file says. Another process may
            # get it between the two locks: then look again.
            for _ in range(_ATTEMPTS):
                is_alone = _lock(file, fcntl.LOCK_EX)
                user = None if is_alone else _read(file)
                if user is not None and mine.excludes(user):
                    raise DriverTaken(self._driver, user.deployment, user.types)
                if _lock(file, fcntl.LOCK_SH):
                    return file
        except BaseException:
            os.close(file)
            raise
        return file


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
            raise
    return True


def _read(file: int) -> DriverUser | None:
    try:
        found = read_json(os.pread(file, _SIZE_LIMIT, 0), limit=_SIZE_LIMIT)
        return DriverUser(str(found["deployment"]), tuple(map(str, found["types"])))
    except (ValueError, KeyError, TypeError):  # damaged, or being written now
        return None
