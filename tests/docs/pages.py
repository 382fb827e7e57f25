"""Runs a documentation page: writes its files, and executes its commands in order in one shell.

A page is Markdown. Fenced blocks mean:

* any language after the line ``**`NAME`**``, which readers see: the content of the file NAME.
* ```` ```python ```` alone: executed unchanged.
* ```` ```console ````: lines after `$ ` are commands for bash, the other lines are their output;
  `…` matches any text. A process started by `$ … &` ends with the page.
* ```` ```text ````, ```` ```mermaid ```` and blocks after `<!-- not run: REASON -->`: not executed.
"""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:(?:\*\*`(?P<file>[^`\n]+)`\*\*|(?P<skipped><!-- not run: .*? -->))\n)?"
    r"^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_ONLY_READ = {"text", "mermaid", "ini"}


@dataclass
class Page:
    """The content of a page: files to write, Python to execute, commands to run."""

    path: Path
    files: dict[str, str] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    commands: list[tuple[str, list[str]]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def read_page(path: Path) -> Page:
    """Parse a page; blocks that are not executed are in `unknown`."""
    page = Page(path)
    for block in _BLOCK.finditer(path.read_text()):
        language, body = block["language"], block["body"]
        if block["skipped"] or language in _ONLY_READ:
            continue
        if block["file"]:
            page.files[block["file"]] = body
        elif language == "python":
            page.programs.append(body)
        elif language == "console":
            page.commands += _commands(body)
        else:
            page.unknown.append(f"{language}: {body.splitlines()[0]}")
    return page


def _commands(body: str) -> list[tuple[str, list[str]]]:
    commands: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and commands[-1][0].endswith("\\"):
            commands[-1] = (commands[-1][0] + "\n" + line.removeprefix("> "), [])
        elif commands and line.strip():
            commands[-1][1].append(line)
    return commands


def run_page(page: Page, directory: Path, timeout: float = 100) -> None:
    """Run `page` in `directory`; raise AssertionError with the whole output."""
    for name, body in page.files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body)
    ours = ("randomly", "asyncio", "hypothesispytest", "timeout")
    environment = os.environ | {
        # A reader's pytest has none of our plugins, and loading them takes longer than the tests.
        "PYTEST_ADDOPTS": " ".join(f"-p no:{plugin}" for plugin in ours),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "PYTHONPATH": str(directory),
    }
    for program in page.programs:
        _execute([sys.executable, "-W", "error", "-c", program], directory, environment, timeout)
    if page.commands:
        script = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || :; wait || :' EXIT"]
        for number, (command, _) in enumerate(page.commands):
            script += [f"echo '<<<{number}>>>'", command]
        # If the tests are killed, `timeout` still ends a command that loops.
        bounded = ["timeout", "--signal=KILL", f"{timeout + 10}", "bash", "-c", "\n".join(script)]
        printed = _execute(bounded, directory, environment, timeout)
        _compare(page, printed)


def _execute(
    command: list[str], directory: Path, environment: dict[str, str], timeout: float
) -> str:
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            raise AssertionError(f"still running after {timeout} s:\n{printed}") from None
    assert process.returncode == 0, f"exit code {process.returncode}:\n{printed}"
    return printed


def _compare(page: Page, printed: str) -> None:
    parts = re.split(r"^<<<\d+>>>$", printed, flags=re.MULTILINE)[1:]
    for (command, expected), part in zip(page.commands, parts, strict=True):
        lines = [" ".join(line.split()) for line in part.splitlines()]
        for line in expected:
            words = " ".join(line.split())
            pattern = ".*".join(re.escape(piece.strip()) for piece in words.split("…"))
            assert any(re.search(pattern, seen) for seen in lines), (
                f"{page.path.name}: `{command}` does not print\n  {line}\nbut\n{part}"
            )
