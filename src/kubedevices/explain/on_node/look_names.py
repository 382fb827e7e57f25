"""Reads which device file each ID of `expose` means. Blocking."""

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubedevices.errors import KubedevicesError
from kubedevices.host.device_names_file import domains_in, names_file, served_id
from kubedevices.host.shared_directory import SharedDirectory

_log = logging.getLogger(__name__)


def known_files(state_dir: Path) -> Mapping[tuple[str, str], str]:
    """Return the device file by resource and ID; a file that cannot be read is left out."""
    found: dict[tuple[str, str], str] = {}
    try:
        domains = domains_in(state_dir)
    except OSError:
        return found
    for domain in domains:
        try:
            file = names_file(SharedDirectory.at(state_dir), domain)
            found |= file.read(functools.partial(_files_in, domain))
        except (KubedevicesError, OSError) as error:
            _log.debug("%s", error)
    return found


def _files_in(domain: str, document: Any) -> dict[tuple[str, str], str]:
    return {
        (
            f"{domain}/{name}",
            served_id(name, resource["id"], device["id"], device["number"]),
        ): str(device["file"])
        for name, resource in document["resources"].items()
        for device in resource["devices"]
        if device["listed"]
    }
