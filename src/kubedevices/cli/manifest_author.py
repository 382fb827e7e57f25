"""`manifests run` and `deploy run`: a plugin written in Python, in an image of its author."""

import argparse
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from kubedevices.errors import InvalidResourceName, UsageError
from kubedevices.resource_name import explain_resource_name

if TYPE_CHECKING:
    from kubedevices.manifests.deployment import Deployment, HostMount

OPTIONS = ("scanner", "domain", "arg", "mount")


def add_author_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what says how such a plugin is started."""
    parser.add_argument(
        "scanner", metavar="MODULE:CLASS", nargs="?", help="run: the scanner in the image"
    )
    parser.add_argument(
        "--domain", help="run, expose --profile: the part of the resource names before the slash"
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="run: an argument of the scanner's constructor; may be given several times",
    )
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="HOST[:INSIDE][:rw]",
        help="run: a directory of the host, where the container sees it (default: at the same "
        "path) and whether it may write there; may be given several times. /sys needs no mount, "
        "every container has it",
    )


def with_author(deployment: "Deployment", args: argparse.Namespace) -> "tuple[Deployment, str]":
    """Add the command of the plugin and its directories; say its domain. Raises `UsageError`."""
    if not args.scanner or ":" not in args.scanner or not args.domain:
        raise UsageError("run needs MODULE:CLASS and --domain, as `kubedevices run` does")
    if problem := explain_resource_name(f"{args.domain}/any"):
        raise InvalidResourceName(f"{args.domain}/…", problem)
    arguments = [args.scanner, "--domain", args.domain]
    for each in args.arg:
        if not each.partition("=")[0].isidentifier() or "=" not in each:
            raise UsageError(f"--arg {each!r} is not NAME=VALUE")
        arguments += ["--arg", each]
    mounts = tuple(_mount(text) for text in args.mount)
    return replace(deployment, arguments=tuple(arguments), mounts=mounts), args.domain


def _mount(text: str) -> "HostMount":
    from kubedevices.manifests.deployment import HostMount
    from kubedevices.manifests.secret_directories import ADVICE, is_secret

    path, _, rest = text.removesuffix(":rw").partition(":")
    inside = rest or path
    for each in (path, inside):
        if not each.startswith("/") or posixpath.normpath(each) != each or inside == "/":
            raise UsageError(f"--mount {text!r} is not HOST[:INSIDE][:rw] with absolute paths")
    if is_secret(path):
        raise UsageError(f"--mount {text!r}: {path} {ADVICE}")
    if inside == "/dev":
        raise UsageError(
            f"--mount {text!r} would hide the container's own /dev: mount it elsewhere, for "
            "example /dev:/host/dev, and tell the plugin with --arg"
        )
    return HostMount(path, inside, read_only=not text.endswith(":rw"))
