"""What `kubedevices check` does for a DRA driver instead of a device plugin."""

import argparse
import asyncio
import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.errors import UsageError

if TYPE_CHECKING:
    from kubedevices.check.drivers.config import DriverCheck

_FOR_PLUGINS = ("resource", "bind", "in_place", "no_registry")
FOR_DRIVERS = ("manifests", "parameters", "show_requests", "long")
_WORDS_OF_PLUGINS = ("{socket_dir}", "{pod_resources}")
_WORDS_OF_DRIVERS = ("{kubeconfig}", "{node}", "{kubelet_dir}", "{pod_uid}", "--mode=dra")


def is_driver(args: argparse.Namespace) -> bool:
    """Whether the program is a DRA driver, as far as options and words of the command say it."""
    return not args.device_plugin and (args.dra or _said(args) == "dra")


def settle_kind(args: argparse.Namespace) -> None:
    """Set `dra` or `device_plugin`; start the program once if nothing else tells what it is.

    In a quick run, `waited` are the seconds in which it has registered nothing.

    Raises `UsageError` for a program that is both, `PluginNotStarted` and `NoPrivateView`.
    """
    args.waited = 0.0
    if args.dra or args.device_plugin or not args.target:
        return
    kind = _said(args) or _kind_of_checks(args) or _detected(args)
    args.dra, args.device_plugin = kind == "dra", kind == "device_plugin"


def _said(args: argparse.Namespace) -> str:
    """Return `dra`, `device_plugin`, or `""` if options and words of the command say neither."""
    words: Sequence[str] = args.target

    def has(places: Sequence[str]) -> bool:
        return any(place in word for place in places for word in words)

    if has(_WORDS_OF_DRIVERS) or ("--mode", "dra") in pairwise(words):
        return "dra"
    if has(_WORDS_OF_PLUGINS) or any(getattr(args, name) for name in _FOR_PLUGINS):
        return "device_plugin"
    if any(getattr(args, name) for name in FOR_DRIVERS):
        return "dra"
    return "device_plugin" if len(words) == 1 and Path(words[0]).is_dir() else ""


def _kind_of_checks(args: argparse.Namespace) -> str:
    """Return the kind of programs for which there are the checks of `--only` and `--skip`."""
    from kubedevices.check.checks import CATALOGUE
    from kubedevices.check.drivers import known_rules

    rules = known_rules()
    of_drivers = {*rules, *(each.partition(".")[0] for each in rules)}
    of_plugins = {*CATALOGUE.themes, *(each.id for each in CATALOGUE.checks)}
    names = {part for name in (*args.only, *args.skip) for part in name.split(",") if part}
    if not names <= of_drivers | of_plugins:
        return "device_plugin"  # its catalogue says what does not exist
    if names - of_plugins:
        return "dra"
    return "device_plugin" if names - of_drivers else ""


def _detected(args: argparse.Namespace) -> str:
    """Return what the program registers as; `device_plugin` if it registers nothing soon."""
    try:
        from kubedevices.check.drivers.detect import LIMIT, ProgramKind, detect
    except ModuleNotFoundError:  # without h11 only device plugins can be checked
        return ""
    found = asyncio.run(detect(args.target))
    if not found and args.quick:
        args.waited = LIMIT
    if len(found) > 1:
        raise UsageError(
            "this program registers as a device plugin and as a DRA driver: check it twice, with "
            "--device-plugin and with --dra"
        )
    return "dra" if ProgramKind.DRIVER in found else "device_plugin"


def driver_check(args: argparse.Namespace) -> "DriverCheck":
    """Return what the options say; raises `UsageError` for those that are for device plugins.

    The options have the names of the fields.
    """
    from dataclasses import fields

    from kubedevices.check.drivers.config import DriverCheck

    refuse(args, _FOR_PLUGINS, "device plugins, not for DRA drivers")
    given: dict[str, Any] = {}
    for each in fields(DriverCheck)[1:]:
        value = getattr(args, each.name)
        given[each.name] = tuple(value) if isinstance(value, list) else value
    return DriverCheck(tuple(args.target), **given)


def refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raise `UsageError` for the first of these options that is given; they are for `why`."""
    for name in names:
        if getattr(args, name):
            raise UsageError(f"--{name.replace('_', '-')} is for {why}")


def hide_refusals() -> None:
    """Do not log registrations that fail: the check refuses some, and reports the others."""
    watcher = logging.getLogger("kubedevices.node.arrival.plugin_watcher")
    if watcher.getEffectiveLevel() > logging.INFO:
        watcher.setLevel(logging.ERROR)
