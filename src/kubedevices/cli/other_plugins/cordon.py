"""`kubedevices cordon`: takes a device from new pods.

The keys of `-o json` and `-o yaml` are stable: `cordoned`, each with `resource`, `id`, `reason`
and `since` (UTC), and `until` if the device comes back by itself.
"""

import argparse
import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.cli.shared.node_client import (
    add_host_root_argument,
    add_node_arguments,
    ask,
    ask_kubelet_of,
    look_below_host_root,
    state_directory,
)
from kubedevices.cli.shared.output import Column, add_output_argument, print_listing
from kubedevices.errors import CannotAsk, KubedevicesError, NoNode, NotPermitted, UsageError
from kubedevices.errors.words import did_you_mean
from kubedevices.host.terminal import print_line
from kubedevices.values.resource_name import ResourceName
from kubedevices.values.socket_paths import PLUGIN_REGISTRY_DIR, PROXY_SOCKET_NAME

if TYPE_CHECKING:
    from kubedevices.kubelet_api.cordon import Follower
    from kubedevices.rules.cordon_file import CordonEntry
    from kubedevices.values.proxied_plugin import ProxiedPlugin

NAME = "cordon"
HELP = """\
take a device from new pods: Unhealthy, and refused with the reason

A device stays cordoned, also after restarts, until `kubedevices uncordon`. Pods that hold the
device continue. `kubedevices expose`, `simulate` and `run` follow the list; the plugin of another
vendor does not, unless `kubedevices proxy` stands before it. All need the same directories.
"""
EXAMPLES = """\
examples:
  kubedevices cordon example.com/gpu/GPU-1 --reason "fan is noisy, ticket 4711"
  kubedevices cordon example.com/gpu/GPU-1 example.com/gpu/GPU-2 --reason "new firmware"
  kubedevices cordon --list
  kubedevices uncordon example.com/gpu/GPU-1
"""

