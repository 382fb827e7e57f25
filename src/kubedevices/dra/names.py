"""Names of a DRA driver and of its devices. Pure.

The name of a device in a ResourceSlice must be a DNS label, but most device IDs are no DNS labels.
The label is computed from the ID alone, so the label is the same after a restart and in any order
of the devices. Rules: https://kubernetes.io/docs/reference/kubernetes-api/, ResourceSlice v1 of
resource.k8s.io.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping

from kubedevices.errors import InvalidResourceName
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.resource_name import explain_resource_name

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
DRIVER_LIMIT = 63
_BEFORE_HASH = 54  # characters of the ID: with "-" and 8 characters of a hash they make 63
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]")

DeviceKey = tuple[str, str]
"""Device type and device ID."""


def check_driver_name(domain: str) -> str:
    """Return `domain`; raises `InvalidResourceName` if `domain` cannot be the name of a driver."""
    problem = explain_resource_name(f"{domain}/any")
    if not problem and len(domain) > DRIVER_LIMIT:
        problem = f"the name of a DRA driver has at most {DRIVER_LIMIT} characters"
    if problem:
        raise InvalidResourceName(domain, problem)
    return domain


def device_label(device_id: str) -> str:
    """Return the label for a device ID: the ID if it is a DNS label, else a text with a hash."""
    # The hash is of the whole ID: two IDs may become the same text when characters are replaced.
    return device_id if LABEL.fullmatch(device_id) else _with_hash(device_id, device_id)


def device_labels(tree: DeviceTree) -> Mapping[DeviceKey, str]:
    """Return the label of every device in `tree`. The labels of different devices differ.

    If two types have a device with the same ID, each label gets a hash of type and ID. The replicas
    of a device have one label.
    """
    owners = {
        (device_type, name): (device_type, each.replica_of or name)
        for device_type in tree
        for name, each in tree.devices(device_type).items()
    }
    labels = {owner: device_label(owner[1]) for owner in owners.values()}
    count = Counter(labels.values())
    unique = {
        owner: label if count[label] == 1 else _with_hash(owner[1], "/".join(owner))
        for owner, label in labels.items()
    }
    return {key: unique[owner] for key, owner in owners.items()}


def may_be_label(label: str, device_type: str, device_id: str) -> bool:
    """Whether `device_labels` may give this label to a device, whatever the other devices are."""
    return label in (device_label(device_id), _with_hash(device_id, f"{device_type}/{device_id}"))


def cdi_kind(driver: str) -> str:
    """Return the CDI kind (`vendor/class`) of the CDI devices of claims."""
    return f"{driver}/claim"


def cdi_device_name(claim_uid: str, label: str, share_id: str = "") -> str:
    """Return the CDI name of one device of a claim, without the CDI kind."""
    return "-".join(filter(None, (claim_uid, label, share_id)))


def cdi_metadata_name(claim_uid: str, request: str) -> str:
    """Return the name of the CDI device with the metadata of a request of a claim.

    No device of a claim can have this name: `cdi_device_name` puts `-` after the UID, not `_`.
    """
    return f"{claim_uid}_{request}"


def _with_hash(device_id: str, hashed: str) -> str:
    tail = hashlib.sha256(hashed.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    clean = _NOT_IN_LABEL.sub("-", device_id.lower()).strip("-")[:_BEFORE_HASH].rstrip("-")
    return f"{clean}-{tail}" if clean else tail
