"""What a Deployment needs for each kind of plugin: simulate, proxy, run and expose.

Each `with_...` function returns the Deployment with the configuration, directories and device types
of its plugin, and what the plugin serves: a resource or a domain, for the name of the objects.

For expose, /dev is mounted whole unless the user names parts of it. Every other directory of the
host keeps its path in the container. So the directory must not hide files of the image, and must
not show more of the host than the configuration needs.
"""

import argparse
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kubedevices.cli.cluster.manifest_modes import is_followed, with_mode
from kubedevices.errors import (
    CannotRead,
    ConfigError,
    InvalidResourceName,
    UsageError,
    os_errors_as,
)
from kubedevices.host.terminal import print_to_stderr
from kubedevices.manifests.deployment import DEV, EXAMPLE_DOMAIN, Deployment, HostMount
from kubedevices.manifests.secret_directories import ADVICE, is_secret
from kubedevices.values.resource_name import explain_resource_name

if TYPE_CHECKING:
    from kubedevices.expose.config import ExposeConfig, ResourceRule
    from kubedevices.expose.path_patterns import PathPattern
    from kubedevices.simulate.config import SimulatorConfig
    from kubedevices.simulate.settings import FileSettings

_IN_EVERY_CONTAINER = ("/proc", "/sys")
_OF_THE_IMAGE = ("/bin", "/lib", "/lib64", "/opt/kubedevices", "/sbin", "/usr")
_TOO_MUCH = ("/var/cache", "/var/lib", "/var/log", "/var/run", "/var/lib/kubelet")


def with_simulator(deployment: Deployment, args: argparse.Namespace) -> tuple[Deployment, str]:
    """Add the settings in variables and in a file; return the resource or the domain as well."""
    env, file, settings, configs = simulated(args)
    devices = sum(config.number_devices for config in configs)
    if settings is not None:
        if any(config.create_device_files and config.device_file_prefix for config in configs):
            _refuse_device_files(settings)
        devices += len(configs) * max(
            (step.count or 0 for step in settings.timeline.steps), default=0
        )
    found = replace(
        deployment,
        env=env,
        config=None if file is None else text_of(file),
        writes_cdi=any(config.cdi for config in configs),
        devices=devices,
    )
    found = with_mode(found, args, [config.resource_name for config in configs])
    return found, configs[0].resource_name if len(configs) == 1 else configs[0].domain


class Simulated(NamedTuple):
    """What `simulated` found: the variables that are set, the file, and both together."""

    env: dict[str, str]
    file: Path | None
    settings: "FileSettings | None"
    configs: "tuple[SimulatorConfig, ...]"


def simulated(args: argparse.Namespace) -> Simulated:
    """Return what the variables and the file of a simulator say; raises `ConfigError`."""
    from kubedevices.cli.ready_plugins.simulate import find_preset
    from kubedevices.simulate.settings import SETTINGS, check_timeline, merge_resources
    from kubedevices.simulate.simulation_file import read_simulator_file

    if args.config is not None and args.preset is not None:
        raise UsageError("--config and --preset exclude each other: use one of them")
    names = [setting.variable for setting in SETTINGS if setting.variable]
    env = {name: os.environ[name] for name in names if os.environ.get(name)}
    file = args.config if args.preset is None else find_preset(args.preset)
    settings = None if file is None else read_simulator_file(file)
    configs = merge_resources(settings, env, {})
    if settings is not None:
        check_timeline(settings.timeline, configs)
    return Simulated(env, file, settings, configs)


