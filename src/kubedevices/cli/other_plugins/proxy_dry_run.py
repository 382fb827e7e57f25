"""`kubedevices proxy --dry-run`: prints the devices that the kubelet would get from a proxy.

The input is the list of each plugin that the proxy knows, or the last list of each plugin in a
record.
"""

import argparse
import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.shared.node_client import state_directory
from kubedevices.cli.shared.output import Column, Row, print_listing
from kubedevices.cli.write.scan import scan_once
from kubedevices.errors import KubedevicesError
from kubedevices.host import deadlines
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy.known_sockets import KnownSockets
from kubedevices.proxy.middleware_chain import make_chain
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.proxy_config import ProxyRule
from kubedevices.proxy.record_reader import Change, read_recording
from kubedevices.proxy.replay import tree_of
from kubedevices.values.resource_name import ResourceName

if TYPE_CHECKING:
    from kubedevices.proxy.live_rules import LiveRules

_ANSWER_TIMEOUT = 5.0
"""Seconds for a plugin to answer."""

_log = logging.getLogger(__name__)

_COLUMNS = (
    Column("plugin", "BEHIND THE PROXY"),
    Column("resource"),
    Column("id", "DEVICE"),
    Column("health"),
    Column("note"),
)


class _LastList(Scanner):
    """The last list of a record. The end of a record, where the plugin is gone, is no list."""

    def __init__(self, device_type: str, changes: Sequence[Change]) -> None:
        listed = [each for each in changes if each.entries is not None]
        self._tree = tree_of({device_type: listed[-1]} if listed else {})

    async def scan(self, notifier: Notifier) -> None:
        """Report the list."""
        notifier.notify(self._tree)
        await notifier.wait_stopped()


def print_dry_run(args: argparse.Namespace, rules: "LiveRules") -> None:
    """Print what the rules make of the list of every known plugin, or of a record; serve nothing.

    Raises `CannotRead` for a file that is not a record.
    """
    state_dir = state_directory(args)
    sources: dict[str, Path | _LastList] = {}
    if args.record:
        recording = read_recording(args.record)
        for problem in recording.problems:
            _log.warning("%s", problem)
        for name, each in recording.resources.items():
            sources[name] = _LastList(ResourceName.parse(name).device_type, each.changes)
        empty = "the record has no resource"
    else:
        sources |= KnownSockets(state_dir).load()
        empty = f"no plugin has registered at a proxy with --state-dir {state_dir} yet"
    rows = asyncio.run(_rows(sources, rules, state_dir))
    print_listing(rows, _COLUMNS, args.output, empty=empty)


async def _rows(
    sources: Mapping[str, Path | _LastList], rules: "LiveRules", state_dir: Path
) -> list[Row]:
    found = await asyncio.gather(
        *(_rows_of(name, source, rules.of(name), state_dir) for name, source in sources.items())
    )
    return [row for rows in found for row in rows]


async def _rows_of(
    name: str, source: Path | _LastList, rule: ProxyRule | None, state_dir: Path
) -> list[Row]:
    blank: Row = {"plugin": name, "resource": None, "id": None, "health": None, "note": ""}
    if rule is None:
        return [{**blank, "note": "hidden: no rule names it"}]
    inside = ResourceName.parse(name)
    plugin = PluginScanner(inside)
    plugin.is_repaired = rule.repair
    # Only rules that change the list. The others write files or change answers.
    looking = ProxyRule(
        repair=rule.repair,
        filter=rule.filter,
        split=rule.split,
        rename=rule.rename,
        cordon=rule.cordon,
        health=rule.health,
        share=rule.share,
    )
    try:
        scanner = source if isinstance(source, _LastList) else plugin
        chain = make_chain(scanner, inside, looking, state_dir)
        if isinstance(source, Path):
            await plugin.connect(source, dial=_ANSWER_TIMEOUT)
            async with deadlines.timeout(_ANSWER_TIMEOUT):
                await plugin.presence.wait_here()
        tree = await scan_once(chain.scanner, _ANSWER_TIMEOUT)
    except KubedevicesError as error:
        return [{**blank, "note": str(error)}]
    except TimeoutError:
        return [{**blank, "note": f"{source} sent no list within {_ANSWER_TIMEOUT:g} s"}]
    finally:
        await plugin.close()
    return [
        {**blank, "resource": f"{chain.domain}/{kind}", "id": each.id, "health": str(each.health)}
        for kind in tree
        for each in tree.devices(kind).values()
    ]
