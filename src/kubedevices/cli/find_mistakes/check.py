"""`kubedevices check`: acts as the kubelet for any device plugin and reports its mistakes."""

import argparse
import asyncio
import datetime as dt
import math
import os
import platform
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.find_mistakes.check_arguments import add_arguments
from kubedevices.cli.find_mistakes.check_driver import (
    FOR_DRIVERS,
    driver_check,
    hide_refusals,
    is_driver,
    refuse,
    settle_kind,
)
from kubedevices.cli.shared.output import Column, print_document, print_listing
from kubedevices.errors import CannotAsk, UsageError
from kubedevices.errors.words import counted
from kubedevices.host import terminal
from kubedevices.host.terminal import print_line, print_to_stderr
from kubedevices.host.unblocked_output import unblocked_output
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, PLUGIN_REGISTRY_DIR

if TYPE_CHECKING:
    from kubedevices.check.catalogue import Catalogue
    from kubedevices.check.check import PluginCheck
    from kubedevices.check.drivers.target import DriverTarget
    from kubedevices.check.kubelets import Kubelets
    from kubedevices.check.report.accepting import FindingsFile
    from kubedevices.check.report.progress import ProgressLine
    from kubedevices.check.report.summary import Run
    from kubedevices.check.results import RunResult
    from kubedevices.check.target import Target
    from kubedevices.check.timing import CheckTiming
    from kubedevices.testing.kubelet.mounts import Bind

__all__ = ["EXAMPLES", "HELP", "NAME", "add_arguments", "run"]

NAME = "check"
HELP = """\
find the mistakes of a device plugin or a DRA driver in any language

`-- COMMAND` starts the plugin. SOCKET_DIR is for a plugin that you start yourself; checks that must
start or end the plugin are then skipped. The host's kubelet is not touched. With root, the plugin
sees directories of the check at /var/lib/kubelet/device-plugins, /var/lib/kubelet/plugins_registry
and /var/run/cdi. Without root, the check uses a user namespace for this. If the host does not allow
user namespaces, give the directories to the plugin: {socket_dir}, {registry_dir} and {cdi_dir} in
COMMAND are replaced by their paths, and {pod_resources} by a podresources socket. In a container
without kubelet, use --in-place instead.

A DRA driver gets an API server of the check: {kubeconfig} and {node} in COMMAND are replaced by its
kubeconfig file and the name of the node. A command with {kubeconfig}, or --dra, says that the
program is a DRA driver; if nothing says what it is, it starts once, and what it registers decides.
Without root, {kubelet_dir} and {cdi_dir} name the directories; {pod_uid} lets two instances run at
the same time.

Exit codes: 0 no failure, 1 a failure that --expect does not know, 2 wrong usage (also a --resource
that the plugin does not register), 3 the plugin could not be started, or nothing registered and no
chosen check judges that, 4 the --trigger or its --undo failed, 5 no check was tried. The smallest
of 1, 4 and 5 counts. --junit tells the reason of a 3 too.
"""
EXAMPLES = """\
examples:
  sudo kubedevices check -- ./my-plugin --flag             a plugin with the usual paths built in
  kubedevices check -- ./my-plugin --dir {socket_dir}      without root
  sudo kubedevices check -- ./my-dra-driver --kubeconfig {kubeconfig} --node-name {node}
  kubedevices check --trigger 'touch dev/{n}' -- …        also looks for lost updates
  kubedevices check --junit report.xml -- ./my-plugin     in CI, together with --trigger
  kubedevices check --html report.html --only life -- …    one theme, with a page to attach
  kubedevices check --expect known.yaml --fail-on warn -- …  only new findings fail
  kubedevices check --write-expected known.yaml -- …       writes this file
  kubedevices check --explain life.stream-cancelled        what a check is about
"""

_TERMINATED = 128 + signal.SIGTERM


def run(args: argparse.Namespace) -> int:
    """Check a plugin, or describe the checks."""
    from kubedevices.check.report.accepting import FindingsFile
    from kubedevices.check.report.expected import load_expected

    if args.explain:
        return _explain(_catalogue(args, args.explain).find(args.explain), args.output)
    for path in filter(None, (args.junit, args.html, args.markdown, args.write_expected)):
        if not path.absolute().parent.is_dir():
            raise UsageError(f"the directory of {path} does not exist")
    if not args.list:
        with _told_in_report(args):
            settle_kind(args)
    chosen = _catalogue(args).select(_split(args.only), _split(args.skip))
    if args.list:
        return _list(chosen, args.output)
    if not chosen:
        raise UsageError("--only and --skip leave no check")
    target = driver_check(args).target() if is_driver(args) else _target(args)
    expected = load_expected(args.expect) if args.expect else ()
    accepted = FindingsFile(args.write_expected) if args.write_expected else None
    with _told_in_report(args):
        outcome = _check(target, chosen, args)
    if outcome is None:
        return _TERMINATED
    outcome = replace(outcome, expected=expected, fail_on=args.fail_on)
    _report(outcome, args)
    if accepted is not None:
        _accept(outcome, accepted, args.write_expected)
    return outcome.exit_code


