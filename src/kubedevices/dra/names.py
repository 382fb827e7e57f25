"""Names of a DRA driver and of its devices. Pure.

A device of a ResourceSlice is named by a DNS label, which most device IDs are not. The label
follows from the ID alone, so it is the same after a restart and in any order of the devices.
Rules: https://kubernetes.io/docs/reference/kubernetes-api/, ResourceSlice v1 of resource.k8s.io.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping

from kubedevices.device_tree import DeviceTree
from kubedevices.errors import InvalidResourceName
from kubedevices.resource_name import explain_resource_name

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
DRIVER_LIMIT = 63
_BEFORE_HASH = 54  # characters, so that "-" and the hash still fit into a label
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]")

DeviceKey = tuple[str, str]
"""Device type and device ID."""


def check_driver_name(domain: str) -> str:
    """Return `domain` as the name of a driver; raises `InvalidResourceName` if it cannot be one."""
    problem = explain_resource_name(f"{domain}/any")
    if not problem and len(domain) > DRIVER_LIMIT:
        problem = f"the name of a DRA driver has at most {DRIVER_LIMIT} characters"
    if problem:
        raise InvalidResourceName(domain, problem)
    return domain


def device_label(device_id: str) -> str:
    """Return the label for a device ID: the ID itself if it is a label, else it gets a hash."""
    # A hash of the whole ID: two IDs may become the same text when their letters are replaced.
    return device_id if LABEL.fullmatch(device_id) else _with_hash(device_id, device_id)


def device_labels(tree: DeviceTree) -> Mapping[DeviceKey, str]:
    """Return the label of every device in `tree`, no two the same.

    Devices of two types with the same ID get a hash of type and ID each.
    """
    keys = [(device_type, name) for device_type in tree for name in tree.devices(device_type)]
    labels = {key: device_label(key[1]) for key in keys}
    count = Counter(labels.values())
    return {
        key: label if count[label] == 1 else _with_hash(key[1], "/".join(key))
        for key, label in labels.items()
    }


def cdi_kind(driver: str) -> str:
    """Return the kind of the CDI devices that claims get."""
    return f"{driver}/claim"


def cdi_device_name(claim_uid: str, label: str, share_id: str = "") -> str:
    """Return the name of one device of a claim within that kind."""
    return "-".join(filter(None, (claim_uid, label, share_id)))


def cdi_metadata_name(claim_uid: str, request: str) -> str:
    """Return the name of the CDI device with the metadata of a request of a claim.

    No device of a claim has such a name: a `-` follows the UID there.
    """
    return f"{claim_uid}_{request}"


def _with_hash(device_id: str, hashed: str) -> str:
    tail = hashlib.sha256(hashed.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    clean = _NOT_IN_LABEL.sub("-", device_id.lower()).strip("-")[:_BEFORE_HASH].rstrip("-")
    return f"{clean}-{tail}" if clean else tail
