"""Resources of expose that are named after their matches: `name: "{name}"`. Pure.

Each name becomes a separate resource, so that a pod can ask for a certain device.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from kubedevices.config.placeholders import fill
from kubedevices.expose.config import ResourceRule

_LIMIT = 63
"""Characters of the part of a resource name after the slash, by the rules of Kubernetes."""


@dataclass(frozen=True, kw_only=True)
class NamedRule(ResourceRule):
    """A resource whose name comes from `template` and a match."""

    template: str = ""

    def takes(self, placeholders: Mapping[str, str]) -> bool:
        """Whether a device with these placeholders belongs to this resource."""
        return name_of(self.template, placeholders) == self.name


def named(rule: ResourceRule, name: str) -> NamedRule:
    """Return the resource called `name` of a rule whose name is a template."""
    given = {field.name: getattr(rule, field.name) for field in fields(rule)}
    return NamedRule(**given | {"name": name, "template": rule.name})


def name_of(template: str, placeholders: Mapping[str, str]) -> str:
    """Return the resource name for a match; characters that it cannot have become `-`."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", fill(template, placeholders))
    return name.strip("-._")[:_LIMIT].rstrip("-._")
