"""Says why a program could not be started, for errors of all commands that users name."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


class StartFailure(NamedTuple):
    """Why a program did not start; `is_found` is false if there is no file of this name."""

    reason: str
    is_found: bool


def start_failure(
    program: str, error: OSError, env: Mapping[str, str] = os.environ
) -> StartFailure:
    """Return why `program` did not start; `env` has the PATH that was searched.

    The kernel's error is misleading in two cases. A directory of PATH that the user may not search
    turns "no such file" into "permission denied". A script whose interpreter is missing is called a
    missing file.
    """
    named = program if error.filename is None else os.fsdecode(error.filename)
    if Path(named).name != Path(program).name:
        return StartFailure(f"{named}: {error.strerror}", True)  # the working directory
    if error.errno not in _NOT_THERE:
        return StartFailure(error.strerror or str(error), True)
    if "/" in program:
        return StartFailure(_reason_at(Path(program), error), os.path.lexists(program))
    directories = os.get_exec_path(env)
    for file in (Path(directory, program) for directory in directories):
        if _is_file(file):
            return StartFailure(f"{file}: {_reason_at(file, error)}", True)
    closed = [directory for directory in directories if _may_not_search(directory)]
    where = f"; this user may not search {', '.join(closed)}" if closed else ""
    return StartFailure(f"no such program in PATH{where}", False)


def _reason_at(file: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT and _is_file(file):
        return "the interpreter in its first line does not exist"
    return error.strerror or str(error)


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # in a directory that this user may not search
        return False


def _may_not_search(directory: str) -> bool:
    try:
        Path(directory, "..").stat()  # `.` would need no right on the directory itself
    except PermissionError:
        return True
    except OSError:  # not there
        return False
    return False