_COLUMNS = (Column("resource"), Column("id", "DEVICE"), Column("since"), Column("reason"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_devices_argument(parser)
    parser.add_argument("--reason", metavar="TEXT", help="why; a pod that is refused shows it")
    parser.add_argument(
        "-l", "--list", action="store_true", help="list the cordoned devices, and change nothing"
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="write the device into the list even if no plugin obeys the list",
    )
    add_output_argument(parser)
    add_node_arguments(parser)
    add_host_root_argument(parser)


def add_devices_argument(parser: argparse.ArgumentParser) -> None:
    """Add the devices, RESOURCE/ID."""
    parser.add_argument(
        "devices",
        nargs="*",
        metavar="RESOURCE/ID",
        help="a device: example.com/gpu/GPU-1; it stands for all its replicas GPU-1::0 …",
    )


def run(args: argparse.Namespace) -> int:
    """Cordon devices, or list the cordoned devices."""
    from kubedevices.rules.cordon_file import add_cordoned, read_cordoned

    look_below_host_root(args)
    file = cordon_file(args)
    if args.list:
        if args.devices or args.reason is not None:
            raise UsageError("--list changes nothing: leave out RESOURCE/ID and --reason")
        print_cordoned(read_cordoned(file), args.output, empty="no device is cordoned")
        return 0
    wanted = parse_devices(args.devices)
    if not (args.reason or "").strip():
        raise UsageError('cordon needs --reason TEXT, for example --reason "new firmware"')
    if not args.anyway:
        check_obeyed(args, file, wanted)
    cordoned = add_cordoned(file, wanted, args.reason)
    if args.output == "table":
        for each in cordoned:
            print_line(f"{each.resource}/{each.id} is cordoned: {each.reason}")
    else:
        print_cordoned(cordoned, args.output)
    return 0


def cordon_file(args: argparse.Namespace) -> Path:
    """Return the file with the cordoned devices, which the plugins of these directories read."""
    from kubedevices.rules.cordon import FILE_NAME

    return state_directory(args) / FILE_NAME


def parse_devices(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return resource and ID of each device; raises `UsageError`. An ID may have slashes."""
    if not texts:
        raise UsageError("which device? Write RESOURCE/ID, for example example.com/gpu/GPU-1")
    return tuple(dict.fromkeys(map(_parse_device, texts)))


def _parse_device(text: str) -> tuple[str, str]:
    domain, _, rest = text.partition("/")
    device_type, _, device_id = rest.partition("/")
    if not device_id or not device_id.isprintable():
        raise UsageError(f"{text!r} is not a device: write RESOURCE/ID, like example.com/gpu/GPU-1")
    return str(ResourceName.parse(f"{domain}/{device_type}")), device_id


def print_cordoned(cordoned: Iterable["CordonEntry"], output: str, *, empty: str = "") -> None:
    """Print a list of cordoned devices."""
    from kubedevices.rules.cordon_file import as_dict

    found = [*cordoned]
    rows = [
        as_dict(
            each._replace(reason=f"{each.reason} until {each.until}" if each.until else each.reason)
        )
        for each in found
    ]
    print_listing(
        rows, _COLUMNS, output, document={"cordoned": [*map(as_dict, found)]}, empty=empty
    )


# ---------------------------------------------------------------- who obeys?


def check_obeyed(args: argparse.Namespace, file: Path, wanted: Sequence[tuple[str, str]]) -> None:
    """Raise `KubedevicesError` for the first device that no plugin would cordon."""
    from kubedevices.kubelet_api.proxy_client import ask_proxy

    listed = _listed(args)
    proxied = asyncio.run(ask_proxy(state_directory(args) / PROXY_SOCKET_NAME))
    for resource, device_id in wanted:
        followers = [
            each
            # A plugin of the plugin watcher serves in the registry.
            for directory in (args.socket_dir, args.socket_dir.parent / PLUGIN_REGISTRY_DIR.name)
            for each in _followers(directory, resource)
        ]
        has_driver = (args.socket_dir.parent / "plugins" / resource.partition("/")[0]).is_dir()
        problem = why_not_obeyed(
            (resource, device_id), file, followers, listed, proxied, has_driver=has_driver
        )
        if problem:
            raise KubedevicesError(f"{problem} (--anyway writes it into the list nevertheless)")


def _followers(directory: Path, resource: str) -> "Sequence[Follower]":
    from kubedevices.kubelet_api.cordon import ask_followers

    try:
        return asyncio.run(ask_followers(directory, resource))
    except PermissionError as error:
        raise NotPermitted(f"look into {directory}") from error
    except OSError:  # no plugin can serve there
        return ()


def why_not_obeyed(
    wanted: tuple[str, str],
    file: Path,
    followers: "Sequence[Follower]",
    listed: Mapping[str, Collection[str]],
    proxied: "Sequence[ProxiedPlugin]",
    *,
    has_driver: bool = False,
) -> str:
    """Return why no plugin would cordon a device, empty if a plugin would. Pure.

    `followers` are our plugins of the resource, `listed` the resources that node or kubelet list.
    A DRA driver of the domain (`has_driver`) cannot be asked.
    """
    resource, device_id = wanted
    inside = [each for each in proxied if each.resource == resource]
    outside = [each for each in proxied if each.serves(resource)]
    if inside and not outside:
        names = [f"{each.resource}/{device_id}" for each in inside[0].outside]
        if inside[0].is_hidden or not names:
            return f"{resource} is the name behind the proxy, which does not serve the resource"
        return f"{resource} is the name behind the proxy: write {' or '.join(names)}"
    if followers:
        return _refusal(resource, device_id, file, followers[0])
    if outside or has_driver:
        return ""
    if resource in listed:
        return (
            f"no plugin obeys: the plugin of {resource} is of another vendor, which does not read "
            "the list; put `kubedevices proxy` before it (docs/proxy.md)"
        )
    known = {*listed, *(each.resource for plugin in proxied for each in plugin.outside)}
    return f"{resource} is not a resource here{did_you_mean(resource, known)}"


def _refusal(resource: str, device_id: str, file: Path, plugin: "Follower") -> str:
    if not plugin.file:
        return f"no plugin obeys: the plugin of {resource} follows no list (`cordon: false`?)"
    if not _is_same(Path(plugin.file), file):
        return (
            f"no plugin obeys: the plugin of {resource} follows {plugin.file}, and not {file}: "
            f"give --state-dir {Path(plugin.file).parent}"
        )
    whole = {each.partition("::")[0] for each in plugin.devices}
    if {device_id, device_id.partition("::")[0]} & (plugin.devices | whole):
        return ""
    return (
        f"{resource} has no device {device_id!r}{did_you_mean(device_id, plugin.devices | whole)}"
    )


def _is_same(theirs: Path, ours: Path) -> bool:
    try:
        return theirs == ours or theirs.parent.samefile(ours.parent)
    except OSError:
        return False


def _listed(args: argparse.Namespace) -> dict[str, set[str]]:
    """Return the IDs of each resource by the node, or by the kubelet; {} if neither answers."""
    try:
        document: dict[str, Any] = ask(args, lambda client: client.devices())
    except NoNode as error:
        try:
            _, document = ask_kubelet_of(error)
        except CannotAsk:
            return {}
    except CannotAsk:
        return {}
    return {
        each["resource"]: {device["id"] for device in each["devices"]}
        for each in document["resources"]
    }
