"""The CDI files of a plugin: one per kind, always saying what the device tree says. Blocking.

The plugin framework calls `publish` with every new device tree before it reports the list,
`remove_dead` once after the first complete scan, and `ensure` before an Allocate answer that names
CDI devices. There is nothing to call at the end: containers that run, or are started again, still
refer to the names, so files stay when a plugin stops.

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

from kubedevices.cdi import CdiDevice, CdiName, CdiSpec, SpecFile
from kubedevices.device import natural_key
from kubedevices.errors import CdiWriteFailed
from kubedevices.host import cdi_specs, untrusted_files

_log = logging.getLogger(__name__)

_Identity = tuple[int, int, int]


@dataclass
class _Kind:
    """The state of one kind, and its file."""

    path: Path
    devices: tuple[CdiDevice, ...] = ()
    foreign: frozenset[str] = frozenset()
    text: str = ""  # empty: there is nothing of ours to say
    identity: _Identity | None = None
    claim: int | None = None  # our open file, locked for as long as we live
    failure: CdiWriteFailed | None = None


class CdiInventory:
    """Keeps our files in `directory`; definitions of others there and in `read_also` win.

    `on_error="log"` lets a container start without its CDI devices when a file cannot be written;
    the default refuses to allocate.
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
        self._kinds: dict[str, _Kind] = {}
        self._foreign_files: dict[Path, tuple[_Identity, SpecFile]] = {}
        self._warned: set[str] = set()
        self._is_clean = False
        self._lock = threading.Lock()

    @property
    def failures(self) -> Mapping[str, CdiWriteFailed]:
        """By kind, why its file could not be written last time."""
        with self._lock:
            return {name: kind.failure for name, kind in self._kinds.items() if kind.failure}

    def publish(self, devices: Mapping[str, Iterable[CdiDevice]]) -> None:
        """Make the files say that these are our devices, by kind; a kind left out is withdrawn.

        Raises `InvalidCdiSpec` for devices that no reader would take, before anything is written.
        A file that cannot be written is logged and tried again by `ensure`.
        """
        wanted = {
            kind: tuple(sorted(members, key=lambda each: natural_key(each.name)))
            for kind, members in devices.items()
        }
        # Made before the lock is taken: an Allocate that waits in `ensure` must not wait for long
        # lists.
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
        """Return what was published last of `kind`, be it in an earlier life."""
        with self._lock:
            known = self._kinds.get(kind)
            path = self._choose_path(kind) if known is None else known.path
        if known is not None:
            return known.devices
        spec = cdi_specs.read_spec_file(path).spec
        return spec.devices if spec is not None and spec.kind == kind else ()

    def ensure(self, names: Iterable[str]) -> tuple[str, ...]:
        """Make sure that our files define `names` now; return those a container may be given.

        Names of kinds that are not ours pass unchecked. Raises `CdiWriteFailed` or, with
        `on_error="log"`, leaves out the names that could not be written.
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
        """Remove files of ours from an earlier life that define no device of today.

        Only kinds of `vendors` are looked at, the domains this process serves. What another
        process that lives has published is not dead: it holds a lock on its file.
        """
        with self._lock:
            live = {kind.path for kind in self._kinds.values()}
            dead = [
                path
                for path in cdi_specs.our_files(self._directory)
                if path not in live
                and _belongs_to(path, vendors)
                and not untrusted_files.is_claimed(path)
            ]
            return tuple(path for path in dead if self._remove(path))

    def close(self) -> None:
        """Give up the locks; the files stay."""
        with self._lock:
            for kind in self._kinds.values():
                _release(kind)

    # ------------------------------------------------------------ one kind

    def _update(
        self,
        name: str,
        devices: tuple[CdiDevice, ...],
        foreign: Mapping[str, str],
        text_of_all: str = "",
    ) -> None:
        """Bring the file of one kind up to date; `text_of_all` spares making it, if it is known."""
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind(self._choose_path(name))
        theirs = frozenset(each.name for each in devices if f"{name}={each.name}" in foreign)
        self._warn_of(name, theirs, foreign)
        if (devices, theirs) != (kind.devices, kind.foreign):
            ours = tuple(each for each in devices if each.name not in theirs)
            known = text_of_all if ours == devices else ""
            spec = CdiSpec(kind=name, devices=ours)
            kind.text = known or (cdi_specs.text_of(spec, str(kind.path)) if ours else "")
            kind.devices, kind.foreign, kind.identity = devices, theirs, None
        try:
            self._bring_to_disk(kind)
        except CdiWriteFailed as error:
            if str(error) != str(kind.failure):
                _log.error("%s", error)
            kind.failure, kind.identity = error, None
        else:
            kind.failure = None

    def _bring_to_disk(self, kind: _Kind) -> None:
        if not kind.text:
            _release(kind)
            if cdi_specs.remove_file(kind.path):
                _log.info("removed the CDI file %s: its devices are gone", kind.path)
        # Looked at each time: the directory is mostly a tmpfs, and others may clear it.
        elif kind.identity is None or _identity_of(kind.path, follow=False) != kind.identity:
            if cdi_specs.write_text(kind.path, kind.text):
                _log.info("wrote the CDI file %s", kind.path)
            kind.identity = _identity_of(kind.path, follow=False)
            _claim(kind)

    def _choose_path(self, kind: str) -> Path:
        """Return the file of `kind`; another name if the usual file is about another kind."""
        plain, other = (self._directory / name for name in cdi_specs.permanent_names(kind))
        taken = {each.path for each in self._kinds.values()}
        if other.exists() or plain in taken:
            return other
        holds = cdi_specs.read_spec_file(plain).kind if plain.exists() else ""
        return other if holds not in ("", kind) else plain

    def _remove_leftovers(self) -> None:
        if not self._is_clean:
            self._is_clean = True
            for path in cdi_specs.remove_leftovers(self._directory):
                _log.info("removed %s, left behind by a writer that died", path)

    def _remove(self, path: Path) -> bool:
        try:
            removed = cdi_specs.remove_file(path)
        except CdiWriteFailed as error:
            _log.warning("%s", error)
            return False
        if removed:
            _log.info("removed the CDI file %s: no device of today is in it", path)
        return removed

    # ------------------------------------------------------------ definitions of others

    def _foreign_names(self) -> dict[str, str]:
        """Return the names that files of others define, with the path of one of them."""
        names: dict[str, str] = {}
        seen: dict[Path, tuple[_Identity, SpecFile]] = {}
        for path in self._foreign_paths():
            identity = _identity_of(path)
            if identity is None:
                continue
            before = self._foreign_files.get(path)
            is_known = before is not None and before[0] == identity
            seen[path] = (
                before if before and is_known else (identity, cdi_specs.read_spec_file(path))
            )
            file = seen[path][1]
            if file.spec is not None:
                names.update({f"{file.kind}={each.name}": file.path for each in file.spec.devices})
        self._foreign_files = seen
        return names

    def _foreign_paths(self) -> list[Path]:
        return [
            path
            for directory in self._directories
            for path in _list(directory)
            if path.suffix in (".json", ".yaml") and not path.name.startswith(cdi_specs.PREFIX)
        ]

    def _warn_of(self, kind: str, devices: Collection[str], foreign: Mapping[str, str]) -> None:
        for device in sorted(devices, key=natural_key):
            name = f"{kind}={device}"
            if name not in self._warned:
                self._warned.add(name)
                _log.warning(
                    "%s is defined in %s, which is not ours: left alone", name, foreign[name]
                )


def _belongs_to(path: Path, vendors: Collection[str]) -> bool:
    """Whether a file is about a kind of these vendors; a broken file is judged by its name."""
    kind = cdi_specs.read_spec_file(path).kind
    if not kind:
        return any(path.name.startswith(f"{cdi_specs.PREFIX}{vendor}-") for vendor in vendors)
    vendor = kind.partition("/")[0]
    return vendor in vendors and path.name in cdi_specs.permanent_names(kind)


def _claim(kind: _Kind) -> None:
    """Hold a lock on the file until we write another one or die; readers do not notice it."""
    _release(kind)
    try:
        kind.claim = untrusted_files.open_regular(kind.path)
        # Shared, so that two processes with one kind can both hold it; `is_claimed` tries an
        # exclusive lock.
        fcntl.flock(kind.claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        _release(kind)  # a file system without locks: then every file looks dead to others


def _release(kind: _Kind) -> None:
    if kind.claim is not None:
        os.close(kind.claim)
        kind.claim = None


def _list(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _identity_of(path: Path, *, follow: bool = True) -> _Identity | None:
    """Return what changes with every replacement: inodes alone are used again at once."""
    try:
        status = path.stat(follow_symlinks=follow)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
