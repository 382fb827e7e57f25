"""Names that Kubernetes takes: of objects, namespaces, labels of nodes and taints."""

import re

from kubedevices.errors import UsageError
from kubedevices.resource_name import DOMAIN, LABEL_LIMIT, LABEL_VALUE

NAME_LIMIT = 57
"""Characters: Kubernetes adds a dash and five more for the name of a pod, and cuts longer ones."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def plugin_name(name: str) -> str:
    """Return `name` if all objects of a plugin can have it; raises `UsageError`."""
    if len(name) > NAME_LIMIT or not _DNS_LABEL.fullmatch(name):
        raise UsageError(f"--name {name!r}: use a-z, 0-9 and '-', at most {NAME_LIMIT} of them")
    return name


def namespace(name: str) -> str:
    """Return `name` if a namespace can have it; raises `UsageError`."""
    if not _DNS_LABEL.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name of a namespace: use a-z, 0-9 and '-', at most 63 of them"
        )
    return name


def label(text: str) -> tuple[str, str]:
    """Return key and value of `KEY=VALUE`; raises `UsageError`."""
    key, equals, value = text.partition("=")
    prefix, slash, name = key.rpartition("/")
    if not equals or not key:
        raise UsageError(f"--node-label {text!r} is not KEY=VALUE")
    is_possible = (
        LABEL_VALUE.fullmatch(name)
        and (not slash or DOMAIN.fullmatch(prefix))
        and (not value or LABEL_VALUE.fullmatch(value))
        and max(len(name), len(value)) <= LABEL_LIMIT
    )
    if not is_possible:
        raise UsageError(
            f"--node-label {text!r}: no node can have such a label (see `kubectl get nodes "
            "--show-labels`)"
        )
    return key, value


def taint(text: str) -> str:
    """Return `text` if it is KEY, KEY=VALUE, or either with an effect; raises `UsageError`."""
    rest, colon, effect = text.partition(":")
    key, _, value = rest.partition("=")
    prefix, slash, name = key.rpartition("/")
    is_possible = (
        LABEL_VALUE.fullmatch(name)
        and (not slash or DOMAIN.fullmatch(prefix))
        and (not value or LABEL_VALUE.fullmatch(value))
        and (not colon or effect in _EFFECTS)
    )
    if not is_possible:
        raise UsageError(
            f"--toleration {text!r} is not a taint of a node: KEY, KEY=VALUE, or either with one "
            f"of {', '.join(f':{each}' for each in _EFFECTS)}"
        )
    return text
