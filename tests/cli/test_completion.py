"""`kubedevices completion`: what the shells complete."""

import shlex
import subprocess

import pytest

from kubedevices.cli.look_closer.help import verbs
from kubedevices.cli.verbs import VERBS
from tests.command_line import CommandLine


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    """Every option of every verb."""
    return {verb.name: [n for each in verb.options for n in each.names] for verb in verbs()}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kubedevices sim", ["simulate"]),
        ("kubedevices scan --outp", ["--output"]),
        ("kubedevices scan --output ", ["table", "json", "yaml"]),
        ("kubedevices scan -o j", ["json"]),
        ("kubedevices manifests n", ["node"]),
        ("kubedevices manifests kw", ["kwok"]),
        ("kubedevices manifests --nod", ["--node-label", "--nodes"]),
        ("kubedevices node --socket-dir ", None),
        ("kubedevices simulate --registration w", ["watch"]),
    ],
)
def test_bash_completes(line: str, offered: list[str] | None, cli: CommandLine) -> None:
    """Verbs, options, values; where it offers nothing, bash offers files."""
    words = line.split(" ")
    script = cli("completion", "bash").out
    script += f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
    script += '_kubedevices; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    if offered is None:
        offered = [option for option in done.stdout.split() if option.startswith("-")]
        assert "--socket-dir" in offered
    else:
        assert done.stdout.split() == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_verb_and_option(
    shell: str, table: dict[str, list[str]], cli: CommandLine
) -> None:
    """With the words of the help; no quote of a text ends the script's own."""
    script = cli("completion", shell).out
    assert set(table) == set(VERBS)
    lines = script.splitlines()
    for verb, options in table.items():
        about = [line for line in lines if f" {verb})" in line or f"from {verb}'" in line]
        for option in options:
            shown = f"-l {option[2:]} " if shell == "fish" and option[:2] == "--" else option
            assert any(shown in line for line in about) or shell == "fish", (verb, option)
    assert all(line.count("'") % 2 == 0 for line in lines)
