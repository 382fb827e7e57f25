"""Keeps the CDI files of a plugin equal to its device tree: one file per kind. Blocking.

`cdi_specs.file_name` defines the names of the files. The plugin framework calls `publish` with each
new device tree before it reports the list, `remove_dead` once after the first complete scan, and
`ensure` before an Allocate response that names CDI devices. The files stay when a plugin stops,
because containers that run, or that start again, still refer to their devices.

All methods may be called from several threads.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kubedevices.config.documents.yaml_text import STRANGER
from kubedevices.errors import CdiWriteFailed
from kubedevices.host import cdi_specs, listing, untrusted_files
from kubedevices.values.cdi import CdiDevice, CdiName, CdiSpec
from kubedevices.values.device import natural_key

_log = logging.getLogger(__name__)

_Identity = tuple[int, int, int]

FOREIGN_LIMIT = 2 * 2**20
"""Bytes of all CDI files of other programs together. NVIDIA's file for 8 GPUs has 30 kB."""


@dataclass
class _KindFile:
    """Our file of one CDI kind (`vendor/class`) and its wanted content."""

    path: Path
    devices: tuple[CdiDevice, ...] = ()
    foreign: frozenset[str] = frozenset()  # names of devices that another program's file defines
    text: str = ""  # empty: the file must not exist
    identity: _Identity | None = None  # of the file that we wrote last
    lock: int | None = None  # descriptor with a lock that shows that this process is alive
    failure: CdiWriteFailed | None = None


