"""The profiles of `expose` and `scan`: served, printed and listed."""

import argparse
import sys
from typing import Any

from kubedevices.builtin.expose import ExposeScanner, check_dev_root
from kubedevices.builtin.expose_config import ExposeConfig
from kubedevices.builtin.expose_host import HostDevices
from kubedevices.builtin.expose_profiles import (
    DOMAIN,
    combine,
    combined_text,
    profile_names,
    read_profile,
)
from kubedevices.builtin.expose_tree import ExposeMemory, expand, survey
from kubedevices.cli.output import Column, print_listing
from kubedevices.plugin.inject import Inject


def scanner_of_profiles(args: argparse.Namespace, *, inject: Inject = "nodes") -> ExposeScanner:
    """Return the scanner of `--profile`; raises `UsageError` and `CannotRead`."""
    check_dev_root(args.dev_root)
    config = combine(args.profile, args.domain or DOMAIN)
    return ExposeScanner(config, dev_root=args.dev_root, inject=inject)


def print_profile(args: argparse.Namespace) -> None:
    """Print the file of the profiles of `args.profile`, to be changed and used with `--config`."""
    sys.stdout.write(combined_text(args.profile, args.domain or DOMAIN))


def print_profiles(args: argparse.Namespace) -> None:
    """Print every profile, with the number of devices that it finds on this host."""
    check_dev_root(args.dev_root)
    host = HostDevices(args.dev_root)
    document: list[dict[str, Any]] = [
        {
            "profile": profile.name,
            "resources": [rule.device_type for rule in profile.config.resources],
            "here": _count(profile.config, host),
            "title": profile.title,
        }
        for profile in map(read_profile, profile_names())
    ]
    rows = [{**each, "resources": ",".join(each["resources"])} for each in document]
    columns = [Column(name) for name in ("profile", "resources", "here", "title")]
    print_listing(rows, columns, args.output, document=document)


def _count(config: ExposeConfig, host: HostDevices) -> int:
    return len(survey(expand(config, host, {}), host, ExposeMemory(), now=0.0))
