"""Checks of single values of expose's YAML file. Pure; for `expose_config`.

A check gets a value and returns what is wrong with it, or an empty string.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from kubedevices.config.checks import path_template, template
from kubedevices.config.placeholders import fill, placeholders
from kubedevices.expose.path_patterns import PathPattern
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
        "1": "and 2, 3 ...: texts that the first, second ... wildcard matched",
    }
)
OF_THE_NODE = ("n", "name", "path", "address", "1")
BEFORE_CONTAINER_PATH = (*OF_THE_NODE, "index", "id")


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
    if problem := template("n", "name", "address", "1")(name):
        return problem
    return resource(fill(name, dict.fromkeys(placeholders(name), "x")))


def permissions(text: str) -> str:
    """Check the permissions of a device file."""
    return DeviceSpec("/", permissions=text).problem()


def env_name(name: str) -> str:
    """Check the name of a variable."""
    if not name or "=" in name or not name.isprintable():
        return f"{name!r} cannot name an environment variable"
    return template(*PLACEHOLDERS)(name)


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


def cdi_kind(resource_name: str) -> str:
    """Check that the name of a resource can be the kind of CDI devices."""
    from kubedevices.values.cdi import explain_kind  # noqa: PLC0415 - only loaded if CDI is used

    problem = explain_kind(resource_name, strict=True)
    return f"no CDI device can have the name {resource_name}=...: {problem}" if problem else ""
