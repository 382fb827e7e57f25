"""`kubedevices proxy --dry-run`: what would be served of the plugins that a proxy knows."""

import argparse
import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.output import Column, Row, print_listing
from kubedevices.cli.scan import scan_once
from kubedevices.errors import KubedevicesError
from kubedevices.proxy.chain import make_chain
from kubedevices.proxy.known_sockets import KnownSockets
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.resource_name import ResourceName

if TYPE_CHECKING:
    from kubedevices.proxy.proxy_config import ResourceRule
    from kubedevices.proxy.rules import Rules

_PATIENCE = 5.0
"""Seconds for a plugin to answer."""

_COLUMNS = (
    Column("plugin", "BEHIND THE PROXY"),
    Column("resource"),
    Column("id", "DEVICE"),
    Column("health"),
    Column("note"),
)


def print_dry_run(args: argparse.Namespace, rules: "Rules") -> None:
    """Ask every known plugin for its list, and print what becomes of it; serve nothing."""
    known = KnownSockets(args.state_dir.absolute()).load()
    rows = asyncio.run(_rows(known.items(), rules, args.state_dir.absolute()))
    empty = f"no plugin has registered at a proxy with --state-dir {args.state_dir} yet"
    print_listing(rows, _COLUMNS, args.output, document=rows, empty=empty)


async def _rows(known: Iterable[tuple[str, Path]], rules: "Rules", state_dir: Path) -> list[Row]:
    found = await asyncio.gather(
        *(_rows_of(name, socket, rules.of(name), state_dir) for name, socket in known)
    )
    return [row for rows in found for row in rows]


async def _rows_of(
    name: str, socket: Path, rule: "ResourceRule | None", state_dir: Path
) -> list[Row]:
    blank: Row = {"plugin": name, "resource": None, "id": None, "health": None, "note": ""}
    if rule is None:
        return [{**blank, "note": "hidden: no rule names it"}]
    plugin = PluginScanner(ResourceName.parse(name))
    # Only what changes the list; nothing is written.
    looking = replace(rule, record=None, hold=None, inject=None, faults=None)
    try:
        chain = make_chain(plugin, looking, state_dir)
        await plugin.connect(socket, dial=_PATIENCE)
        async with asyncio.timeout(_PATIENCE):
            await plugin.presence.wait_here()
        tree = await scan_once(chain.scanner, _PATIENCE)
    except KubedevicesError as error:
        return [{**blank, "note": str(error)}]
    except TimeoutError:
        return [{**blank, "note": f"{socket} sent no list within {_PATIENCE:g} s"}]
    finally:
        await plugin.close()
    return [
        {**blank, "resource": f"{chain.domain}/{kind}", "id": each.id, "health": str(each.health)}
        for kind in tree
        for each in tree.devices(kind).values()
    ]
