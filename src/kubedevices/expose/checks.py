"""Checks of single values of expose's YAML file. Pure; for `expose_config`.

A check gets a value and returns what is wrong with it, or an empty string.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kubedevices.config.placeholders import fill, placeholders
from kubedevices.errors.words import closest
from kubedevices.expose.path_patterns import PathPattern, path_problem
from kubedevices.plugin.allocation_policy import POLICIES
from kubedevices.values.device import DeviceSpec
from kubedevices.values.resource_name import explain_resource_name

PLACEHOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "n": "text that the first wildcard of the match matched",
        "name": "the last part of the host path",
        "path": "the host path",
        "address": "the PCI address or USB port; for matches by pci and usb",
        "index": "0, 1, 2 ...: the device's number within the resource",
        "id": "the device's ID",
        "container_path": "where the container sees the device",
    }
)
"""All placeholders except `{1}`, `{2}` ...: texts that the first, second ... wildcard matched."""

OF_THE_NODE = ("n", "name", "path", "address")
BEFORE_CONTAINER_PATH = (*OF_THE_NODE, "index", "id")
ID_STYLES = ("stable", "path", "index")
VFIO = ("group", "cdev", "both")
"""Which files a function of vfio-pci has: see `host.vfio.nodes`."""

INJECT = ("nodes", "cdi", "both")

_LAST_NUMA_NODE = 1023  # the kernel's limit, as in `numa`, which is not imported to save memory


def version(number: int) -> str:
    """Check the version of the file's format."""
    return "" if number == 1 else f"version {number} is not known, this is version 1"


def namespace(text: str) -> str:
    """Check the part of resource names before the slash."""
    if "/" in text:
        return f"{text!r}: write only the part before the slash, the rest is a resource's name"
    return explain_resource_name(f"{text}/x") if text else "a namespace is needed"


def resource(name: str) -> str:
    """Check the part of a resource name after the slash."""
    if "/" in name:
        return f"{name!r}: write only the part after the slash, the rest is the key 'namespace'"
    return explain_resource_name(f"example.com/{name}")


def resource_template(name: str) -> str:
    """Check a resource name that may have placeholders for parts of a match."""
    if problem := template("n", "name", "address")(name):
        return problem
    return resource(fill(name, dict.fromkeys(placeholders(name), "x")))


def permissions(text: str) -> str:
    """Check the permissions of a device file."""
    return DeviceSpec("/", permissions=text).problem()


def replicas(count: int) -> str:
    """Check a number of replicas."""
    return "" if 1 <= count <= 1000 else f"{count} must be between 1 and 1000"


def times(count: int) -> str:
    """Check how many looks in a row are needed."""
    return "" if 1 <= count <= 1000 else f"{count} must be between 1 and 1000"


def env_name(name: str) -> str:
    """Check the name of a variable."""
    if not name or "=" in name or not name.isprintable():
        return f"{name!r} cannot name an environment variable"
    return template(*PLACEHOLDERS)(name)


def template(*known: str) -> Callable[[str], str]:
    """Return a check: are all placeholders among `known`?"""

    def check(text: str) -> str:
        if "\0" in text:
            return f"{text!r} contains a NUL character, which no text may contain"
        for name in placeholders(text):
            if name not in known and not re.fullmatch("[1-9]", name):
                meant = closest(name, known)
                hint = f"did you mean {{{meant}}}?" if meant else _listed(known)
                return f"unknown placeholder {{{name}}}, {hint}"
        return ""

    return check


def _listed(names: tuple[str, ...]) -> str:
    return "known: " + ", ".join(f"{{{name}}}" for name in (*names, "1"))


def path_template(*known: str) -> Callable[[str], str]:
    """Return a check for a path with placeholders."""

    def check(text: str) -> str:
        if problem := template(*known)(text):
            return problem
        begins_with_one = re.match(r"\{(path|container_path)\}", text)
        return path_problem("/" + text if begins_with_one else text)

    return check


def companion(text: str) -> str:
    """Check the path of device files of `with`: with placeholders, and maybe with wildcards."""
    if problem := path_template(*OF_THE_NODE)(text):
        return problem
    try:
        PathPattern(re.sub(r"\{[^{}]*\}", "0", text) if not text.startswith("{") else "/0")
    except ValueError as error:
        return str(error)
    return ""


def hex_pattern(text: str) -> str:
    """Check a vendor, product, device or class: hexadecimal digits, wildcards allowed."""
    if re.fullmatch(r"(?:0[xX])?[0-9a-fA-F*?]+", text):
        return ""
    return f"{text!r} is not a hexadecimal number"


def some_text(text: str) -> str:
    """Check that a text is not empty."""
    return "" if text else "this text is empty"


def one_of(*words: str) -> Callable[[str], str]:
    """Return a check for one of `words`."""

    def check(text: str) -> str:
        if text in words:
            return ""
        meant = closest(text, words)
        hint = f"did you mean {meant!r}?" if meant else f"must be {', '.join(words)}"
        return f"{text!r} is not known, {hint}"

    return check


allocation = one_of(*POLICIES)
"""Check the name of an allocation policy."""

inject = one_of(*INJECT)
"""Check how devices reach a container."""


def cdi_kind(resource_name: str) -> str:
    """Check that the name of a resource can be the kind of CDI devices."""
    from kubedevices.values.cdi import explain_kind  # noqa: PLC0415 - only loaded if CDI is used

    problem = explain_kind(resource_name, strict=True)
    return f"no CDI device can have the name {resource_name}=...: {problem}" if problem else ""


def numa_node(number: int) -> str:
    """Check the number of a NUMA node."""
    if number < 0:
        return f"{number} is negative; a NUMA node is 0 or more"
    return "" if number <= _LAST_NUMA_NODE else f"{number}: NUMA nodes go up to {_LAST_NUMA_NODE}"


def topology(value: str | int) -> str:
    """Check `auto`, `none`, or one number of a list of NUMA nodes."""
    if isinstance(value, int):
        return numa_node(value)
    return one_of("auto", "none")(value)