class CdiInventory:
    """Writes our files into `directory`.

    Definitions in files of other programs win, there and in `read_also`: we leave these devices out
    of our file. If a file cannot be written, `ensure` raises an error, so that Allocate fails. With
    `on_error="log"` the container starts without its CDI devices.
    """

    def __init__(
        self,
        directory: Path = cdi_specs.GENERATED_DIRECTORY,
        *,
        read_also: Sequence[Path] = (cdi_specs.STATIC_DIRECTORY,),
        on_error: Literal["fail", "log"] = "fail",
    ) -> None:
        self._directory = directory
        self._directories = tuple(dict.fromkeys((*read_also, directory)))
        self._on_error = on_error
        self._kinds: dict[str, _KindFile] = {}
        self._foreign_files: dict[Path, tuple[_Identity, tuple[str, ...]]] = {}
        self._warned: set[str] = set()
        self._leftovers_removed = False
        self._lock = threading.Lock()

    @property
    def failures(self) -> Mapping[str, CdiWriteFailed]:
        """Kind → the error of the last try to write its file."""
        with self._lock:
            return {name: kind.failure for name, kind in self._kinds.items() if kind.failure}

    def publish(self, devices: Mapping[str, Iterable[CdiDevice]]) -> None:
        """Write the files for `devices`, which maps kind → devices; remove files of other kinds.

        Raises `InvalidCdiSpec` for devices that runtimes would refuse, before it writes anything.
        If a file cannot be written, logs it; `ensure` tries again.
        """
        wanted = {
            kind: tuple(sorted(members, key=lambda each: natural_key(each.name)))
            for kind, members in devices.items()
        }
        # Encoded before we take the lock: an Allocate in `ensure` must not wait for long lists.
        texts = {
            kind: cdi_specs.text_of(CdiSpec(kind=kind, devices=members), kind)
            for kind, members in wanted.items()
            if members and (kind not in self._kinds or self._kinds[kind].devices != members)
        }
        with self._lock:
            self._remove_leftovers()
            foreign = self._foreign_names()
            for kind in self._kinds.keys() | wanted.keys():
                self._update(kind, wanted.get(kind, ()), foreign, texts.get(kind, ""))
            for kind in self._kinds.keys() - wanted.keys():
                if not self._kinds[kind].failure:
                    del self._kinds[kind]

    def defined(self, kind: str) -> tuple[CdiDevice, ...]:
        """Return the devices of `kind` that were published last, also by an earlier process."""
        with self._lock:
            known = self._kinds.get(kind)
            path = self._choose_path(kind) if known is None else known.path
        if known is not None:
            return known.devices
        spec = cdi_specs.read_spec_file(path).spec
        return spec.devices if spec is not None and spec.kind == kind else ()

    def ensure(self, names: Iterable[str]) -> tuple[str, ...]:
        """Make sure that our files define `names`; return the names that a container may get.

        Names of other kinds are returned unchecked. If a file cannot be written, raises
        `CdiWriteFailed` or, with `on_error="log"`, leaves out its names.
        """
        wanted = tuple(names)
        kinds = {name: CdiName.parse(name).kind for name in wanted}
        with self._lock:
            ours = self._kinds.keys() & set(kinds.values())
            foreign = self._foreign_names() if ours else {}
            failed: set[str] = set()
            for kind in sorted(ours):
                self._update(kind, self._kinds[kind].devices, foreign)
                failure = self._kinds[kind].failure
                if failure and self._on_error == "fail":
                    raise failure
                if failure:
                    failed.add(kind)
            return tuple(name for name in wanted if kinds[name] not in failed or name in foreign)

    def remove_dead(self, vendors: Collection[str]) -> tuple[Path, ...]:
        """Remove our files that an earlier process wrote and that define no published device.

        Only for kinds of `vendors`, the domains that this process serves. A file of another
        running process stays: that process holds a lock on it.
        """
        with self._lock:
            live = {kind.path for kind in self._kinds.values()}
            dead = [
                path
                for path in cdi_specs.our_files(self._directory)
                if path not in live
                and _belongs_to(path, vendors)
                and not untrusted_files.is_locked(path)
            ]
            return tuple(path for path in dead if self._remove(path))

    def close(self) -> None:
        """Release the locks; the files stay."""
        with self._lock:
            for kind in self._kinds.values():
                _unlock_file(kind)

    # ------------------------------------------------------------ one kind

    def _update(
        self,
        name: str,
        devices: tuple[CdiDevice, ...],
        foreign: Mapping[str, str],
        text_of_all: str = "",
    ) -> None:
        """Update the file of one kind; `text_of_all` is the text for all `devices`, if known."""
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _KindFile(self._choose_path(name))
        theirs = frozenset(each.name for each in devices if f"{name}={each.name}" in foreign)
        self._warn_of_foreign(name, theirs, foreign)
        if (devices, theirs) != (kind.devices, kind.foreign):
            ours = tuple(each for each in devices if each.name not in theirs)
            known = text_of_all if ours == devices else ""
            spec = CdiSpec(kind=name, devices=ours)
            kind.text = known or (cdi_specs.text_of(spec, str(kind.path)) if ours else "")
            kind.devices, kind.foreign, kind.identity = devices, theirs, None
        try:
            self._write_or_remove(kind)
        except CdiWriteFailed as error:
            if str(error) != str(kind.failure):
                _log.error("%s", error)
            kind.failure, kind.identity = error, None
        else:
            kind.failure = None

    def _write_or_remove(self, kind: _KindFile) -> None:
        if not kind.text:
            _unlock_file(kind)
            if cdi_specs.remove_file(kind.path):
                _log.info("removed the CDI file %s: its devices are gone", kind.path)
        # Checked each time: the directory is usually a tmpfs, and another program may clear it.
        elif kind.identity is None or _identity_of(kind.path, follow=False) != kind.identity:
            if cdi_specs.write_text(kind.path, kind.text):
                _log.info("wrote the CDI file %s", kind.path)
            kind.identity = _identity_of(kind.path, follow=False)
            _lock_file(kind)

    def _choose_path(self, kind: str) -> Path:
        """Return the path for `kind`: the second name if another kind uses the first one."""
        plain, other = (self._directory / name for name in cdi_specs.permanent_names(kind))
        taken = {each.path for each in self._kinds.values()}
        if other.exists() or plain in taken:
            return other
        holds = cdi_specs.kind_of_our_file(plain)
        return other if holds not in ("", kind) else plain

    def _remove_leftovers(self) -> None:
        if not self._leftovers_removed:
            self._leftovers_removed = True
            for path in cdi_specs.remove_leftovers(self._directory):
                _log.info("removed %s, an unfinished file of a dead process", path)

    def _remove(self, path: Path) -> bool:
        try:
            removed = cdi_specs.remove_file(path)
        except CdiWriteFailed as error:
            _log.warning("%s", error)
            return False
        if removed:
            _log.info("removed the CDI file %s: none of its devices exists now", path)
        return removed

    # ------------------------------------------------------------ files of other programs

    def _foreign_names(self) -> dict[str, str]:
        """Return name → path for all devices that files of other programs define.

        Files beyond `FOREIGN_LIMIT` are not read, so that nobody exhausts our memory.
        """
        names: dict[str, str] = {}
        seen: dict[Path, tuple[_Identity, tuple[str, ...]]] = {}
        left = FOREIGN_LIMIT
        for path in self._foreign_paths():
            identity = _identity_of(path)
            if identity is None:
                continue
            left -= _size_of(path)
            if left < 0:
                self._warn_of_size(path)
                break
            before = self._foreign_files.get(path)
            is_known = before is not None and before[0] == identity
            seen[path] = before if before and is_known else (identity, _names_in(path))
            names.update(dict.fromkeys(seen[path][1], str(path)))
        self._foreign_files = seen
        return names

    def _warn_of_size(self, path: Path) -> None:
        if "size" not in self._warned:
            self._warned.add("size")
            _log.warning(
                "%s and the CDI files after it are not read, because the files of other programs"
                " have more than %d bytes: devices that they define too are not left out of ours",
                path,
                FOREIGN_LIMIT,
            )

    def _foreign_paths(self) -> list[Path]:
        return [
            path
            for directory in self._directories
            for path in _entries(directory)
            if path.suffix in (".json", ".yaml") and not path.name.startswith(cdi_specs.PREFIX)
        ]

    def _warn_of_foreign(
        self, kind: str, devices: Collection[str], foreign: Mapping[str, str]
    ) -> None:
        for device in sorted(devices, key=natural_key):
            name = f"{kind}={device}"
            if name not in self._warned:
                self._warned.add(name)
                _log.warning(
                    "%s is defined in %s, which is not ours: left out of our file",
                    name,
                    foreign[name],
                )


