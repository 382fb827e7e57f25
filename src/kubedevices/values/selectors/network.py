"""Addresses, networks and URLs, as Kubernetes' libraries of CEL read them. Pure.

Sources: k8s.io/apiserver 1.36, `pkg/cel/library` (ip, cidr, urls); Go's `net/netip` and `net/url`.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

from kubedevices.errors import BadSelector
from kubedevices.values.selectors.cel_values import KubernetesValue, fail, makes

_SAFE = re.compile(rb"[A-Za-z0-9$\-_.~&+,/:;=@]")
_ESCAPES = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.DOTALL)
_HOST = re.compile(r"(?:[A-Za-z0-9!$&'()*+,;=\-._~:\"<>\[\]\u0080-\U0010ffff]|%[0-9A-Fa-f]{2})*")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


class Ip(KubernetesValue):
    """An IP address."""

    type_name = "net.IP"


class Cidr(KubernetesValue):
    """A network; `value` is an address with the length of its prefix."""

    type_name = "net.CIDR"


class Url(KubernetesValue):
    """A URL; `value` are its parts."""

    type_name = "kubernetes.URL"

    def __init__(self, text: str) -> None:
        self.scheme, rest = _scheme(text.partition("#")[0])
        rest, mark, self.query = rest.partition("?")
        self.host, path = "", rest
        if rest.startswith("//"):
            authority, slash, path = rest[2:].partition("/")
            self.host = _host(authority, text)
            path = slash + path
        if not _ESCAPES.fullmatch(path):
            raise _bad_url(text, "invalid URL escape")
        self.path = path if rest.startswith("/") else ""
        user = text.partition("//")[2].rpartition("@")[0] if "@" in text else ""
        fragment = text.partition("#")[2]
        super().__init__(
            (self.scheme, user, self.host, self.escaped_path, mark + self.query, fragment)
        )

    @property
    def host_name(self) -> str:
        """The host without its port and brackets."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        """The port, or the empty text."""
        end = self.host.rpartition("]")[2] if self.host.startswith("[") else self.host
        return end.partition(":")[2]

    @property
    def escaped_path(self) -> str:
        """The path with `%20` for a space."""
        if _is_escaped(self.path):
            return self.path
        raw = unquote_to_bytes(self.path)
        return "".join(
            chr(each) if _SAFE.fullmatch(bytes([each])) else f"%{each:02X}" for each in raw
        )

    def queries(self) -> dict[str, list[str]]:
        """Return the values by key; parts with bad escapes are left out."""
        found: dict[str, list[str]] = {}
        for each in filter(None, self.query.split("&")):
            key, _, value = each.partition("=")
            if ";" not in each and _ESCAPES.fullmatch(each):
                found.setdefault(_unescaped(key), []).append(_unescaped(value))
        return found


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")


def _is_escaped(path: str) -> bool:
    """Whether a path is a valid encoding, so that Go keeps it."""
    return bool(re.fullmatch(r"(?:[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]/]|%[0-9A-Fa-f]{2})*", path))


def _bad_url(text: str, problem: str) -> BadSelector:
    return fail(f"URL parse error during conversion from string: parse {text!r}: {problem}")


def _scheme(text: str) -> tuple[str, str]:
    if not text or re.search(r"[\x00-\x1f\x7f]", text):
        raise _bad_url(text, "empty url" if not text else "invalid control character in URL")
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if match:
        return match[1].lower(), text[match.end() :]
    if not text.startswith("/") and text != "*":
        raise _bad_url(text, "invalid URI for request")
    return "", text


def _host(authority: str, text: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _bad_url(text, "net/url: invalid userinfo")
    port = host
    if host.startswith("["):
        inside, bracket, port = host[1:].rpartition("]")
        if not bracket or not re.fullmatch(r"[0-9A-Fa-f:.]*(%25.*)?", inside):
            raise _bad_url(text, "missing ']' in host")
    elif ":" in host:
        port = ":" + host.rpartition(":")[2]
        if host.count(":") > 1:
            raise _bad_url(text, "invalid port after host")
    else:
        port = ""
    if not re.fullmatch(r"(:[0-9]*)?", port) or not _HOST.fullmatch(host):
        raise _bad_url(text, f"invalid port {port!r} after host")
    return host


def _ip(text: str) -> Ip:
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise fail(f"IP Address {text!r} parse error during conversion from string") from error
    if "%" in text or getattr(found, "ipv4_mapped", None):
        raise fail(f"the IP address {text!r} is not allowed")
    return Ip(found)


def _cidr(text: str) -> Cidr:
    address, _, bits = text.rpartition("/")
    made = _ip(address).value
    if not re.fullmatch("0|[1-9][0-9]{0,2}", bits) or int(bits) > made.max_prefixlen:
        raise fail(f"network address parse error during conversion from string: {text!r}")
    return Cidr(ipaddress.ip_interface(text))


def _contains_ip(held: Cidr, other: Ip | str) -> bool:
    address = _ip(other) if isinstance(other, str) else other
    return address.value in held.value.network


def _contains_cidr(held: Cidr, other: Cidr | str) -> bool:
    inner = _cidr(other) if isinstance(other, str) else other
    mine, theirs = held.value.network, inner.value.network
    return bool(mine.version == theirs.version and theirs.subnet_of(mine))


def _is_global(address: Any) -> bool:
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


def _is_local_multicast(address: Any) -> bool:
    if address.version == 4:
        return bool(address in ipaddress.ip_network("224.0.0.0/24"))
    return bool(address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "url": Url,
    "isURL": makes(Url),
    "getScheme": lambda each: each.scheme,
    "getHost": lambda each: each.host,
    "getHostname": lambda each: each.host_name,
    "getPort": lambda each: each.port,
    "getEscapedPath": lambda each: each.escaped_path,
    "getQuery": lambda each: each.queries(),
    "ip": lambda each: Ip(each.value.ip) if isinstance(each, Cidr) else _ip(each),
    "isIP": makes(_ip),
    "ip.isCanonical": lambda text: str(_ip(text).value) == text,
    "family": lambda each: each.value.version,
    "isGlobalUnicast": lambda each: _is_global(each.value),
    "isLinkLocalMulticast": lambda each: _is_local_multicast(each.value),
    "isLinkLocalUnicast": lambda each: each.value.is_link_local,
    "isLoopback": lambda each: each.value.is_loopback,
    "isUnspecified": lambda each: each.value.is_unspecified,
    "cidr": _cidr,
    "isCIDR": makes(_cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "masked": lambda each: Cidr(ipaddress.ip_interface(str(each.value.network))),
    "prefixLength": lambda each: each.value.network.prefixlen,
}
"""The functions by name. A receiver is the first argument."""
