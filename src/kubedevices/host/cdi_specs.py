"""The CDI files of this host: read all of them, write one safely. Blocking file access.

`kubedevices.values.cdi` interprets the content. `host.cdi_inventory` keeps our files up to date.
The directories must be the host's: a plugin in a container mounts them.
"""

import contextlib
import errno
import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from kubedevices.config.documents.yaml_text import STRANGER, load_yaml
from kubedevices.errors import CdiProblem, CdiWriteFailed, InvalidCdiSpec, NotYaml, os_errors_as
from kubedevices.host import listing, untrusted_files
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.values.cdi import (
    SIZE_LIMIT,
    CdiRegistry,
    CdiSpec,
    SpecFile,
    from_dict,
    load_json,
    to_json,
    validate,
    with_minimum_version,
)

STATIC_DIRECTORY = Path("/etc/cdi")
GENERATED_DIRECTORY = Path("/var/run/cdi")
DIRECTORIES = (STATIC_DIRECTORY, GENERATED_DIRECTORY)
"""Where runtimes look by default; a later directory overrides an earlier one.

`plugin.cdi` and `manifests.deployment` have a copy: they do not import this module.
"""

PREFIX = "kubedevices_"
"""Our file names begin with this. We never change a file with another name."""

_OURS = re.compile(rf"{PREFIX}.*\.json")
_HEAD = 4096
_KIND_IN_HEAD = re.compile(
    rb'\s*\{\s*"cdiVersion":\s*"[^"\\]*",\s*"kind":\s*"(?P<kind>[!#-\[\]-~]+)"'
)
_ALL_STRANGERS = 2**23
"""Bytes of all files of other programs together. A limit per file is no limit: a neighbour writes
more files. A file of 1 MB with many small devices takes 45 MB of memory.
"""

_NO_ROOM = CdiProblem("", "left out: the CDI files of other programs have more than 8 MiB together")
_NAME_LIMIT = 200  # of 255 bytes: `SharedDirectory.replace` adds to the name


# ---------------------------------------------------------------- reading


def read_registry(directories: Sequence[Path] = DIRECTORIES) -> CdiRegistry:
    """Read the directories as runtimes do: later ones override; an invalid file is left out."""
    files: list[SpecFile] = []
    ignored: list[str] = []
    errors: dict[str, str] = {}
    room = _ALL_STRANGERS
    for priority, directory in enumerate(directories):
        try:
            entries = _entries(directory)
        except OSError as error:
            errors[str(directory)] = error.strerror or str(error)
            break  # as the runtimes' library does: it does not read the directories after it
        for path in entries:
            if path.suffix in (".json", ".yaml"):
                is_ours = path.name.startswith(PREFIX)
                room -= 0 if is_ours else _size_of(path)
                files.append(
                    read_spec_file(path, priority)
                    if is_ours or room >= 0
                    else SpecFile(str(path), priority, None, (_NO_ROOM,))
                )
            elif path.suffix == ".yml":
                ignored.append(str(path))
    return CdiRegistry(tuple(files), tuple(map(str, directories)), tuple(ignored), errors)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _entries(directory: Path) -> list[Path]:
    """Return the files in `directory`, none if it does not exist."""
    try:
        if directory.is_symlink():
            # The library does not follow links when it walks the tree: it sees a file here.
            raise OSError(errno.ENOTDIR, "a symbolic link, which runtimes do not follow")
        paths = [directory / name for name in listing.names(directory)]
        return [path for path in paths if path.is_symlink() or not path.is_dir()]
    except FileNotFoundError:
        return []


def read_spec_file(path: Path, priority: int = 0) -> SpecFile:
    """Read one file; the result contains the problems of an invalid file."""
    mode, kind = None, ""
    problems: tuple[CdiProblem, ...]
    try:
        mode = path.stat().st_mode
        # Only our own files are large. Others with our prefix cost memory, so processes that serve
        # others read the kind of such files only, with `kind_of_our_file`.
        limit = SIZE_LIMIT if path.name.startswith(PREFIX) else STRANGER.size
        # Follow links, as runtimes do.
        content = untrusted_files.read_bytes(path, limit=limit, follow_links=True)
        data = load_text(content.decode(), str(path))
        kind = _kind_claimed_by(data)
        spec = from_dict(data, file=str(path))
        validate(spec, file=str(path))
    except InvalidCdiSpec as error:
        problems = error.problems
    except OSError as error:
        problems = (CdiProblem("", error.strerror or str(error)),)
    except UnicodeDecodeError as error:
        problems = (CdiProblem("", f"it is not UTF-8: {error}"),)
    else:
        return SpecFile(str(path), priority, spec, kind=kind, mode=mode)
    return SpecFile(str(path), priority, None, problems, kind, mode)


