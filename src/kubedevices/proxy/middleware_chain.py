"""The middleware over one plugin, created from the rule of its resource, in a fixed order.

From the plugin outwards: record, repair, filter, split, rename, cordon, health, share, inject,
hold, faults. The plugin's scanner keeps the list of a plugin that is away, so all of them work on
it; `hold` decides near the end what a node gets of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy.proxy_config import ProxyFaults, ProxyRule, renamed
from kubedevices.rules.cordon import FILE_NAME, Cordoned
from kubedevices.rules.faults import Faulty
from kubedevices.rules.filter import Filtered
from kubedevices.rules.health import Damped
from kubedevices.rules.hold import Held, Holders
from kubedevices.rules.hold_rule import HoldRule
from kubedevices.rules.inject import Injected
from kubedevices.rules.middleware import Middleware, RuledMiddleware
from kubedevices.rules.record import Recorded
from kubedevices.rules.record_file import RecordRule
from kubedevices.rules.rename import Renamed
from kubedevices.rules.repair import Repaired
from kubedevices.rules.share import Shared
from kubedevices.rules.split import Split
from kubedevices.values.resource_name import ResourceName


@dataclass(eq=False)
class MiddlewareChain:
    """The middleware over one plugin: its outermost scanner, and the domain of its resources."""

    scanner: Scanner
    domain: str
    rule: ProxyRule
    layers: dict[str, Middleware] = field(default_factory=dict)
    """By their keys in the rule."""

    def use(self, rule: ProxyRule) -> bool:
        """Apply another rule to this chain; return False if the rule needs a new chain."""
        changed = [each for each in _LAYERS if each.value(self.rule) != each.value(rule)]
        for layer in changed:
            is_there = layer.name in self.layers
            if not layer.is_live or not is_there or layer.value(rule) is None:
                return False
        for layer in changed:
            # Only after all checks: a partly changed chain would serve by a mix of two rules.
            cast("_Live", self.layers[layer.name]).use(layer.value(rule))
        self.rule = rule
        return True


WithPlace: TypeAlias = Callable[[str, str, str], str]
"""(key of the rule, glob, text) -> the text with the place of the glob in the file."""


class ChainContext(NamedTuple):
    """The plugin and the proxy for which a chain is created."""

    domain: str
    """The domain of the resources outside."""

    inside: ResourceName
    state_dir: Path
    holders: Callable[[str], Holders] | None = None
    """Domain outside -> the function that asks which of its devices pods hold."""


class _Live(Protocol):
    """Middleware that can go on with another value."""

    def use(self, rules: Any) -> None: ...


class _Layer(NamedTuple):
    """How to create one kind of middleware from a rule.

    The value of the layer is what the rule has under its name; without a value there is no layer.
    The middleware of a live layer can go on with another value; for the other layers the chain must
    be created again.
    """

    name: str
    make: Callable[[Scanner, Any, ChainContext], Middleware]
    is_live: bool = False

    def value(self, rule: ProxyRule) -> Any:
        """Return the layer's part of `rule`, None if the rule does not use the layer."""
        if self.name == "hold":
            return HoldRule(hold=rule.hold, allocate_wait=rule.allocate_wait)
        return getattr(rule, self.name) or None


def make_chain(
    plugin: Scanner,
    inside: ResourceName,
    rule: ProxyRule,
    state_dir: Path,
    with_place: WithPlace = lambda _key, _glob, text: text,
    *,
    holders: Callable[[str], Holders] | None = None,
) -> MiddlewareChain:
    """Return the middleware of `rule` over `plugin`, which lists the resource `inside`.

    `with_place` adds the place of a glob in the file to a log text. `holders` takes the domain
    outside and returns what `Held` asks. Raises `UsageError`.
    """
    domain = renamed(inside, inside.device_type, rule.rename).domain
    place = ChainContext(domain, inside, state_dir, holders)
    scanner: Scanner = plugin
    layers: dict[str, Middleware] = {}
    for layer in _LAYERS:
        value = layer.value(rule)
        if value is not None:
            made = scanner = layers[layer.name] = layer.make(scanner, value, place)
            made.subject = str(inside)
            if isinstance(made, RuledMiddleware):
                made.with_place = partial(with_place, layer.name)
    return MiddlewareChain(scanner, domain, rule, layers)


def _make_renamed(scanner: Scanner, name: str, place: ChainContext) -> Renamed:
    """Rename device types only: the runner renames the domain."""
    inside = place.inside
    text = name.replace("{domain}", inside.domain).partition("/")[2]
    names = text if "{name}" in text else {inside.device_type: text}
    return Renamed(scanner, names, domain=place.domain)


def _make_recorded(scanner: Scanner, rule: RecordRule, place: ChainContext) -> Recorded:
    inside = place.inside
    file = rule.file.replace("{domain}", inside.domain).replace("{name}", inside.device_type)
    size, files, redact = rule.max_size, rule.files, rule.redact_env
    return Recorded(scanner, inside.domain, file, max_size=size, files=files, redact_env=redact)


def _make_faulty(scanner: Scanner, faults: ProxyFaults, _: ChainContext) -> Faulty:
    return Faulty(scanner, faults, control=Path(faults.control) if faults.control else None)


def _make_held(scanner: Scanner, rule: HoldRule, place: ChainContext) -> Held:
    holders = place.holders and place.holders(place.domain)
    return Held(scanner, rule, domain=place.domain, holders=holders)


# The order matters: `record` gets the plugin's own messages, all other layers get corrected
# messages. `health` writes into the file that `cordon` below it reads. `hold` is above every
# rule that judges health, which would count the absence of a plugin as a fault of its devices, and
# above `share`: which replicas are free is known only outside. It is there without `hold`, too:
# it withdraws the resource while the plugin is away.
_LAYERS = (
    _Layer("record", _make_recorded),
    _Layer("repair", lambda scanner, is_on, _: Repaired(scanner, is_on)),
    _Layer("filter", lambda scanner, rule, _: Filtered(scanner, rule), is_live=True),
    _Layer("split", lambda scanner, rule, at: Split(scanner, {at.inside.device_type: rule})),
    _Layer("rename", _make_renamed),
    _Layer(
        "cordon",
        lambda scanner, _, place: Cordoned(scanner, place.domain, place.state_dir / FILE_NAME),
    ),
    _Layer("health", lambda scanner, rule, _: Damped(scanner, rule), is_live=True),
    _Layer("share", lambda scanner, rule, _: Shared(scanner, rule), is_live=True),
    _Layer(
        "inject", lambda scanner, rule, at: Injected(scanner, rule, domain=at.domain), is_live=True
    ),
    _Layer("hold", _make_held, is_live=True),
    _Layer("faults", _make_faulty),
)