def _belongs_to(path: Path, vendors: Collection[str]) -> bool:
    """Whether a file is of a kind of these vendors; for an invalid file its name decides."""
    kind = cdi_specs.kind_of_our_file(path)
    if not kind:
        return any(path.name.startswith(f"{cdi_specs.PREFIX}{vendor}-") for vendor in vendors)
    vendor = kind.partition("/")[0]
    return vendor in vendors and path.name in cdi_specs.permanent_names(kind)


def _lock_file(kind: _KindFile) -> None:
    """Hold a lock on the file until we replace it or the process ends; readers do not notice it."""
    _unlock_file(kind)
    try:
        kind.lock = untrusted_files.open_regular(kind.path)
        # Shared, so that two processes with the same kind can both hold it. `is_locked` tries an
        # exclusive lock.
        fcntl.flock(kind.lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        _unlock_file(kind)  # a file system without locks: other processes take the file for dead


def _unlock_file(kind: _KindFile) -> None:
    if kind.lock is not None:
        os.close(kind.lock)
        kind.lock = None


def _names_in(path: Path) -> tuple[str, ...]:
    """Return the full names of the devices that a file of another program defines."""
    file = cdi_specs.read_spec_file(path)
    return tuple(f"{file.kind}={each.name}" for each in file.spec.devices) if file.spec else ()


def _size_of(path: Path) -> int:
    """Return the bytes that reading a file takes: none for a file that is too large to be read."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size if size <= STRANGER.size else 0


def _entries(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in listing.names(directory)]
    except OSError:
        return []


def _identity_of(path: Path, *, follow: bool = True) -> _Identity | None:
    """Return device, inode and change time; a file system may reuse the inode number alone."""
    try:
        status = path.stat(follow_symlinks=follow)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
