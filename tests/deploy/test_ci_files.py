"""The files for CI: the GitHub action, the GitLab job, the test in Go."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import Parser
from kubedevices.cli.find_mistakes.check_arguments import add_arguments
from tests.docs.pages import ROOT
from tests.host_needs import needs

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
CHECK: dict[str, Any] = ACTION["runs"]["steps"][-1]


def test_the_action_gives_its_inputs_to_the_script_in_variables() -> None:
    """An input in the text of a script would be executed as code, so inputs are only in `env`."""
    steps = ACTION["runs"]["steps"]
    used = " ".join(str(value) for step in steps for value in step["env"].values())
    assert all(f"inputs.{name} " in used for name in ACTION["inputs"])
    assert not any("${{" in step["run"] for step in steps)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_action_has_the_exit_code_of_the_check(code: int, short_dir: Path) -> None:
    """The summary is written even if the check fails.

    Words with spaces of the command stay together.
    """
    program = short_dir / "kubedevices" / "bin" / "kubedevices"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        "printf '%s\\n' \"$@\"\n"
        'while [ "$1" != --markdown ]; do shift; done\n'
        'echo "## summary" > "$2"\n'
        f"exit {code}\n"
    )
    program.chmod(0o755)
    sudo = short_dir / "sudo"  # the runners of GitHub have it, other hosts may not
    sudo.write_text('#!/bin/sh\n[ "$1" = --preserve-env ] && shift && exec "$@"\n')
    sudo.chmod(0o755)
    summary = short_dir / "step-summary"
    given = {
        "PATH": f"{short_dir}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(short_dir),
        "GITHUB_STEP_SUMMARY": str(summary),
        "COMMAND": "./plugin --name 'a b'",
        "EXPECT": "known findings.yaml",
        "FAIL_ON": "warn",
        "ARGUMENTS": "--quick --only list",
        "REPORT": "my reports",
    }
    # GitHub runs `shell: bash` with these options.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", CHECK["run"]]
    done = subprocess.run(
        command, env=os.environ | given, cwd=short_dir, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert summary.read_text() == "## summary\n"
    words = done.stdout.splitlines()
    assert words[-3:] == ["bash", "-c", "exec ./plugin --name 'a b'"]
    parser = Parser()
    add_arguments(parser)
    args = parser.parse_args(words[1 : words.index("--")])
    assert (str(args.expect), args.fail_on) == ("known findings.yaml", "warn")
    assert (args.quick, args.only) == (True, ["list"])


@pytest.mark.parametrize("name", ["check-device-plugin", "check-dra-driver"])
def test_the_gitlab_job_uses_existing_options(name: str) -> None:
    """Its script is a command line of `kubedevices check`."""
    job = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())[name]
    words = job["script"][-1].split()
    parser = Parser()
    add_arguments(parser)
    args = parser.parse_args(words[2 : words.index("--")])
    assert args.in_place is (name == "check-device-plugin")
    assert str(args.junit) == job["artifacts"]["reports"]["junit"]
    assert str(args.html) in job["artifacts"]["paths"]


@needs("gofmt")
@pytest.mark.parametrize("name", ["conformance_test.go", "dra_conformance_test.go"])
def test_the_test_in_go_is_formatted(name: str) -> None:
    """gofmt parses the file and changes nothing."""
    file = ROOT / "examples/ci" / name
    done = subprocess.run(["gofmt", "-l", "-e", file], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