@contextmanager
def _told_in_report(args: argparse.Namespace) -> Iterator[None]:
    """Write why nothing could be checked into the file of --junit: a CI server shows this file."""
    try:
        yield
    except CannotAsk as error:
        if args.junit:
            from kubedevices.check.report.junit import as_junit_error

            _write(args.junit, as_junit_error(shlex.join(args.target), str(error)))
        raise


def _catalogue(args: argparse.Namespace, name: str = "") -> "Catalogue":
    """Return the checks of a device plugin or of a DRA driver; `name` is the ID of one."""
    from kubedevices.check import checks, drivers
    from kubedevices.check.catalogue import DRIVER_THEMES, PLUGIN_THEMES

    theme = name.partition(".")[0]
    if is_driver(args) or (theme in DRIVER_THEMES and theme not in PLUGIN_THEMES):
        return drivers.catalogue()
    return checks.CATALOGUE


# ---------------------------------------------------------------- descriptions of checks


def _list(chosen: "Sequence[PluginCheck]", output: str) -> int:
    from kubedevices.check.report.document import words_of

    rows = [{"id": check.id, "theme": check.theme, **words_of(check)} for check in chosen]
    print_listing(rows, [Column("id"), Column("severity"), Column("rule", prose=True)], output)
    return 0


def _explain(check: "PluginCheck", output: str) -> int:
    from kubedevices.check.kubelets import Kubelets
    from kubedevices.check.report.document import words_of

    words = words_of(check)
    if output != "table":
        print_document({"id": check.id, "theme": check.theme, **words}, output)
        return 0
    print_line(f"{check.id} ({check.severity})")
    if check.since or check.until:
        print_line(f"  {'kubelets':<10}  {Kubelets.harmful(check)}")
    titles = {"rule": "rule", "suffers": "on a node", "source": "source", "repair": "repair"}
    for key, title in {**titles, "seen": "seen in"}.items():
        if words[key]:
            for number, line in enumerate(terminal.wrapped(words[key], 14)):
                print_line(f"  {'' if number else title:<10}  {line}")
    return 0


# ---------------------------------------------------------------- checking


def _target(args: argparse.Namespace) -> "Target":
    from kubedevices.check.target import Target, Trigger

    words = tuple(args.target)
    binds = tuple(_bind(text) for text in args.bind)
    if not words:
        raise UsageError("nothing to check: give SOCKET_DIR or -- COMMAND (see --help)")
    refuse(args, FOR_DRIVERS, "DRA drivers: add --dra")
    if args.undo and not args.trigger:
        raise UsageError("--undo needs --trigger")
    if binds and args.in_place:
        raise UsageError("--bind needs a mount, and --in-place makes none")
    is_started = not (len(words) == 1 and Path(words[0]).is_dir())
    if not is_started:
        refuse(args, ("bind", "in_place"), "plugins that check starts: -- COMMAND")
    return Target(
        command=words if is_started else (),
        directory=None if is_started else Path(words[0]).absolute(),
        binds=binds,
        resource=args.resource,
        trigger=Trigger.parse(args.trigger, args.undo),
        side_by_side=is_started and not (args.one_at_a_time or args.in_place),
        registry=not args.no_registry,
        in_place=args.in_place,
        waited=args.waited,
    )


def _bind(text: str) -> "Bind":
    from kubedevices.host.cdi_specs import GENERATED_DIRECTORY
    from kubedevices.testing.kubelet.mounts import Bind

    host, colon, inside = text.partition(":")
    if not colon or not host or not inside.startswith("/"):
        raise UsageError(f"--bind {text}: it must read HOST:INSIDE, INSIDE an absolute path")
    for taken in (DEVICE_PLUGIN_DIR, PLUGIN_REGISTRY_DIR, GENERATED_DIRECTORY):
        if Path(os.path.realpath(inside)).is_relative_to(os.path.realpath(taken)):
            raise UsageError(
                f"--bind {text}: the check is the kubelet there and wipes it; the plugin gets a "
                f"{taken} of its own already"
            )
    if not Path(host).exists():
        raise CannotAsk(f"--bind {text}: {host} does not exist")
    return Bind(str(Path(host).absolute()), inside)


def _timing(args: argparse.Namespace, target: "Target") -> "CheckTiming":
    from kubedevices.check.timing import QUICK, CheckTiming

    timing = (QUICK if args.quick else CheckTiming()).scaled(args.timeout_scale)
    if args.one_at_a_time or not target.command:
        timing = replace(timing, last_begin=math.inf)  # the user chose the slow way
    if args.change_timeout is None:
        return timing
    if args.change_timeout <= 0:
        raise UsageError("--change-timeout must be more than 0 seconds")
    return replace(timing, change=args.change_timeout)


