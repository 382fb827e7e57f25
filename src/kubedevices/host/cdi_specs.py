"""The CDI files of this host: read all of them, write one safely. Blocking file access.

`kubedevices.cdi` interprets the content. `host.cdi_inventory` keeps our files up to date. The
directories must be the host's: a plugin in a container mounts them.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kubedevices.cdi import (
    CdiRegistry,
    CdiSpec,
    SpecFile,
    from_dict,
    load_json,
    to_json,
    validate,
    with_minimum_version,
)
from kubedevices.errors import CdiProblem, CdiWriteFailed, InvalidCdiSpec
from kubedevices.host import untrusted_files

STATIC_DIRECTORY = Path("/etc/cdi")
GENERATED_DIRECTORY = Path("/var/run/cdi")
DIRECTORIES = (STATIC_DIRECTORY, GENERATED_DIRECTORY)
"""Where runtimes look by default; a later directory overrides an earlier one.

`plugin.cdi_files` and `manifests.deployment` have a copy: they do not import this module.
"""

PREFIX = "kubedevices_"
"""Our file names begin with this. We never change a file with another name."""

_SIZE_LIMIT = 64 * 2**20
_NAME_LIMIT = 200  # of 255 bytes: `untrusted_files.replace` adds to the name


# ---------------------------------------------------------------- reading


def read_registry(directories: Sequence[Path] = DIRECTORIES) -> CdiRegistry:
    """Read the directories as runtimes do: later ones override; an invalid file is left out."""
    files: list[SpecFile] = []
    ignored: list[str] = []
    errors: dict[str, str] = {}
    for priority, directory in enumerate(directories):
        try:
            entries = _entries(directory)
        except OSError as error:
            errors[str(directory)] = error.strerror or str(error)
            break  # as the runtimes' library does: it does not read the directories after it
        for path in entries:
            if path.suffix in (".json", ".yaml"):
                files.append(read_spec_file(path, priority))
            elif path.suffix == ".yml":
                ignored.append(str(path))
    return CdiRegistry(tuple(files), tuple(map(str, directories)), tuple(ignored), errors)


def _entries(directory: Path) -> list[Path]:
    """Return the files in `directory`, none if it does not exist."""
    try:
        if directory.is_symlink():
            # The library does not follow links when it walks the tree: it sees a file here.
            raise OSError(errno.ENOTDIR, "a symbolic link, which runtimes do not follow")
        return sorted(path for path in directory.iterdir() if not _is_directory(path))
    except FileNotFoundError:
        return []


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def read_spec_file(path: Path, priority: int = 0) -> SpecFile:
    """Read one file; the result contains the problems of an invalid file."""
    mode, kind = None, ""
    problems: tuple[CdiProblem, ...]
    try:
        mode = path.stat().st_mode
        # Follow links, as runtimes do.
        content = untrusted_files.read_bytes(path, limit=_SIZE_LIMIT, follow_links=True)
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
    import yaml  # noqa: PLC0415  # takes 2 MB; our own files are JSON

    try:
        return yaml.load(text, _strict_loader())  # a safe loader
    except Exception as error:  # for `0x_` or `!!bool perhaps` not a YAMLError, but ValueError etc.
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InvalidCdiSpec(file, [CdiProblem("", f"it is not YAML: {problem}")]) from None


@cache
def _strict_loader() -> Any:
    """Return a loader that refuses duplicate keys and reads dates as texts, as JSON has them."""
    import yaml  # noqa: PLC0415

    parent: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class StrictLoader(parent):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) != len(node.value):
                raise yaml.constructor.ConstructorError(
                    None, None, "duplicate key", node.start_mark
                )
            return mapping

    StrictLoader.yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in parent.yaml_implicit_resolvers.items()
    }
    return StrictLoader


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
    try:
        if _has_content(path, data):
            return False
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _open_to_all(path.parent)
        # Readable for all: engines without root read it too.
        untrusted_files.replace(path, data, mode=0o644, durable=durable)
    except OSError as error:
        raise CdiWriteFailed(str(path), error.strerror or str(error)) from error
    return True


def _open_to_all(directory: Path) -> None:
    """Let engines without root enter the new directory, for any umask."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(opened, 0o755)
    finally:
        os.close(opened)


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return untrusted_files.read_bytes(path, limit=len(data)) == data
    except OSError:  # no file, larger, or not a regular file
        return False


# ---------------------------------------------------------------- removing


def remove_file(path: Path) -> bool:
    """Remove one of our files; return False if it did not exist. Raises `CdiWriteFailed`."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CdiWriteFailed(str(path), error.strerror or str(error)) from error
    return True


def our_files(directory: Path) -> Iterator[Path]:
    """Yield all our CDI files in `directory`."""
    with contextlib.suppress(FileNotFoundError):
        yield from sorted(directory.glob(f"{PREFIX}*.json"))


def remove_leftovers(directory: Path) -> tuple[Path, ...]:
    """Remove our temporary files whose process died between write and rename; return them."""
    return untrusted_files.remove_leftovers(directory, PREFIX)


def remove_transient(directory: Path, kind: str, keep: Collection[str] = ()) -> tuple[Path, ...]:
    """Remove our transient files of `kind` whose IDs are not in `keep`; return them.

    The content of a file says its kind, because file names are ambiguous.
    """
    kept = {*permanent_names(kind), *(file_name(kind, each) for each in keep)}
    return tuple(
        path
        for path in our_files(directory)
        if path.name not in kept and read_spec_file(path).kind == kind and remove_file(path)
    )
