"""The frame of the command line: verbs, errors, exit codes, log lines."""

import io
import json
import logging
import re
import shlex
import subprocess
import sys
import types
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices import __version__
from kubedevices.cli import EXAMPLES, load_verb
from kubedevices.cli.verbs import FOLDER_OF, GROUPS, PAGES, VERBS
from kubedevices.errors import CannotRead, ConfigError, ConfigProblem, KubedevicesError, UsageError
from tests.cli.commands import COMMAND, run
from tests.command_line import CommandLine
from tests.docs.pages import ROOT

IN_ENVIRONMENT = ConfigProblem("e", 0, 0, "V", "w")

MakeVerb = Callable[[Callable[[Namespace], int]], None]


@pytest.fixture
def make_verb(monkeypatch: pytest.MonkeyPatch) -> MakeVerb:
    """Return a function that adds the verb `pretend`."""

    def make(action: Callable[[Namespace], int]) -> None:
        module = types.ModuleType("kubedevices.cli.shared.pretend")
        vars(module).update(
            NAME="pretend", HELP="do nothing", add_arguments=lambda parser: None, run=action
        )
        monkeypatch.setitem(VERBS, "pretend", "do nothing")
        monkeypatch.setitem(FOLDER_OF, "pretend", "shared")
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return make


