"""Lists resources under other names: `Renamed`. `TypeNames` finds two types with one new name."""

import logging
from collections.abc import Mapping

from kubedevices.errors import UsageError
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.middleware import RuledMiddleware
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.resource_name import explain_resource_name

PLACEHOLDER = "{name}"

_log = logging.getLogger(__name__)


class TypeNames:
    """Remembers the inner type of each served type; the first type that claims a name gets it.

    `who` is the rule that log lines name.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._inner: Mapping[str, str] = {}
        self._next: dict[str, str] = {}
        self._logged: set[tuple[str, str]] = set()

    def inner(self, device_type: str) -> str:
        """Return the inner type of a served type."""
        return self._inner.get(device_type, device_type)

    def begin(self) -> "TypeNames":
        """Begin to claim names for a new tree."""
        self._next = {}
        return self

    def claim(self, device_type: str, inner_type: str) -> bool:
        """Claim a name; log an error and return False if another type of this tree has it."""
        owner = self._next.setdefault(device_type, inner_type)
        if owner != inner_type and (device_type, inner_type) not in self._logged:
            self._logged.add((device_type, inner_type))
            _log.error(
                "%s: %s and %s would both be %s: %s is not listed (give it another name)",
                self._who, owner, inner_type, device_type, inner_type,
            )  # fmt: skip
        return owner == inner_type

    def end(self) -> None:
        """Put the claimed names in force; old names stay known, for a plugin that is away."""
        self._inner = {**self._inner, **self._next}


class Renamed(RuledMiddleware[str]):
    """Lists the same devices under another type: `Renamed(scanner, {"gpu": "card"})`.

    A text for all types has the placeholder `{name}`, as in `shared-{name}`. The runner sets the
    domain of a resource, not this rule; `domain` is used only in the line of the start. Raises
    `UsageError` for a name that no resource can have, and for two types with one name. Events:
    `renamed`, for every type that is listed under a new name.
    """

    def __init__(
        self, scanner: Scanner, names: str | Mapping[str, str], *, domain: str = ""
    ) -> None:
        super().__init__(scanner, _checked(names))
        self._domain_prefix = f"{domain}/" if domain else ""
        self._names = TypeNames("rename")

    def use(self, rules: str | Mapping[str, str]) -> None:
        """Go on with other names: resources with the old names are no longer served."""
        super().use(_checked(rules))

    def line(self) -> str:
        """Return the new names in one line."""
        return self.rules_line("calls", lambda text: f"{self._domain_prefix}{text}")

    def inner_type(self, device_type: str) -> str:
        """Return the type by which the plugin knows a served type."""
        return self._names.inner(device_type)

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return the same devices under the new names."""
        del now
        changed, names = DeviceTree(), self._names.begin()
        for inner_type in tree:
            device_type = (self.rule_of(inner_type) or inner_type).replace(PLACEHOLDER, inner_type)
            if not names.claim(device_type, inner_type):
                continue
            if device_type != inner_type and self.inner_type(device_type) != inner_type:
                self.count("renamed", device_type)
            devices = dict(tree.devices(inner_type))
            changed.put_list(device_type, devices, tree.sent(inner_type))
        names.end()
        return changed


def type_problem(device_type: str) -> str:
    """Return why no resource can have this type, or an empty string."""
    if "/" in device_type:
        return "write only the part after the slash; the domain stays, or is renamed"
    return explain_resource_name(f"example.com/{device_type}")


def _checked(names: str | Mapping[str, str]) -> str | Mapping[str, str]:
    if isinstance(names, str) and PLACEHOLDER not in names:
        raise UsageError(f"a name for all types needs {PLACEHOLDER}, {names!r} has none")
    owners: dict[str, str] = {}
    by_type = {"name": names} if isinstance(names, str) else names
    for old, text in by_type.items():
        new = text.replace(PLACEHOLDER, old)
        if problem := type_problem(new):
            raise UsageError(f"rename {old} to {text!r}: {problem}")
        if (owner := owners.setdefault(new, old)) != old:
            raise UsageError(f"rename: {owner} and {old} would both be {new}")
    return names
