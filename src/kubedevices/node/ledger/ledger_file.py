"""The SQLite file of the ledger: its tables, its transactions, and the checks for damage.

All functions block, and run on the thread of `ledger`. The file has a write-ahead log with full
synchronisation: when a method returns, its change survives a power cut. A change writes only the
pages of its own pod, so its cost does not depend on the number of pods.

Each row has a checksum, because SQLite detects a damaged structure but not a damaged device ID.
"""

import contextlib
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import KubedevicesError, LedgerDamaged, LedgerUnusable, LedgerWriteFailed
from kubedevices.host.untrusted_files import sync_directory
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
COMPANIONS = ("-wal", "-shm", "-journal")
"""The endings of the other files of SQLite."""

_APPLICATION_ID = 0x6B646C67  # "kdlg": the mark of a ledger among SQLite files
_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_WAL_MODE = b"\2\2"
_BUSY_TIMEOUT = 5.0
_NOT_DAMAGE = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
)

_TABLES = """
CREATE TABLE pod (
    uid TEXT PRIMARY KEY, number INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    containers TEXT NOT NULL, checksum INTEGER NOT NULL, boot_id TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE holding (
    pod_uid TEXT NOT NULL, container TEXT NOT NULL, resource TEXT NOT NULL,
    devices TEXT NOT NULL, response BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (pod_uid, container, resource)
) WITHOUT ROWID;
CREATE TABLE resource (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE log_restarts (number INTEGER NOT NULL);
INSERT INTO log_restarts VALUES (0);
"""
# A pod that is admitted again keeps its number and its boot ID; `mark_verified` changes the boot
# ID.
_PUT_POD = """
INSERT INTO pod (uid, number, namespace, name, containers, checksum, boot_id)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET
namespace = excluded.namespace, name = excluded.name, containers = excluded.containers,
checksum = excluded.checksum
"""
_PUT_HOLDING = "INSERT OR REPLACE INTO holding VALUES (?, ?, ?, ?, ?, ?)"

_json = json.JSONEncoder(separators=(",", ":")).encode


