"""The named formats of Kubernetes, such as `format.dns1123Label()`. Pure.

Sources: k8s.io/apiserver 1.36, `pkg/cel/library/format.go`, and the validations that it calls.
"""

import datetime as dt
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from kubedevices.values.selectors.cel_values import KubernetesValue, Optional, fail
from kubedevices.values.selectors.network import FUNCTIONS as NETWORK

_LABEL, _LABEL_1035 = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", "[a-z](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_KEY = "(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_BASE64 = "[A-Za-z0-9+/]"
_CLOCK = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_PATTERNS = {
    "dns1123Label": (_LABEL, 63),
    "dns1123Subdomain": (_SUBDOMAIN, 253),
    "dns1035Label": (_LABEL_1035, 63),
    "labelValue": (rf"(?:{_KEY})?", 63),
    "uuid": ("(?i:[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})", 10**9),
    "byte": (
        f"(?:{_BASE64}{{4}})*(?:{_BASE64}{{2}}==|{_BASE64}{{3}}=|{_BASE64}{{4}})",
        10**9,
    ),
}


class NamedFormat(KubernetesValue):
    """A format; `value` is its name."""

    type_name = "kubernetes.NamedFormat"


def _fits(name: str, text: str) -> bool:
    pattern, longest = _PATTERNS[name]
    return len(text.encode()) <= longest and re.fullmatch(pattern, text) is not None


def _is_qualified(text: str) -> bool:
    prefix, slash, name = text.partition("/")
    if not slash:
        prefix, name = "", prefix
    elif not _fits("dns1123Subdomain", prefix):
        return False
    return len(name) <= 63 and re.fullmatch(_KEY, name) is not None


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    year = text[:4]
    try:  # the year 0 is a leap year
        dt.date.fromisoformat(("0004" if year == "0000" else year) + text[4:])
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    date, _, rest = text.lower().partition("t")
    match = _CLOCK.fullmatch(rest.partition("t")[0])
    return bool(
        _is_date(date) and match and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"
    )


def _is_valid(name: str, text: str) -> bool:
    if name.endswith("Prefix"):
        if len(text) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        name = name.removesuffix("Prefix")
    if name in _PATTERNS:
        return _fits(name, text)
    special: dict[str, Callable[[str], bool]] = {
        "qualifiedName": _is_qualified,
        "uri": NETWORK["isURL"],
        "date": _is_date,
        "datetime": _is_date_time,
    }
    return special[name](text)


NAMES = (
    *_PATTERNS,
    *("dns1123LabelPrefix", "dns1123SubdomainPrefix", "dns1035LabelPrefix"),
    *("qualifiedName", "uri", "date", "datetime"),
)


def _validate(held: NamedFormat, text: str) -> Optional:
    if _is_valid(held.value, text):
        return Optional()
    return Optional([fail("the messages of a format are not evaluated here", "unsupported")])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "format.named": lambda name: Optional(*([NamedFormat(name)] if name in NAMES else [])),
    "validate": _validate,
    **{f"format.{name}": partial(NamedFormat, name) for name in NAMES},
}
"""The functions by name. A receiver is the first argument."""
