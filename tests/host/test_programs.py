"""`kubedevices.host.programs`: why a program did not start."""

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from kubedevices.host.programs import StartFailure, start_failure

SOURCES = Path(__file__).parents[2] / "src" / "kubedevices"
STARTS = re.compile(r"\b(?:posix_spawnp?|execv\w*|execl\w*|subprocess\.(?:Popen|run))\(")
OWN_PYTHON = {"testing/workbench/bench.py", "check/processes.py"}  # they start `sys.executable`


def failure(program: str, **env: str) -> StartFailure:
    with pytest.raises(OSError, match="Errno") as raised:
        subprocess.Popen([program], env=env)
    return start_failure(program, raised.value, env)


def script(file: Path, interpreter: str = "/bin/sh", mode: int = 0o755) -> Path:
    file.write_text(f"#!{interpreter}\n")
    file.chmod(mode)
    return file


def test_a_name_that_no_directory_of_path_has_is_not_found(tmp_path: Path) -> None:
    """The reason says that PATH was searched; a missing directory of PATH changes nothing."""
    reason = "no such program in PATH"
    assert failure("no-such", PATH=f"{tmp_path}:{tmp_path}/gone") == (reason, False)


def test_a_directory_of_path_that_may_not_be_searched_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says "permission denied" then. The program is still not found, as for a shell."""
    closed = tmp_path / "closed"
    real = os.stat

    def refuse(path: str, **options: object) -> os.stat_result:
        if str(path).startswith(str(closed)):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "stat", refuse)  # root may search every directory
    error = PermissionError(errno.EACCES, "Permission denied")
    reason = f"no such program in PATH; this user may not search {closed}"
    found = start_failure("no-such", error, {"PATH": f"{tmp_path}:{closed}"})
    assert found == (reason, False)


def test_a_file_of_path_that_is_not_executable_is_named(tmp_path: Path) -> None:
    """The program is found, so the exit code of a shell is 126."""
    file = script(tmp_path / "tool", mode=0o644)
    assert failure("tool", PATH=str(tmp_path)) == (f"{file}: Permission denied", True)


@pytest.mark.parametrize("word", ["tool", "{}/tool"])
def test_a_missing_interpreter_is_not_a_missing_file(tmp_path: Path, word: str) -> None:
    """The kernel says "no such file" about a script that exists."""
    file = script(tmp_path / "tool", "/nowhere/sh")
    found = failure(word.format(tmp_path), PATH=str(tmp_path))
    where = "" if "/" in word else f"{file}: "
    assert found == (f"{where}the interpreter in its first line does not exist", True)


def test_a_path_has_the_error_of_the_kernel(tmp_path: Path) -> None:
    """A file that is missing, a file without the right, and a program of another machine."""
    plain = script(tmp_path / "plain", mode=0o644)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\x7fELF")
    foreign.chmod(0o755)
    assert failure(f"{tmp_path}/gone") == ("No such file or directory", False)
    assert failure(str(plain)) == ("Permission denied", True)
    assert failure(str(foreign)) == ("Exec format error", True)


def test_a_missing_working_directory_is_not_a_missing_program(tmp_path: Path) -> None:
    """The error has the directory's name, not the program's."""
    with pytest.raises(OSError, match="gone") as raised:
        subprocess.Popen(["true"], cwd=tmp_path / "gone")
    reason = f"{tmp_path}/gone: No such file or directory"
    assert start_failure("true", raised.value) == (reason, True)


def test_every_module_that_starts_a_program_of_the_user_asks_for_the_reason() -> None:
    """Otherwise its message would call a missing program a matter of permissions."""
    starting = {
        str(file.relative_to(SOURCES))
        for file in SOURCES.rglob("*.py")
        if STARTS.search(text := file.read_text()) and "start_failure" not in text
    }
    assert starting == OWN_PYTHON
