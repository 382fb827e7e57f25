"""`kubedevices completion`: prints the script that completes verbs, options and their values."""

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubedevices.cli.look_closer.help import Verb
from kubedevices.host.terminal import print_text

NAME = "completion"
HELP = """\
print the completion for bash, zsh or fish

The shell completes verbs, options, and the values of options with few choices. It completes file
names everywhere else.
"""
EXAMPLES = """\
examples:
  kubedevices completion bash > /etc/bash_completion.d/kubedevices
  kubedevices completion zsh > /usr/local/share/zsh/site-functions/_kubedevices
  kubedevices completion fish > ~/.config/fish/completions/kubedevices.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from kubedevices.cli.look_closer.help import verbs

    print_text("".join(f"{line}\n" for line in _SCRIPTS[args.shell]([*verbs()])))
    return 0


def _cases(verbs: "list[Verb]", reply: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines that bash and zsh share; `reply` returns the command that offers words."""
    yield '    case "$verb $before" in'
    for verb in verbs:
        for option in verb.options:
            if option.choices:
                names = " | ".join(f'"{verb.name} {name}"' for name in option.names)
                yield f"        {names}) {reply(' '.join(option.choices))}; return ;;"
    yield "    esac"
    yield '    case "$verb" in'
    for verb in verbs:
        words = [*verb.choices, *(name for option in verb.options for name in option.names)]
        yield f"        {verb.name}) {reply(' '.join(words))} ;;"
    yield "    esac"


def _bash(verbs: "list[Verb]") -> Iterator[str]:
    names = " ".join(verb.name for verb in verbs)
    yield "# Completion of kubedevices for bash."
    yield "_kubedevices() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local verb="${COMP_WORDS[1]}"'
    yield "    COMPREPLY=()"
    yield "    if [ $COMP_CWORD -eq 1 ]; then"
    yield f'        COMPREPLY=($(compgen -W "{names} --help --version" -- "$word")); return'
    yield "    fi"
    yield from _cases(verbs, lambda words: f'COMPREPLY=($(compgen -W "{words}" -- "$word"))')
    yield "}"
    yield "complete -o default -F _kubedevices kubedevices"


def _zsh(verbs: "list[Verb]") -> Iterator[str]:
    yield "#compdef kubedevices"
    yield "_kubedevices() {"
    yield '    local before="${words[CURRENT-1]}" verb="${words[2]}"'
    yield "    if (( CURRENT == 2 )); then"
    yield "        local -a verbs=("
    for verb in verbs:
        yield f"            {_quoted(verb.name + ':' + verb.help.splitlines()[0])}"
    yield "        )"
    yield "        _describe verb verbs; return"
    yield "    fi"
    yield from _cases(verbs, lambda words: f"compadd -- {words}")
    yield '    [[ "$PREFIX" == -* ]] || _files'
    yield "}"
    yield '_kubedevices "$@"'


def _fish(verbs: "list[Verb]") -> Iterator[str]:
    yield "# Completion of kubedevices for fish."
    for verb in verbs:
        what = _quoted(verb.help.splitlines()[0])
        yield f"complete -c kubedevices -n __fish_use_subcommand -f -a {verb.name} -d {what}"
        begin = f"complete -c kubedevices -n '__fish_seen_subcommand_from {verb.name}'"
        if verb.choices:
            yield f"{begin} -a {_quoted(' '.join(verb.choices))}"
        for option in verb.options:
            words = [
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            ]
            if option.choices:
                words.append(f"-x -a {_quoted(' '.join(option.choices))}")
            elif option.value:
                words.append("-r")
            yield f"{begin} {' '.join(words)} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    return "'" + " ".join(text.split()).replace("\\", "\\\\").replace("'", "’") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
