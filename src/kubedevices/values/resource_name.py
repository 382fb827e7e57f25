"""Names of extended resources: `example.com/widget`. For all code that gets a name from outside.

The rules are the rules of the kubelet, checked one by one, so that an error can say which rule is
broken.
"""

import re
from typing import NamedTuple, Self

from kubedevices.errors import InvalidResourceName

DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
"""What Kubernetes accepts before and after a slash, for resources and for labels of nodes."""

_DOMAIN_LIMIT = 253 - len("requests.")
LABEL_LIMIT = 63


class _Parts(NamedTuple):
    domain: str
    device_type: str


class ResourceName(_Parts):
    """A valid extended resource name; `str()` returns it as one text."""

    __slots__ = ()

    def __new__(cls, domain: str, device_type: str) -> Self:
        """Refuse names that a kubelet refuses, so that an instance is always valid."""
        if problem := explain_resource_name(f"{domain}/{device_type}"):
            raise InvalidResourceName(f"{domain}/{device_type}", problem)
        return super().__new__(cls, domain, device_type)

    def __str__(self) -> str:
        """`domain/device_type`."""
        return f"{self.domain}/{self.device_type}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split and check `text`; raises `InvalidResourceName`."""
        problem = explain_resource_name(text)
        if problem:
            raise InvalidResourceName(text, problem)
        domain, _, device_type = text.partition("/")
        return cls(domain, device_type)


def is_resource_name(text: str) -> bool:
    """Whether a kubelet accepts `text` as the name of an extended resource."""
    return not explain_resource_name(text)


def suggest_resource_name(text: str) -> str:
    """Return a valid name similar to `text`, or an empty string if no valid name is left."""
    domain, slash, device_type = text.strip().removeprefix("requests.").partition("/")
    if not slash:
        domain, device_type = "example.com", domain
    domain = re.sub(r"[^-a-z0-9.]+", "-", domain.lower().replace("kubernetes.io", "example.com"))
    domain = ".".join(filter(None, (label.strip("-") for label in domain.split("."))))
    device_type = re.sub(r"[^-A-Za-z0-9_.]+", "-", device_type)[:LABEL_LIMIT].strip("-_.")
    better = f"{domain}/{device_type}"
    return better if is_resource_name(better) else ""


def explain_resource_name(text: str) -> str:
    """Return the rule that `text` breaks, or an empty string."""
    domain, slash, device_type = text.partition("/")
    if not slash:
        return "it needs a domain and a slash, for example example.com/" + (text or "widget")
    if "/" in device_type:
        return "it must contain exactly one slash"
    if "kubernetes.io/" in text:
        return "domains ending in kubernetes.io are reserved"
    if text.startswith("requests."):
        return "it must not start with requests."
    if not domain or not device_type:
        return "there must be something on both sides of the slash"
    if len(domain) > _DOMAIN_LIMIT:
        return f"the domain has {len(domain)} characters, at most {_DOMAIN_LIMIT} are allowed"
    if not DOMAIN.fullmatch(domain):
        return f"{domain!r} is not a domain of lower-case letters, digits, '-' and '.'"
    if len(device_type) > LABEL_LIMIT:
        return (
            f"the part after the slash has {len(device_type)} characters, "
            f"at most {LABEL_LIMIT} are allowed"
        )
    if not LABEL_VALUE.fullmatch(device_type):
        return (
            f"{device_type!r} must be letters, digits, '-', '_' or '.', "
            "with a letter or digit at both ends"
        )
    return ""
