"""What `manifests expose` deploys: the user's file, profiles, or an example."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.manifest_modes import with_mode
from kubedevices.errors import CannotRead, UsageError

if TYPE_CHECKING:
    from kubedevices.builtin.expose_config import ExposeConfig
    from kubedevices.manifests.deployment import Deployment


def with_expose(deployment: "Deployment", args: argparse.Namespace) -> "tuple[Deployment, str]":
    """Add a file that expose accepts and the directories that it looks into; say its domain."""
    from kubedevices.cli.manifest_mounts import dev_directories, host_directories, programs
    from kubedevices.manifests.deployment import DEV, EXAMPLE_DOMAIN

    if args.profile is None and args.domain is not None:
        raise UsageError("--domain goes with run, and with expose --profile")
    if args.config is None and args.profile is None:
        found = replace(deployment, cdi=args.cdi, dev_dirs=tuple(args.dev_dir) or (DEV,))
        return with_mode(found, args, [f"{EXAMPLE_DOMAIN}/null"]), EXAMPLE_DOMAIN
    config, text = _read(args)
    for resource, program in programs(config):
        print(
            f"kubedevices: {args.config}: {resource}: its health command runs in the container: "
            f"{deployment.image} must have {program}",
            file=sys.stderr,
        )
    found = replace(
        deployment,
        config=text,
        cdi=args.cdi,
        writes_cdi=any(rule.inject in ("cdi", "both") for rule in config.resources),
        dev_dirs=dev_directories(config, args.dev_dir),
        host_dirs=host_directories(config),
    )
    resources = [f"{config.namespace}/{rule.device_type}" for rule in config.resources]
    return with_mode(found, args, resources), config.namespace


def _read(args: argparse.Namespace) -> "tuple[ExposeConfig, str]":
    """Return what the user chose, and the same as the text of a file."""
    if args.profile is None:
        from kubedevices.builtin.expose_config import load_expose_config

        config, report = load_expose_config(args.config)
        for warning in report.warnings:
            print(f"kubedevices: {warning}", file=sys.stderr)
        return config, text_of(args.config)
    from kubedevices.builtin.expose_profiles import DOMAIN, combine, combined_text

    if args.config is not None:
        raise UsageError("--config and --profile exclude each other: use one of them")
    domain = args.domain or DOMAIN
    return combine(args.profile, domain), combined_text(args.profile, domain)


def text_of(file: Path) -> str:
    """Return the text of a configuration file; raises `CannotRead`."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CannotRead(str(file), error.strerror or str(error)) from error
