"""The rules in force: from a file, which is read again when it changes; warns of unused rules."""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn, Self

from kubedevices.config.yaml_source import SourceProblems
from kubedevices.errors import ConfigError, ConfigProblem, UsageError
from kubedevices.plugin.config_follower import ConfigFollower
from kubedevices.proxy.not_in_dra import refuse_in_dra
from kubedevices.proxy.proxy_config import (
    ProxyConfig,
    ProxyRule,
    is_pattern,
    load_proxy_config,
    places_of_globs,
    served_names,
)

UNUSED_AFTER = 60.0
"""Seconds after which a rule without a plugin is logged."""

_log = logging.getLogger(__name__)


class LiveRules:
    """The rule of each inside resource, and the outside names that the rules produce.

    Without a file, every resource is served unchanged. `changed` is called when the file has
    changed.
    """

    def __init__(
        self, config: ProxyConfig | None = None, report: SourceProblems | None = None
    ) -> None:
        self.config = config or ProxyConfig()
        self.changed: Callable[[], None] = lambda: None
        self.follower: ConfigFollower[ProxyConfig] | None = None
        self._report, self._is_for_dra = report, False
        self._served: dict[str, str] = {}
        self._has_news = asyncio.Event()

    @classmethod
    def from_file(cls, file: Path) -> Self:
        """Read `file`; raises `CannotRead` and `ConfigError`."""
        # The follower comes first, so that it notices a change during the first reading.
        follower = ConfigFollower(file, load_proxy_config)
        config, report = load_proxy_config(file)
        rules = cls(config, report)
        rules.follower = follower
        follower.apply = rules._apply
        return rules

    def use_in_dra(self) -> None:
        """Refuse rules that mode dra cannot follow, now and later; raises `ConfigError`."""
        refuse_in_dra(self.config, self._report)
        self._is_for_dra = True

    def reload(self) -> None:
        """Have the file read again. May be called from any thread or signal handler."""
        if self.follower is not None:
            self.follower.request()

    def of(self, resource: str) -> ProxyRule | None:
        """Return the rule of an inside resource, None if it is hidden."""
        found = self.config.find(resource)
        return None if found is None else found[1]

    def named(self) -> list[str]:
        """Return the resources that the file names, without patterns."""
        return [name for name in self.config.resources if not is_pattern(name)]

    def reserve_names(self, resource: str, rule: ProxyRule) -> None:
        """Note the outside names of `resource`; raises `UsageError` if another resource has one.

        A name is free again when the rule in force no longer produces it, for example because the
        other resource is hidden now: the order in which chains are created does not matter.
        """
        self._served = {
            made: maker
            for made, maker in self._served.items()
            if (in_force := self.of(maker)) is not None and made in served_names(maker, in_force)
        }
        for made in served_names(resource, rule):
            maker = self._served.setdefault(made, resource)
            if maker != resource:
                text = f"{made} is already the outside name of {maker}"
                raise self._name_conflict(resource, text)

    def release_names(self, resource: str) -> None:
        """Give the outside names of `resource` free, which is not served any more."""
        self._served = {made: maker for made, maker in self._served.items() if maker != resource}

    def _name_conflict(self, resource: str, text: str) -> UsageError:
        found = self.config.find(resource)
        if self._report is None or found is None or not found[0]:
            return UsageError(f"{resource}: {text}: give one of them a rule with `rename`")
        place = self._report.place(("resources", found[0]))
        return ConfigError([place._replace(problem=text, suggestion="rename one of them")])

    def with_place(self, resource: str, key: str, glob: str, text: str) -> str:
        """Return `text` with the place in the file where `resource`'s rule has `glob` below `key`.

        Return `text` alone if the file has no such place.
        """
        found = self.config.find(resource)
        if self._report is None or found is None or not found[0]:
            return text
        for path in places_of_globs(found[1], key).get(glob, ()):
            place = self._report.place(("resources", found[0], *path))
            return str(place._replace(problem=text, suggestion="is it misspelt?"))
        return text

    def _apply(self, config: ProxyConfig, report: SourceProblems) -> None:
        if self._is_for_dra:
            refuse_in_dra(config, report)
        self.config, self._report = config, report
        self._has_news.set()
        self.changed()

    async def watch(self, resources: Collection[str]) -> NoReturn:
        """Log rules that no resource uses, until cancelled.

        `resources` are the inside resources whose plugins have registered.
        """
        while True:
            self._has_news.clear()
            await asyncio.sleep(UNUSED_AFTER)
            if not self._has_news.is_set():
                for warning in self.unused(resources):
                    _log.warning("%s", warning)
                await self._has_news.wait()

    def unused(self, resources: Collection[str]) -> list[ConfigProblem]:
        """Return the rules that apply to none of `resources`."""
        found = {key for each in resources if (at := self.config.find(each)) and (key := at[0])}
        if self._report is None:
            return []
        text = f"no plugin of this name has registered within {UNUSED_AFTER:g} s"
        return [
            self._report.place(("resources", name))._replace(
                problem=text, suggestion="this command lists the plugins: kubedevices devices"
            )
            for name in self.config.resources
            if name not in found
        ]