def raiser(error: BaseException) -> Callable[[Namespace], int]:
    def run_verb(args: Namespace) -> int:
        raise error

    return run_verb


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_help_lists_every_verb_by_group(
    columns: int, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its summary, in lines that fit into the terminal and break no word."""
    monkeypatch.setenv("COLUMNS", str(columns))
    shown, _, rest = cli("--help").out.partition("\noptions:")
    assert "examples:" in rest
    assert max(map(len, shown.splitlines())) <= columns
    for title, group in GROUPS.items():
        text = " ".join(shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0].split())
        assert text == " ".join(f"{verb} {summary}" for verb, summary in group.verbs.items())


def test_the_examples_of_the_help_fit_into_a_narrow_terminal() -> None:
    """60 columns are a half of a divided screen."""
    assert max(map(len, EXAMPLES.splitlines())) <= 60


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_begins_with_its_summary(verb: str, cli: CommandLine) -> None:
    """Its name, the first line of its help, and examples."""
    module = load_verb(verb)
    assert verb == module.NAME
    assert module.HELP.splitlines()[0] == VERBS[verb]
    shown = cli(verb, "--help").out
    assert f"kubedevices {verb} " in module.EXAMPLES
    words = [word for word in shown.split() if word != "\\"]  # of a command that continues
    assert " ".join(module.EXAMPLES.split()) in " ".join(words)
    assert shown.endswith("\n")
    for page in PAGES.get(verb, ()):
        assert f"docs/{page}.md" in shown
        assert (ROOT / f"docs/{page}.md").is_file()
    assert verb in PAGES or verb in ("completion", "help")


def test_no_verb_is_wrong_usage(cli: CommandLine) -> None:
    """The help goes to stderr."""
    captured = cli(code=2)
    assert captured.out == ""
    assert captured.err.startswith("usage: kubedevices VERB")


def test_version(cli: CommandLine) -> None:
    """One line."""
    assert cli("--version").out == f"kubedevices {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scna"], "unknown verb 'scna', did you mean 'scan'? (see kubedevices --help)"),
        (["xyzzy"], "unknown verb 'xyzzy' (see kubedevices --help)"),
        (["--nope"], "unrecognized arguments: --nope (see kubedevices --help)"),
        (["run", "a:B"], "the following arguments are required: --domain (see kubedevices run"),
        (["scan", "--outptu", "a"], "unrecognized arguments: --outptu (see kubedevices scan"),
        (["scan", "a:B", "-o", "xml"], "argument -o/--output: invalid choice: 'xml' (choose from"),
        (["--log-level", "loud", "scan"], "argument --log-level: invalid choice: 'loud'"),
        (["scan", "a:B", "--timeout", "soon"], "argument --timeout: invalid float value: 'soon'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(arguments: list[str], message: str, cli: CommandLine) -> None:
    """And exit code 2."""
    captured = cli(*arguments, code=2)
    assert captured.out == ""
    assert captured.err.startswith(f"kubedevices: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KubedevicesError("the answer is no"), 1, "kubedevices: the answer is no\n"),
        (UsageError("that is wrong"), 2, "kubedevices: that is wrong\n"),
        (CannotRead("a", "gone"), 3, "kubedevices: cannot read a: gone\n"),
        (
            ConfigError([ConfigProblem("f", 1, 2, "k", "wrong", "write x")]),
            2,
            "kubedevices: f:1:2: k: wrong (write x)\n",
        ),
        (
            ConfigError(
                [ConfigProblem("f", 1, 2, "k", "wrong"), ConfigProblem("e", 0, 0, "V", "w")]
            ),
            2,
            "kubedevices: 2 mistakes\n  f:1:2: k: wrong\n  e: V: w\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_a_message_and_an_exit_code(
    error: BaseException, code: int, message: str, make_verb: MakeVerb, cli: CommandLine
) -> None:
    """No traceback; the codes mean the same for every verb."""
    make_verb(raiser(error))
    assert cli("pretend", code=code).err == message


def test_debug_level_logs_the_traceback_of_an_error(make_verb: MakeVerb, cli: CommandLine) -> None:
    """The traceback is a log line, the message stays the last one."""
    make_verb(raiser(UsageError("that is wrong")))
    shown = cli("pretend", "--log-level", "debug", code=2).err
    assert "Traceback" in shown
    assert shown.endswith("kubedevices: that is wrong\n")


@pytest.mark.parametrize(
    ("exit_", "code", "message"),
    [(SystemExit(), 0, ""), (SystemExit(4), 4, ""), (SystemExit("help"), 1, "help\n")],
)
def test_system_exit_has_the_exit_code_of_python(
    exit_: SystemExit, code: int, message: str, make_verb: MakeVerb, cli: CommandLine
) -> None:
    """Whoever raises it."""
    make_verb(raiser(exit_))
    assert cli("pretend", code=code).err == message


def test_a_bug_keeps_its_traceback(make_verb: MakeVerb, cli: CommandLine) -> None:
    """It is not the user's fault and must not look like it."""
    make_verb(raiser(ZeroDivisionError("oops")))
    with pytest.raises(ZeroDivisionError, match="oops"):
        cli("pretend")


def test_the_exit_code_of_the_verb_is_returned(make_verb: MakeVerb, cli: CommandLine) -> None:
    """A verb may say no without an error."""
    make_verb(lambda args: 1)
    cli("pretend", code=1)


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """`kubedevices ... | head` ends quietly, with what a shell reports for SIGPIPE."""
    (tmp_path / "many.py").write_text(
        "import kubedevices as kd\n"
        "class Many(kd.PolledScanner):\n"
        "    def list_devices(self):\n"
        "        devices = [kd.Device(f'd{i}', numa_nodes=()) for i in range(5000)]\n"
        "        return kd.DeviceTree({'many': devices})\n"
    )
    with subprocess.Popen(
        [*COMMAND, "scan", "many:Many", "-o", "json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 141


def log_something(args: Namespace) -> int:
    log = logging.getLogger("kubedevices.plugin.pretend")
    log.info("two\nlines")
    try:
        raise ValueError("bad\nthing")
    except ValueError:
        log.warning("it failed", exc_info=True)
    log.debug("detail")
    return 0


def test_output_works_in_any_locale(tmp_path: Path) -> None:
    """What it has no letter for, such as the arrow before advice, is escaped."""
    ended = run("explain", "--socket-dir", tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert ended.returncode == 1
    assert "\\u2192 start a kubelet" in ended.stdout


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_data_is_valid_in_any_locale(output: str, load: Callable[[str], Any]) -> None:
    """Characters that stdout cannot encode are escapes of the format, also beyond 16 bits."""
    name = "ex\u00e4mple.com/\U0001f600=b"
    ended = run("cdi", "resolve", name, "-o", output, env={"PYTHONIOENCODING": "ascii"})
    assert ended.stdout.isascii()
    assert load(ended.stdout)[0]["name"] == name


def test_log_lines_are_lines(make_verb: MakeVerb, cli: CommandLine) -> None:
    """A line break in a message makes no second one, an exception is summarized."""
    make_verb(log_something)
    first, second = cli("pretend", "--log-level", "info").err.splitlines()
    assert first.endswith("Z INFO    plugin.pretend: two\\nlines")
    assert "WARNING plugin.pretend: it failed: ValueError: bad thing (test_main.py:" in second


def test_log_lines_can_be_json(make_verb: MakeVerb, cli: CommandLine) -> None:
    """One object a line, the traceback inside; options work before the verb as well."""
    make_verb(log_something)
    err = cli("--log-format", "json", "--log-level", "debug", "pretend").err
    entries = [json.loads(line) for line in err.splitlines()]
    assert [entry["message"] for entry in entries] == ["two\nlines", "it failed", "detail"]
    assert [entry["level"] for entry in entries] == ["info", "warning", "debug"]
    assert {entry["logger"] for entry in entries} == {"kubedevices.plugin.pretend"}
    assert entries[1]["exception"].startswith("ValueError: bad thing (test_main.py:")
    assert "Traceback" in entries[1]["traceback"]
    assert all(entry["time"].endswith("Z") for entry in entries)


def test_the_final_error_is_json_if_the_log_is_json(make_verb: MakeVerb, cli: CommandLine) -> None:
    """One line per mistake: collectors read stderr to its end."""

    def fail(args: Namespace) -> int:
        problems = [ConfigProblem("a.yaml", line, 1, "key", "wrong") for line in (3, 7)]
        raise ConfigError(problems)

    make_verb(fail)
    err = cli("--log-format", "json", "pretend", code=2).err
    entries = [json.loads(line) for line in err.splitlines()]
    assert [entry["level"] for entry in entries] == ["error", "error"]
    assert [entry["message"] for entry in entries] == [
        "a.yaml:3:1: key: wrong",
        "a.yaml:7:1: key: wrong",
    ]
    assert cli("pretend", code=2).err.startswith("kubedevices: 2 mistakes\n")


def test_log_lines_on_a_terminal_are_short_and_coloured(
    make_verb: MakeVerb, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """On a terminal; without colours where NO_COLOR is set."""
    make_verb(log_something)
    for no_color, level in (("", r"\x1b\[33mWARNING\x1b\[0m"), ("1", "WARNING")):
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("NO_COLOR", no_color)
        cli("pretend")
        assert re.match(rf"\d\d:\d\d:\d\d {level} plugin.pretend: it", terminal.getvalue())


def test_a_verb_chooses_its_default_log_level(make_verb: MakeVerb, cli: CommandLine) -> None:
    """Warnings, unless it says otherwise; on the command line what stands later wins."""
    make_verb(log_something)
    assert len(cli("pretend").err.splitlines()) == 1
    vars(sys.modules["kubedevices.cli.shared.pretend"])["LOG_LEVEL"] = "error"
    assert cli("pretend").err == ""
    assert len(cli("--log-level", "error", "pretend", "--log-level", "info").err.splitlines()) == 2


def test_the_command_line_loads_no_verb_to_list_them() -> None:
    """Neither the transport nor what draws tables."""
    code = (
        "import sys; from kubedevices.cli import main; main(['--help']);"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    loaded = {name.split(".")[0] for name in shown.stderr.split()}
    assert not loaded & {"asyncio", "google", "yaml", "rich", "ctypes"}
    ours = {name for name in shown.stderr.split() if name.startswith("kubedevices.")}
    assert {name.split(".")[1] for name in ours} == {"cli", "errors", "host", "version"}
    assert {name for name in ours if ".host." in name} == {"kubedevices.host.terminal"}


def test_the_module_is_the_command_too() -> None:
    """`python -m kubedevices.cli`."""
    assert run("--version").stdout == f"kubedevices {__version__}\n"


def test_verbs_may_share_an_argument_parser() -> None:
    """`add_arguments` of every verb takes any parser: nothing is declared twice."""
    for verb in VERBS:
        load_verb(verb).add_arguments(ArgumentParser())


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 3, "kubedevices: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written_is_a_one_line_error(
    redirection: str, code: int, message: str
) -> None:
    """A full disk is a reason; a closed stdout is the caller's wish."""
    scan = "scan --config examples/host-devices.yaml"
    command = f"{shlex.quote(sys.executable)} -m kubedevices.cli {scan} {redirection}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
