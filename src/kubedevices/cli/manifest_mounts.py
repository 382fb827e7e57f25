"""Which directories of a host a configuration of expose looks into, for the volumes of its pod.

/dev is mounted whole unless the user names parts of it. Everything else keeps its path in the
container, so it must be a directory that neither hides the image's own files nor opens more of the
host than the configuration needs.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kubedevices.builtin.expose_config import ExposeConfig, ResourceRule
from kubedevices.builtin.path_patterns import PathPattern
from kubedevices.errors import UsageError
from kubedevices.manifests.secret_directories import ADVICE, is_secret

DEV = "/dev"
_IN_EVERY_CONTAINER = ("/proc", "/sys")
_OF_THE_IMAGE = ("/bin", "/lib", "/lib64", "/opt/kubedevices", "/sbin", "/usr")
_TOO_MUCH = ("/var/cache", "/var/lib", "/var/log", "/var/run", "/var/lib/kubelet")


def host_directories(config: ExposeConfig) -> tuple[str, ...]:
    """Return the directories outside /dev that must be mounted; raises `UsageError`."""
    wanted = sorted(
        {
            _checked(directory, f"{rule.name}: {path}")
            for rule in config.resources
            for path, directory in _looks_into(rule)
            if not _is_in(directory, (DEV, *_IN_EVERY_CONTAINER))
        }
    )
    return tuple(each for each in wanted if not _is_in(posixpath.dirname(each), wanted))


def dev_directories(config: ExposeConfig, given: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of /dev that are `given`, all of it for none; raises `UsageError`.

    They must be enough for the configuration.
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


def programs(config: ExposeConfig) -> Iterator[tuple[str, str]]:
    """Yield resources and the programs that their health checks run, which the image must have."""
    for rule in config.resources:
        if rule.health is not None and rule.health.command:
            yield rule.name, rule.health.command[0]


def _looks_into(rule: ResourceRule) -> Iterator[tuple[str, str]]:
    """Yield what a resource looks for, and the directory that must be there for it."""
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
        if text.startswith("/"):  # others begin with the path of the match
            yield text, posixpath.dirname(text.partition("{")[0])


def _fixed_part(pattern: PathPattern) -> str:
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