def with_proxy(deployment: Deployment, args: argparse.Namespace) -> Deployment:
    """Add the checked configuration of a proxy, and its mode."""
    from kubedevices.proxy.proxy_config import load_proxy_config

    if args.mode == "split":
        raise UsageError("--mode split: a proxy has the modes device-plugin and dra")
    if args.mode == "dra":
        if not args.domain:
            raise UsageError("proxy --mode dra needs --domain: of which resources is it the driver")
        if problem := explain_resource_name(f"{args.domain}/any"):
            raise InvalidResourceName(f"{args.domain}/…", problem)
    elif args.domain:
        raise UsageError("--domain: proxy needs it only with --mode dra")
    deployment = with_mode(deployment, args, author_resources(args))
    found = replace(deployment, mounts=tuple(_mount(text) for text in args.mount))
    if args.config is None:
        return found
    config, _ = load_proxy_config(args.config)
    files = []
    for resource, rule in config.resources.items():
        checks = (*rule.health.checks, rule.health.recover) if rule.health is not None else ()
        for check in filter(None, checks):
            files += [(resource, check.file)] if check.file is not None else []
            if check.command:
                _note_program(args.config, resource, check.command[0], deployment.image)
    # The container has its own /dev: with `privileged: true` in the values it has the host's files.
    places = (
        (f"{name}: {text}", posixpath.dirname(text.partition("{")[0])) for name, text in files
    )
    return replace(found, config=text_of(args.config), host_dirs=_host_directories(places))


