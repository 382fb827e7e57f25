"""What `kubedevices check` does for a DRA driver instead of a device plugin."""

import argparse
from itertools import pairwise
from typing import TYPE_CHECKING

from kubedevices.errors import CannotRead, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kubedevices.check.drivers.rights import Right
    from kubedevices.check.drivers.target import DriverTarget, DriverTiming

_FOR_PLUGINS = ("resource", "bind", "in_place", "no_registry")


def is_driver(args: argparse.Namespace) -> bool:
    """Whether the options or the words of the command say that the program is a DRA driver."""
    words: Sequence[str] = args.target
    if args.device_plugin:
        return False
    said = args.dra or "--mode=dra" in words or ("--mode", "dra") in pairwise(words)
    return said or any("{kubeconfig}" in word for word in words)


def driver_target(args: argparse.Namespace) -> "DriverTarget":
    """Return what to check; raises `UsageError` for options that only concern device plugins."""
    from kubedevices.check.drivers.target import DriverTarget
    from kubedevices.check.target import Trigger

    for name in _FOR_PLUGINS:
        if getattr(args, name):
            raise UsageError(
                f"--{name.replace('_', '-')} is for device plugins, not for DRA drivers"
            )
    if not args.target:
        raise UsageError("nothing to check: write -- COMMAND, which starts the driver (see --help)")
    if args.undo and not args.trigger:
        raise UsageError("--undo needs --trigger")
    return DriverTarget(
        tuple(args.target),
        trigger=Trigger.parse(args.trigger, args.undo),
        granted=_granted(args.manifests) if args.manifests else None,
        at_once=1 if args.one_at_a_time else DriverTarget.at_once,
    )


def _granted(files: "Sequence[Path]") -> "frozenset[Right]":
    """Return the rights in files of manifests; raises `CannotRead` and `ConfigError`."""
    from kubedevices.check.drivers.rights import granted_by
    from kubedevices.config.yaml_source import construct_value, parse_documents

    found: list[object] = []
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise CannotRead(str(file), error.strerror or str(error)) from error
        found += [construct_value(node, file) for node in parse_documents(content, file) if node]
    return granted_by(found)


def driver_timing(args: argparse.Namespace) -> "DriverTiming":
    """Return all durations of a run."""
    from dataclasses import replace

    from kubedevices.check.drivers.target import QUICK, DriverTiming

    timing = (QUICK if args.quick else DriverTiming()).scaled(args.timeout_scale)
    if args.change_timeout is None:
        return timing
    if args.change_timeout <= 0:
        raise UsageError("--change-timeout must be more than 0 seconds")
    return replace(timing, change=args.change_timeout)
