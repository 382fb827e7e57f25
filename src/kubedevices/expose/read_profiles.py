"""Ready files of `kubedevices expose` for common hardware: the YAML files in `profiles/`.

The first line of a file names the hardware. The comment below it names the usual access rights on a
host, and the sources of these facts. Each resource name appears in one profile only.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import UsageError
from kubedevices.errors.words import did_you_mean
from kubedevices.expose.checks import namespace
from kubedevices.expose.config import ExposeConfig, load_expose_config

PROFILES = Path(__file__).parent / "profiles"
DOMAIN = "devices.example.com"
"""The default of the part of resource names before the slash."""

_RESOURCES = "resources:\n"


class Profile(NamedTuple):
    """A ready file: its name, the hardware, and its content."""

    name: str
    title: str
    text: str
    config: ExposeConfig


def profile_names() -> list[str]:
    """Return the names of all profiles, sorted."""
    return sorted(file.stem for file in PROFILES.glob("*.yaml"))


def read_profile(name: str) -> Profile:
    """Return the profile `name`; raises `UsageError` for an unknown name."""
    names = profile_names()
    if name not in names:
        hint = did_you_mean(name, names) or " (kubedevices expose --list-profiles)"
        raise UsageError(f"there is no profile {name!r}{hint}")
    file = PROFILES / f"{name}.yaml"
    text = file.read_text("utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    return Profile(name, title, text, load_expose_config(file)[0])


def combine(names: Sequence[str], domain: str = DOMAIN) -> ExposeConfig:
    """Return one configuration of several profiles; raises `UsageError`."""
    profiles = _read(names, domain)
    resources = tuple(rule for each in profiles for rule in each.config.resources)
    return replace(profiles[0].config, namespace=domain, resources=resources)


def combined_text(names: Sequence[str], domain: str = DOMAIN) -> str:
    """Return one file of several profiles, with their comments, for users to edit."""
    parts = [f"version: 1\nnamespace: {domain}\n{_RESOURCES}"]
    for profile in _read(names, domain):
        head, _, resources = profile.text.partition(_RESOURCES)
        about = head.partition("\nversion:")[0].rstrip()
        parts.append(f"\n{about}\n\n{resources}")
    return "".join(parts)


def _read(names: Sequence[str], domain: str) -> list[Profile]:
    if problem := namespace(domain):
        raise UsageError(f"--domain: {problem}")
    return [read_profile(name) for name in dict.fromkeys(names)]