def _kind_claimed_by(data: Any) -> str:
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else ""


def kind_of_our_file(path: Path) -> str:
    """Return the kind in a file that begins as we write files; empty for any other file.

    Reads only the beginning: another program may have written a large file under our name.
    """
    try:
        found = _KIND_IN_HEAD.match(untrusted_files.read_head(path, limit=_HEAD))
    except OSError:
        return ""
    return found["kind"].decode() if found else ""


def load_text(text: str, file: str = "") -> Any:
    """Return the data of a JSON or YAML text; runtimes read both, under `.json` and `.yaml`."""
    if not text.lstrip().startswith("{"):
        return _load_yaml(text, file)
    try:
        return load_json(text, file=file)
    except InvalidCdiSpec as error:
        with contextlib.suppress(InvalidCdiSpec):
            return _load_yaml(text, file)
        raise error from None  # the text began like JSON: the error of JSON helps more


def _load_yaml(text: str, file: str) -> Any:
    try:
        return load_yaml(text, STRANGER, like_json=True)
    except NotYaml as error:
        raise InvalidCdiSpec(file, [CdiProblem("", f"it is not YAML: {error}")]) from None


# ---------------------------------------------------------------- writing


def file_name(kind: str, transient_id: str = "") -> str:
    """Return the name of our CDI file of `kind`, `kubedevices_<vendor>-<class>.json`.

    With `transient_id`: of a file for one claim, `kubedevices_<vendor>-<class>_<id>.json`. For
    readers the name has no meaning. A name that would be too long is cut and gets a hash.
    """
    name = PREFIX + kind.replace("/", "-")
    if transient_id:
        name += "_" + transient_id.replace("/", "_")
    if len(name.encode()) > _NAME_LIMIT:
        name = f"{name[:150]}-{_short_hash(f'{kind}={transient_id}')}"
    return f"{name}.json"


def permanent_names(kind: str) -> tuple[str, str]:
    """Return the file name for the devices of `kind`, and the name to use if the first is taken.

    The kinds `a-b/c` and `a/b-c` have the same first name.
    """
    name = file_name(kind)
    return name, f"{name.removesuffix('.json')}-{_short_hash(kind)}.json"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def text_of(spec: CdiSpec, file: str = "") -> str:
    """Return the text of a file with the lowest possible version; raises `InvalidCdiSpec`."""
    spec = with_minimum_version(spec)
    validate(spec, strict=True, file=file)
    return to_json(spec)


def write_spec(directory: Path, name: str, spec: CdiSpec) -> bool:
    """Write `spec` as `write_text` does; also raises `InvalidCdiSpec`."""
    path = directory / name
    return write_text(path, text_of(spec, str(path)))


def write_text(path: Path, text: str, *, durable: bool = True) -> bool:
    """Write a text from `text_of`; readers see the old or the new file.

    A file that is not `durable` may be empty after a power failure.

    Returns False if the content was equal. Equal content is not written again, because a write
    makes every runtime read the directory again. Raises `CdiWriteFailed`.
    """
    data = text.encode()
    with os_errors_as(CdiWriteFailed, path):
        directory = SharedDirectory.at(path.parent)
        if directory.has(path.name, data):
            return False
        # Readable for all: engines without root read it too.
        directory.create(mode=0o755, for_all=True)
        directory.replace(path.name, data, mode=0o644, durable=durable)
    return True


# ---------------------------------------------------------------- removing


def remove_file(path: Path) -> bool:
    """Remove one of our files; return False if it did not exist. Raises `CdiWriteFailed`."""
    with os_errors_as(CdiWriteFailed, path):
        return SharedDirectory.at(path.parent).remove(path.name)


def our_files(directory: Path) -> list[Path]:
    """Return all our CDI files in `directory`; none if it is a link."""
    with contextlib.suppress(OSError):
        return [directory / name for name in SharedDirectory.at(directory).names(_OURS)]
    return []


def remove_leftovers(directory: Path) -> tuple[Path, ...]:
    """Remove our temporary files whose process died between write and rename; return them."""
    with contextlib.suppress(OSError):
        return SharedDirectory.at(directory).remove_leftovers(_OURS)
    return ()


def remove_transient(directory: Path, kind: str, keep: Collection[str] = ()) -> tuple[Path, ...]:
    """Remove our transient files of `kind` whose IDs are not in `keep`; return them.

    The content of a file says its kind, because file names are ambiguous.
    """
    kept = {*permanent_names(kind), *(file_name(kind, each) for each in keep)}
    return tuple(
        path
        for path in our_files(directory)
        if path.name not in kept and kind_of_our_file(path) == kind and remove_file(path)
    )