def _check(
    target: "Target | DriverTarget", chosen: "Sequence[PluginCheck]", args: argparse.Namespace
) -> "Run | None":
    from kubedevices.check.busy_machine import raised_priority
    from kubedevices.check.kubelets import SUPPORTED, Kubelets
    from kubedevices.check.report.progress import ProgressLine
    from kubedevices.check.report.summary import Run

    kubelets = Kubelets.parse(args.kubelet) if args.kubelet else SUPPORTED
    left_out = [check.id for check in chosen if check.slow] if args.quick else []
    chosen = [check for check in chosen if check.id not in left_out]
    if not chosen:
        raise UsageError("--quick leaves out every check that is chosen")
    began = time.monotonic()
    # The check has to answer as fast as a kubelet: stderr must not block it (a slow reader of the
    # terminal), and other processes must not take its processor.
    with unblocked_output("stderr"), raised_priority():
        progress = ProgressLine(len(chosen))
        try:
            ran = asyncio.run(_run(target, chosen, args, progress, kubelets))
        except asyncio.CancelledError:
            return None
        finally:
            progress.clear()
    what = shlex.join(target.command) or str(getattr(target, "directory", ""))
    reported = {each.check.id for each in ran.results}  # an end of the plugin is always reported
    left_out = [name for name in left_out if name not in reported]
    about = {**_about(args), "kubelet": str(kubelets)}
    return Run(
        **vars(ran if args.show_requests else replace(ran, requests={})),
        plugin=what,
        seconds=time.monotonic() - began,
        about=about,
        left_out=left_out,
        kind="driver" if is_driver(args) else "plugin",
    )


def _about(args: argparse.Namespace) -> dict[str, str]:
    """Return the options and the machine, which somebody needs to repeat or compare this run."""
    system = platform.uname()
    words = {
        "trigger": args.trigger,
        "undo": args.undo,
        "only": " ".join(args.only),
        "skip": " ".join(args.skip),
        "resource": args.resource,
        "bind": " ".join(args.bind),
        "options": " ".join(
            f"--{name.replace('_', '-')}"
            for name in ("quick", "long", "one_at_a_time", "in_place", "no_registry")
            if getattr(args, name)
        ),
        "time": "" if args.timeout_scale == 1 else f"all times × {args.timeout_scale:g}",
        "plugins": "one at a time" if args.one_at_a_time or args.in_place else "side by side",
        "machine": f"{system.system} {system.release} {system.machine}, "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}",
    }
    return {title: text for title, text in words.items() if text}


async def _run(
    target: "Target | DriverTarget",
    chosen: "Sequence[PluginCheck]",
    args: argparse.Namespace,
    progress: "ProgressLine",
    kubelets: "Kubelets",
) -> "RunResult":
    """Run the checks; SIGTERM cancels them like Ctrl-C, so that they clean up."""
    from kubedevices.check.runner import run_all
    from kubedevices.check.target import Target

    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    ticking = asyncio.create_task(progress.tick(), name="progress")
    try:
        if isinstance(target, Target):
            return await run_all(target, chosen, _timing(args, target), progress, kubelets)
        from kubedevices.check.drivers.run import run_driver

        hide_refusals()
        return await run_driver(target, chosen, driver_check(args).timing(), progress, kubelets)
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


def _report(outcome: "Run", args: argparse.Namespace) -> None:
    from kubedevices.check.report.document import as_document
    from kubedevices.check.report.junit import as_junit
    from kubedevices.check.report.markdown import as_markdown
    from kubedevices.check.report.page import as_page
    from kubedevices.check.report.text import print_report

    if args.junit:
        _write(args.junit, as_junit(outcome))
    if args.markdown:
        _write(args.markdown, as_markdown(outcome))
    if args.html:
        now = dt.datetime.now(dt.UTC)
        _write(args.html, as_page(outcome, f"{now:%Y-%m-%d %H:%M} UTC"))
    if args.output == "table":
        print_report(outcome)
    else:
        print_document(as_document(outcome), args.output)


def _accept(outcome: "Run", known: "FindingsFile", file: Path) -> None:
    from kubedevices.host.shared_directory import SharedDirectory

    missing = known.missing(outcome.results)
    try:
        target = file.resolve()
        text = known.with_added(missing)
        SharedDirectory(target.parent).replace(target.name, text.encode(), mode=0o644)
    except OSError as error:
        raise CannotAsk(f"cannot write {file}: {error.strerror}") from error
    reasons = len(missing) + len(known.without_reason())
    todo = f": write {counted(reasons, 'reason')}, then use --expect {file}" if reasons else ""
    print_to_stderr(f"added {counted(len(missing), 'finding')} to {file}{todo}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotAsk(f"cannot write {path}: {error.strerror}") from error


def _split(names: Sequence[str]) -> list[str]:
    return [part for name in names for part in name.split(",") if part]