def _host_directories(places: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the directories outside /dev that must be mounted; raises `UsageError`.

    Each place is the directory, after what lies in it.
    """
    wanted = {
        _checked(directory, what)
        for what, directory in places
        if not _is_in(directory, (DEV, *_IN_EVERY_CONTAINER))
    }
    return tuple(each for each in sorted(wanted) if not _is_in(posixpath.dirname(each), wanted))


def _note_program(file: Path, resource: str, program: str, image: str) -> None:
    print_to_stderr(
        f"kubedevices: {file}: {resource}: its health command runs in the container: {image} must "
        f"have {program}; if the command opens devices, set `privileged: true` in --values"
    )


def _refuse_device_files(settings: "FileSettings") -> NoReturn:
    problem = "the pod could not create these files: it has no capabilities, and no such mount"
    places = [
        source.places.get("create_device_files") for source in (settings, *settings.resources)
    ]
    raise ConfigError([place._replace(problem=problem) for place in places if place is not None])


def text_of(file: Path) -> str:
    """Return the text of a configuration file; raises `CannotRead`."""
    with os_errors_as(CannotRead, file):
        return file.read_text(encoding="utf-8")


# ---------------------------------------------------------------- run


def with_author(deployment: Deployment, args: argparse.Namespace) -> tuple[Deployment, str]:
    """Add the command of the plugin and its directories; return its domain as well.

    Raises `UsageError` and `InvalidResourceName`.
    """
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


def author_resources(args: argparse.Namespace) -> list[str]:
    """Return the resources of `--device-type`: the plugin that has them does not run here.

    Raises `UsageError` and `InvalidResourceName`.
    """
    found = [f"{args.domain}/{each}" for each in args.device_type]
    for each in found:
        if problem := explain_resource_name(each):
            raise InvalidResourceName(each, problem)
    if not found and (args.mode in ("dra", "split") or is_followed(args)):
        raise UsageError(f"{args.what} with DRA needs --device-type for each of its device types")
    return found


def _mount(text: str) -> HostMount:
    path, _, rest = text.removesuffix(":rw").partition(":")
    inside = rest or path
    for each in (path, inside):
        is_path = each.startswith("/") and posixpath.normpath(each) == each
        # A colon is the beginning of something else, such as the ":ro" of other tools.
        if not is_path or ":" in each or inside == "/":
            raise UsageError(
                f"--mount {text!r} is not HOST[:INSIDE][:rw] with absolute paths without a colon"
            )
    if is_secret(path):
        raise UsageError(f"--mount {text!r}: {path} {ADVICE}")
    if inside == "/dev":
        raise UsageError(
            f"--mount {text!r} would hide the container's own /dev: use another path inside, for "
            "example /dev:/host/dev, and tell the plugin with --arg"
        )
    return HostMount(path, inside, read_only=not text.endswith(":rw"))


# ---------------------------------------------------------------- expose


def with_expose(deployment: Deployment, args: argparse.Namespace) -> tuple[Deployment, str]:
    """Add the checked configuration and its directories; return its domain as well."""
    if args.profile is None and args.domain is not None:
        raise UsageError("--domain works with run, and with expose --profile")
    if args.config is None and args.profile is None:
        found = replace(deployment, cdi=args.cdi, dev_dirs=tuple(args.dev_dir) or (DEV,))
        return with_mode(found, args, [f"{EXAMPLE_DOMAIN}/null"]), EXAMPLE_DOMAIN
    deployment = replace(deployment, mounts=tuple(_mount(text) for text in args.mount))
    config, text = _read(args)
    for resource, program in programs(config):
        _note_program(args.config, resource, program, deployment.image)
    found = replace(
        deployment,
        config=text,
        cdi=args.cdi,
        writes_cdi=any(rule.inject in ("cdi", "both") for rule in config.resources),
        dev_dirs=dev_directories(config, args.dev_dir),
        host_dirs=_host_directories(
            (f"{rule.name}: {path}", directory)
            for rule in config.resources
            for path, directory in _looks_into(rule)
        ),
    )
    resources = [f"{config.namespace}/{rule.device_type}" for rule in config.resources]
    return with_mode(found, args, resources), config.namespace


def _read(args: argparse.Namespace) -> "tuple[ExposeConfig, str]":
    """Return the chosen configuration, and its text for a file."""
    if args.profile is None:
        from kubedevices.expose.config import load_expose_config

        config, _ = load_expose_config(args.config)
        return config, text_of(args.config)
    from kubedevices.expose.read_profiles import DOMAIN, combine, combined_text

    if args.config is not None:
        raise UsageError("--config and --profile exclude each other: use one of them")
    domain = args.domain or DOMAIN
    return combine(args.profile, domain), combined_text(args.profile, domain)


# ---------------------------------------------------------------- directories of the host


def dev_directories(config: "ExposeConfig", given: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of /dev that are `given`, or /dev if none is given.

    Raises `UsageError` if the configuration needs another part of /dev.
    """
    directories = tuple(dict.fromkeys(directory.rstrip("/") for directory in given)) or (DEV,)
    for directory in directories:
        if not _is_in(directory, (DEV,)) or posixpath.normpath(directory) != directory:
            raise UsageError(f"--dev-dir {directory!r} is not a directory below /dev")
    for rule in config.resources:
        for path, directory in _looks_into(rule):
            if _is_in(directory, (DEV,)) and not _is_in(directory, directories):
                raise UsageError(
                    f"{rule.name}: {path} needs {directory}, which no --dev-dir mounts"
                )
    return directories


def programs(config: "ExposeConfig") -> Iterator[tuple[str, str]]:
    """Yield each resource with a health command, and its program, which the image must have."""
    for rule in config.resources:
        if rule.health is not None and rule.health.command:
            yield rule.name, rule.health.command[0]


def _looks_into(rule: "ResourceRule") -> Iterator[tuple[str, str]]:
    """Yield each path that a resource looks for, and the directory that must be mounted for it."""
    for match in rule.match:
        if match.path is not None:
            yield match.path.text, _fixed_part(match.path)
        elif match.directory is not None:
            yield match.directory.text, _fixed_part(match.directory)
        else:
            yield "a match by bus", DEV
    texts = [each.path for each in rule.companions]
    if rule.health is not None and rule.health.file is not None:
        texts.append(rule.health.file)
    for text in texts:
        if text.startswith("/"):  # other texts begin with the path of the match
            yield text, posixpath.dirname(text.partition("{")[0])


def _fixed_part(pattern: "PathPattern") -> str:
    names = []
    for step in pattern.steps[:-1]:
        if not isinstance(step, str):
            break
        names.append(step)
    return "/" + "/".join(names)


def _checked(directory: str, what: str) -> str:
    if is_secret(directory) and directory not in _TOO_MUCH and len(Path(directory).parts) > 2:
        raise UsageError(f"{what} lies in {directory}, which {ADVICE}")
    parts = Path(directory).parts
    if len(parts) < 3 or directory in _TOO_MUCH or _is_in(directory, _OF_THE_IMAGE):
        raise UsageError(
            f"{what} lies in {directory}, which cannot be mounted into the pod: put it into a "
            "directory of its own, such as /run/devices"
        )
    return directory


def _is_in(directory: str, roots: Iterable[str]) -> bool:
    return any(re.match(re.escape(root) + "(/|$)", directory) for root in roots)