class LedgerFile:
    """An open ledger file. Use `open` or `create`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._last_number = 0

    def __repr__(self) -> str:
        return f"<LedgerFile {self.path}>"

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """Open the ledger at `path`; return None if there is no file.

        Raises `LedgerDamaged`, and `LedgerUnusable` if the file could not be read.
        """
        if not _check_size(path):
            return None
        connection = None
        try:
            connection = connect(path)
            _check_structure(path, connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            raise _not_opened(path, error) from error
        return cls(path, connection)

    @classmethod
    def create(
        cls, path: Path, pods: Iterable[AdmittedPod], resources: Collection[str], boot_id: str
    ) -> Self:
        """Create a ledger with this content. The file appears at `path` when it is complete."""
        unfinished = path.with_name(f"{path.name}.new")
        try:
            for ending in ("", *COMPANIONS):
                Path(f"{unfinished}{ending}").unlink(missing_ok=True)
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with contextlib.closing(connect(unfinished)) as connection:
                connection.executescript(
                    f"BEGIN; {_TABLES} PRAGMA application_id = {_APPLICATION_ID};"
                    f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
                )
                made = cls(unfinished, connection)
                with made._transaction():
                    for pod, holdings, is_of_this_boot in pods:
                        made._put(pod, holdings, boot_id if is_of_this_boot else "")
                made.keep_resources(resources)
            # The connection is closed, so SQLite has moved the log into the main file, and the
            # rename of this one file is enough.
            unfinished.rename(path)
            sync_directory(path.parent)
        except OSError as error:
            raise LedgerUnusable(str(path), error.strerror or str(error)) from error
        except (sqlite3.Error, LedgerWriteFailed) as error:
            raise LedgerUnusable(str(path), str(error)) from error
        opened = cls.open(path)
        if opened is None:
            raise LedgerUnusable(str(path), "it vanished while it was created")
        return opened

    # ------------------------------------------------------------ reading

    def load(self, boot_id: str) -> tuple[list[AdmittedPod], list[str]]:
        """Return all pods in the order of their admissions, and the resources."""
        try:
            pods = self._connection.execute(
                "SELECT uid, number, namespace, name, containers, checksum, boot_id FROM pod "
                "ORDER BY number, uid"
            ).fetchall()
            holdings = self._connection.execute("SELECT * FROM holding").fetchall()
            resources = self._connection.execute("SELECT name FROM resource").fetchall()
            admitted = _pods_of(pods, holdings, boot_id)
        except (
            sqlite3.Error,
            KubedevicesError,
            AttributeError,  # a damaged column may have a value of any type
            KeyError,
            TypeError,
            ValueError,
        ) as error:
            raise _not_opened(self.path, error) from error
        self._last_number = pods[-1][1] if pods else 0
        return admitted, [name for (name,) in resources]

    # ------------------------------------------------------------ writing

    def make(self, changes: Sequence[Callable[["LedgerFile"], None]]) -> list[Exception | None]:
        """Make `changes` in one transaction, or one by one if any fails; return their errors."""
        if len(changes) > 1:
            try:
                with self._transaction():
                    for change in changes:
                        change(self)
            except Exception as error:
                logger.debug("%d changes are made one by one: %s", len(changes), error)
            else:
                return [None] * len(changes)
        return [_error_of(change, self) for change in changes]

    def commit(self, pod: Pod, holdings: Sequence[Holding], boot_id: str) -> None:
        """Add a pod, or add `holdings` to a stored pod; `boot_id` is used only for a new pod."""
        with self._transaction():
            self._put(pod, holdings, boot_id)

    def release(self, pod_uids: Iterable[str]) -> None:
        """Remove pods and their holdings."""
        with self._transaction():
            for pod_uid in pod_uids:
                self._connection.execute("DELETE FROM holding WHERE pod_uid = ?", (pod_uid,))
                self._connection.execute("DELETE FROM pod WHERE uid = ?", (pod_uid,))

    def mark_verified(self, pod_uid: str, boot_id: str) -> None:
        """Store that the devices of a pod were verified in this boot."""
        with self._transaction():
            self._connection.execute("UPDATE pod SET boot_id = ? WHERE uid = ?", (boot_id, pod_uid))

    def keep_resources(self, resources: Collection[str]) -> None:
        """Store these resources instead of the resources stored before."""
        with self._transaction():
            self._connection.execute("DELETE FROM resource")
            self._connection.executemany(
                "INSERT INTO resource VALUES (?)", [(name,) for name in sorted(resources)]
            )

    def log_size(self) -> int:
        """Return the bytes of the log file. A part of them may be unused since the last restart."""
        try:
            return Path(f"{self.path}-wal").stat().st_size
        except OSError:
            return 0

    def shorten_log(self) -> None:
        """Move the content of the log into the main file and restart the log.

        After the move the log still has old pages, which a recovery of a truncated log could write
        over newer pages. So a small change is written at once: it begins the new log.
        """
        with self._writing():
            self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        with self._transaction():
            self._connection.execute("UPDATE log_restarts SET number = number + 1")

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    def _put(self, pod: Pod, holdings: Sequence[Holding], boot_id: str) -> None:
        self._last_number += 1
        fields = (pod.uid, pod.namespace, pod.name, _containers_as_text(pod))
        uid, *rest = fields
        row = (uid, self._last_number, *rest, checksum_of(fields), boot_id)
        self._connection.execute(_PUT_POD, row)
        for holding in holdings:
            parts = (
                holding.pod_uid,
                holding.container,
                holding.resource,
                _json(holding.held.devices_per_numa),
                CONTAINER_RESPONSE.to_wire(holding.held.response),
            )
            self._connection.execute(_PUT_HOLDING, (*parts, checksum_of(parts)))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        is_begun = self._connection.in_transaction  # `make` has begun one for several changes
        if is_begun:
            yield
            return
        with self._writing():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise LedgerWriteFailed(f"{self.path}: {error}") from error


def _error_of(change: Callable[[LedgerFile], None], file: LedgerFile) -> Exception | None:
    try:
        change(file)
    except Exception as error:
        return error
    return None


# ---------------------------------------------------------------- opening


def connect(path: Path) -> sqlite3.Connection:
    """Open an SQLite file of ours; raises `sqlite3.Error`."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_TIMEOUT,
        isolation_level=None,
    )
    try:
        # Exclusive: SQLite then needs no -shm file, for which a full disk has no room.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_size(path: Path) -> bool:
    """Whether there is a ledger; raises `LedgerDamaged` if its main file is truncated."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
            size = os.fstat(file.fileno()).st_size
        log = Path(f"{path}-wal")
        has_log = log.exists() and log.stat().st_size > 0
    except FileNotFoundError:
        if Path(f"{path}-wal").exists():
            raise LedgerDamaged(str(path), "its log exists, but the file is missing") from None
        return False
    except OSError as error:
        raise LedgerUnusable(str(path), error.strerror or str(error)) from error
    if len(header) < _HEADER or not header.startswith(_MAGIC) or header[18:20] != _WAL_MODE:
        raise LedgerDamaged(str(path), "it is not an SQLite file of a node")
    page_size = int.from_bytes(header[16:18], "big")
    wanted = page_size * int.from_bytes(header[28:32], "big")
    if size < wanted and not has_log:  # with a log, the main file may grow to its size later
        raise LedgerDamaged(str(path), f"it has {size} bytes instead of {wanted}")
    return True


def _check_structure(path: Path, connection: sqlite3.Connection) -> None:
    version = _number(connection, "user_version")
    if _number(connection, "application_id") != _APPLICATION_ID or version < 1:
        raise LedgerDamaged(str(path), "it is an SQLite file, but not a ledger")
    if version > SCHEMA_VERSION:
        raise LedgerUnusable(
            str(path),
            f"it was written by a newer kubedevices (version {version} of the file; this "
            f"kubedevices reads version {SCHEMA_VERSION})",
        )
    problems = [text for (text,) in connection.execute("PRAGMA quick_check(3)")]
    if problems != ["ok"]:
        raise LedgerDamaged(str(path), "; ".join(problems).replace("\n", " "))


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    ((number,),) = connection.execute(f"PRAGMA {pragma}")
    return int(number)


def _not_opened(path: Path, error: BaseException) -> BaseException:
    """Return the error to raise because of `error` during the reading of the ledger."""
    if isinstance(error, LedgerDamaged | LedgerUnusable) or not isinstance(error, Exception):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    kind = LedgerUnusable if code in _NOT_DAMAGE else LedgerDamaged
    return kind(str(path), str(error))


def checksum_of(fields: Iterable[str | bytes]) -> int:
    """Return a checksum of fields and their lengths: a character in another field changes it."""
    checksum = 0
    for field in fields:
        data = field if isinstance(field, bytes) else field.encode()
        checksum = zlib.crc32(data, zlib.crc32(len(data).to_bytes(8, "little"), checksum))
    return checksum


def _containers_as_text(pod: Pod) -> str:
    kinds = {"init": pod.init_containers, "app": pod.containers}
    return _json(
        {
            kind: [[each.name, dict(each.limits), each.is_sidecar] for each in containers]
            for kind, containers in kinds.items()
        }
    )


def held_devices(devices: str, response: bytes) -> HeldDevices:
    """Return two columns of a holding; `commit` stores any text as an ID, so this reads any."""
    of_nodes = read_json(devices, limit=2**26, any_surrogate=True).items()
    per_numa = {int(node): ids for node, ids in of_nodes}
    return HeldDevices(per_numa, CONTAINER_RESPONSE.from_wire(response))


def _pods_of(
    pods: Iterable[tuple[Any, ...]], holdings: Iterable[tuple[Any, ...]], boot_id: str
) -> list[AdmittedPod]:
    """Return the pods with their holdings in the order of their containers; raises on damage."""
    held: dict[str, list[Holding]] = {}
    for pod_uid, container, resource, devices, response, checksum in holdings:
        if checksum_of((pod_uid, container, resource, devices, response)) != checksum:
            raise ValueError(f"the checksum of the devices of pod {pod_uid} is wrong")
        has = held_devices(devices, response)
        held.setdefault(pod_uid, []).append(Holding(pod_uid, container, resource, has))
    admitted = []
    for uid, _, namespace, name, containers, checksum, stored_boot in pods:
        if checksum_of((uid, namespace, name, containers)) != checksum:
            raise ValueError(f"the checksum of pod {uid} is wrong")
        kinds = {
            kind: tuple(Container(*each) for each in read_json(containers, limit=2**26)[kind])
            for kind in ("init", "app")
        }
        pod = Pod(name, namespace, uid, kinds["init"], kinds["app"])
        order = {container.name: number for number, container in enumerate(pod)}
        mine = sorted(held.pop(uid, ()), key=lambda each: order.get(each.container, len(order)))
        admitted.append(AdmittedPod(pod, mine, bool(boot_id) and stored_boot == boot_id))
    if held:
        raise ValueError(f"pod {next(iter(held))} holds devices and is not stored")
    return admitted
