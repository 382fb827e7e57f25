"""`kubedevices init`: docs/ship.md runs the project, here is what surrounds it."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubedevices.cli import load_verb, verb_parser
from kubedevices.cli.write.init import project
from kubedevices.errors import KubedevicesError
from tests.command_line import CommandLine
from tests.planted import PLANTS, Outside, plant

FILES = project("fast-widget", "example.com")


def test_no_placeholder_is_left() -> None:
    """Every file is complete, and Python where it says so."""
    for name, text in FILES.items():
        assert not re.search(r"@\w+@", text), name
        if name.endswith(".py"):
            ast.parse(text)
    assert "class FastWidgetScanner" in FILES["fast_widget.py"]
    assert "tests/test_fast_widget.py" in FILES


def test_the_commands_in_the_readme_are_valid() -> None:
    """README and the CI workflow name verbs, options and values that exist."""
    workflow = yaml.safe_load(FILES[".github/workflows/test.yml"])
    steps = workflow["jobs"]["test"]["steps"]
    commands = [step["run"] for step in steps if "kubedevices check" in step.get("run", "")]
    commands += re.findall(r"`(kubedevices .*?)`", FILES["README.md"])
    verbs = []
    for command in commands:
        words = shlex.split(command.replace("$GITHUB_STEP_SUMMARY", "x"))[1:]
        for part in (words, words[words.index("--") + 2 :] if "--" in words else []):
            if part:
                ends = [part.index(mark) for mark in ("--", ">") if mark in part]
                cut = min(ends, default=len(part))
                verb_parser(load_verb(part[0])).parse_args(part[1:cut])
                verbs.append(part[0])
    assert set(verbs) == {"init", "check", "run", "scan", "manifests"}


def test_the_manifests_are_those_of_the_command_in_readme(cli: CommandLine) -> None:
    """`deploy.yaml` has what the command prints."""
    (command,) = re.findall(r"`(kubedevices manifests .*?) > deploy.yaml`", FILES["README.md"])
    words = shlex.split(command.replace("REGISTRY", "localhost"))
    printed = cli(*words[1:]).out.partition("\n")[2]  # after the remark on the image
    assert printed == FILES["deploy.yaml"]


def test_the_image_starts_what_readme_starts(short_dir: Path) -> None:
    """The command of the Containerfile serves the scanner; hadolint has nothing to say."""
    assert 'CMD ["run", "fast_widget:FastWidgetScanner", ' in FILES["Containerfile"]
    file = short_dir / "Containerfile"
    file.write_text(FILES["Containerfile"])
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["Widget", "2x", "a_b", "a/b", "-a", "a--b", "x" * 64])
def test_a_name_that_cannot_be_a_resource_is_refused(name: str) -> None:
    """Before anything is written."""
    with pytest.raises(KubedevicesError):
        project(name, "example.com")
    with pytest.raises(KubedevicesError):
        project("a", "no domain")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("import", "a keyword of Python"),
        ("json", "in place of Python's own module json"),
        ("yaml", "of the package PyYAML"),
        ("kubedevices", "in place of the module kubedevices"),
        ("tests", "in place of the module tests"),
    ],
)
def test_a_name_of_another_module_is_refused(name: str, says: str, cli: CommandLine) -> None:
    """`import json` would bring the plugin, and a keyword cannot be imported."""
    said = cli("init", name, code=2).err
    assert says in said
    assert f"for example {name}-devices" in said


def test_the_workflow_installs_nothing_by_a_public_name() -> None:
    """Whoever registered the name first would run code in the CI of each plugin."""
    workflow = yaml.safe_load(FILES[".github/workflows/test.yml"])
    (install,) = [each for each in workflow["jobs"]["test"]["steps"] if "env" in each]
    assert install["env"] == {"KUBEDEVICES": "${{ vars.KUBEDEVICES }}"}
    command = ["bash", "-ec", install["run"].replace("pip install", "true")]
    for value, code in (("", 1), ("https://example.com/k.whl", 0)):
        environment = {"PATH": os.environ["PATH"], "KUBEDEVICES": value}
        assert subprocess.run(command, env=environment, check=False).returncode == code


def test_nothing_is_overwritten(short_dir: Path, cli: CommandLine) -> None:
    """A file that is there ends it before the first is written."""
    (short_dir / "README.md").write_text("mine")
    assert "README.md exists" in cli("init", "widget", "--directory", short_dir, code=3).err
    assert [path.name for path in short_dir.iterdir()] == ["README.md"]


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("name", ["README.md", "tests", "deploy.yaml", "tests/test_widget.py"])
def test_nothing_is_written_through_a_link(
    short_dir: Path, cli: CommandLine, name: str, kind: str
) -> None:
    """Whatever has the name of a file or a folder: it stays, and the error names it."""
    outside, target = Outside(short_dir / "outside"), short_dir / "made"
    (target / name).parent.mkdir(parents=True)
    plant(kind, target / name, outside)
    before = (target / name).lstat()
    is_folder = (name, kind) == ("tests", "directory")  # a directory is where a folder belongs
    err = cli("init", "widget", "--directory", target, code=0 if is_folder else 3).err
    assert is_folder or f"{target / name}" in err
    assert (target / name).lstat().st_ino == before.st_ino
    outside.assert_untouched()
