"""The DRA drivers and their claims on this host, for `kubedevices devices`.

Drivers of kubedevices have files that say more than the kubelet: the names of published devices,
and why a claim was refused.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.cli.shared.output import Column
from kubedevices.errors.words import some_of
from kubedevices.host.terminal import print_to_stderr

if TYPE_CHECKING:
    from kubedevices.explain.on_node.driver_facts import DriverFiles

DRIVER_COLUMNS = (
    Column("driver"),
    Column("state"),
    Column("devices", text=lambda devices: some_of(devices or ()) or "-"),
)


def look(kubelet_dir: Path, domain: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the drivers below the kubelet's root directory, and the claims of our drivers.

    `domain` chooses one driver; if empty, all drivers.
    """
    try:
        (kubelet_dir / "plugins").stat()
    except PermissionError:
        print_to_stderr(f"no permission to look into {kubelet_dir}: claims are not listed")
        return [], []
    except OSError:
        return [], []
    from kubedevices.explain.on_node.look_drivers import look_at_drivers

    files = [each for each in look_at_drivers([kubelet_dir], ()) if domain in ("", each.name)]
    running = [each for each in _running(kubelet_dir) if domain in ("", each)]
    devices = {each.name: each.devices for each in files if each.has_slices or each.claims}
    drivers = [
        {
            "driver": name,
            "state": "running" if name in running else "not running",
            "devices": None if devices.get(name) is None else [*(devices[name] or ())],
        }
        for name in sorted({*running, *devices})
    ]
    return drivers, [claim for each in files for claim in _claims_of(each)]


def _running(kubelet_dir: Path) -> set[str]:
    """Return the names of the drivers, of any vendor, that answer at their registration socket."""
    from kubedevices.explain.on_node.ask import ask_registry

    found = asyncio.run(ask_registry(kubelet_dir / "plugins_registry")) or ()
    return {each.info.name for each in found if each.info and each.is_driver}


def _claims_of(driver: "DriverFiles") -> list[dict[str, Any]]:
    prepared = [
        {
            "driver": driver.name,
            "claim": each.name,
            "devices": [part.device for part in each.parts],
            "state": "prepared" if each.is_ready else "begun",
        }
        for each in driver.claims
    ]
    refused = [
        {
            "driver": driver.name,
            "claim": name,
            "devices": [],
            "state": f"refused: {reason}",
        }
        for name, reason in driver.refused.items()
    ]
    return prepared + refused


def with_holders(
    claims: Sequence[Mapping[str, Any]], held: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return `claims`, from the files of our drivers, with the kubelet's answer about all drivers.

    A claim that only the kubelet knows is of another driver, or of a driver whose files this user
    cannot read.
    """
    holders = {(each["driver"], each["claim"]): each["held_by"] for each in held}
    found = [
        {key: each[key] for key in ("driver", "claim", "devices")}
        | {"held_by": holders.pop((each["driver"], each["claim"]), []), "state": each["state"]}
        for each in claims
    ]
    names = ("driver", "claim", "devices", "held_by")
    found += [
        {name: each[name] for name in names} | {"state": "prepared"}
        for each in held
        if (each["driver"], each["claim"]) in holders
    ]
    return found
