"""`kubectl devices` and `kubectl devices explain`: kubectl runs `kubectl-devices` for both.

The first is `kubedevices devices --cluster`, the second `kubedevices explain`.
"""

import argparse
import contextlib
import shlex
from collections.abc import Sequence

from kubedevices import cli
from kubedevices.cli.shared.log_options import log_options
from kubedevices.errors import UsageError
from kubedevices.errors.words import did_you_mean


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, as `kubedevices` does."""
    return cli.main(argv, _run)


def _run(argv: list[str], _output: contextlib.ExitStack) -> int:
    if argv[:1] in (["cordon"], ["uncordon"]):
        raise UsageError(
            f"{argv[0]} works on the node that has the device: `kubectl debug node/NODE -it "
            f"--profile=sysadmin --image=IMAGE -- kubedevices {shlex.join(argv)}`, where IMAGE is "
            "that of kubedevices; docs/cordon.md has other ways"
        )
    if argv[:1] == ["explain"]:
        verb, called = cli.load_verb("explain"), "kubectl devices explain"
        words = argv[1:] if "--from" in argv else [*argv[1:], "--cluster"]
    else:
        from kubedevices.cli.node import devices_cluster as verb

        called, words = "kubectl devices", argv
        if argv and "." not in argv[0] and (meant := did_you_mean(argv[0], ["explain"])):
            raise UsageError(f"{argv[0]!r} is no command, resource or driver{meant}")
    args = cli.parse_words(verb, words, log_options(argparse.Namespace(), verb), called)
    from kubedevices.plugin.log_lines import configure_logging

    configure_logging(args.log_level, args.log_format)
    code: int = verb.run(args)
    return code
