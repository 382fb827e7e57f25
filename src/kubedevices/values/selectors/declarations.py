"""The functions and variables that a selector may name, with their types.

Sources: the environment of k8s.io/dynamic-resource-allocation 1.36, `cel/compile.go`, with the
feature gates of 1.36; k8s.io/apiserver, `pkg/cel/environment/base.go` and `pkg/cel/library`; cel-go
0.27, `common/stdlib` and `ext` (strings 2, lists 3, sets, two-variable comprehensions, optional).
The functions for authorization are not declared: no selector has an authorizer.
"""

import functools
import itertools
import re

from kubedevices.values.selectors.cel_types import (
    ANY,
    BOOL,
    DEVICE,
    DURATION,
    STRING,
    TIMESTAMP,
    CelType,
    Overload,
    mapped,
)

_SHORT = {
    "Duration": DURATION,
    "Timestamp": TIMESTAMP,
    "Quantity": "kubernetes.Quantity",
    "Semver": "kubernetes.Semver",
    "URL": "kubernetes.URL",
    "Format": "kubernetes.NamedFormat",
    "IP": "net.IP",
    "CIDR": "net.CIDR",
    "optional": "optional_type",
}
_ORDERED = "int uint double bool Duration Timestamp string bytes"
"""Types with an order; the first that fits is the type of an empty list."""

_FORMATS = (
    "byte date datetime dns1035Label dns1035LabelPrefix dns1123Label dns1123LabelPrefix "
    "dns1123Subdomain dns1123SubdomainPrefix labelValue qualifiedName uri uuid"
)
_TIME_PARTS = (
    "getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds "
    "getMinutes getMonth getSeconds"
)

_TABLE = """
!_: (bool) bool
-_: (double) double; (int) int
@in: (A, list(A)) bool; (A, map(A, B)) bool
@not_strictly_false: (bool) bool
_!=_: (A, A) bool
_==_: (A, A) bool
_%_: (int, int) int; (uint, uint) uint
_&&_: (bool, bool) bool
_||_: (bool, bool) bool
_*_: (double, double) double; (int, int) int; (uint, uint) uint
_/_: (double, double) double; (int, int) int; (uint, uint) uint
_+_: (bytes, bytes) bytes; (double, double) double; (Duration, Duration) Duration
_+_: (Duration, Timestamp) Timestamp; (Timestamp, Duration) Timestamp; (int, int) int
_+_: (list(A), list(A)) list(A); (string, string) string; (uint, uint) uint
_-_: (double, double) double; (Duration, Duration) Duration; (int, int) int; (uint, uint) uint
_-_: (Timestamp, Duration) Timestamp; (Timestamp, Timestamp) Duration
_?_:_: (bool, A, A) A
_[?_]: (list(V), int) optional(V); (optional(list(V)), int) optional(V)
_[?_]: (map(K, V), K) optional(V); (optional(map(K, V)), K) optional(V)
_[_]: (list(A), int) A; (map(A, B), A) B
_[_]: (optional(list(V)), int) optional(V); (optional(map(K, V)), K) optional(V)
cel.@mapInsert: (map(K, V), K, V) map(K, V); (map(K, V), map(K, V)) map(K, V)
bool: (bool) bool; (string) bool
bytes: (bytes) bytes; (string) bytes
double: (double) double; (int) double; (string) double; (uint) double
duration: (Duration) Duration; (int) Duration; (string) Duration
dyn: (A) dyn
int: (double) int; (Duration) int; (int) int; (string) int; (Timestamp) int; (uint) int
string: (bool) string; (bytes) string; (CIDR) string; (double) string; (Duration) string
string: (int) string; (IP) string; (string) string; (Timestamp) string; (uint) string
timestamp: (int) Timestamp; (string) Timestamp; (Timestamp) Timestamp
type: (A) type(A)
uint: (double) uint; (int) uint; (string) uint; (uint) uint
size: (bytes) int; (list(A)) int; (map(A, B)) int; (string) int
.size: (bytes) int; (list(A)) int; (map(A, B)) int; (string) int
.charAt: (string, int) string
.contains: (string, string) bool
.endsWith: (string, string) bool
.startsWith: (string, string) bool
matches: (string, string) bool
.matches: (string, string) bool
.find: (string, string) string
.findAll: (string, string) list(string); (string, string, int) list(string)
.format: (string, list(dyn)) string
.indexOf: (list(A), A) int; (string, string) int; (string, string, int) int
.lastIndexOf: (list(A), A) int; (string, string) int; (string, string, int) int
.join: (list(string)) string; (list(string), string) string
.lowerAscii: (string) string
.upperAscii: (string) string
.replace: (string, string, string) string; (string, string, string, int) string
.split: (string, string) list(string); (string, string, int) list(string)
.substring: (string, int) string; (string, int, int) string
.trim: (string) string
strings.quote: (string) string
.distinct: (list(T)) list(T)
.first: (list(V)) optional(V)
.last: (list(V)) optional(V)
.flatten: (list(list(T))) list(T); (list(dyn), int) list(dyn)
.reverse: (list(T)) list(T)
.slice: (list(T), int, int) list(T)
lists.range: (int) list(int)
.sum: (list(int)) int; (list(uint)) uint; (list(double)) double; (list(Duration)) Duration
sets.contains: (list(T), list(T)) bool
sets.equivalent: (list(T), list(T)) bool
sets.intersects: (list(T), list(T)) bool
optional.none: () optional(V)
optional.of: (V) optional(V)
optional.ofNonZeroValue: (V) optional(V)
optional.unwrap: (list(optional(V))) list(V)
.unwrapOpt: (list(optional(V))) list(V)
.hasValue: (optional(V)) bool
.or: (optional(V), optional(V)) optional(V)
.orValue: (optional(V), V) V
.value: (optional(V)) V
quantity: (string) Quantity
isQuantity: (string) bool
.add: (Quantity, Quantity) Quantity; (Quantity, int) Quantity
.sub: (Quantity, Quantity) Quantity; (Quantity, int) Quantity
sign: (Quantity) int
.asApproximateFloat: (Quantity) double
.asInteger: (Quantity) int
.isInteger: (Quantity) bool
.compareTo: (Quantity, Quantity) int; (Semver, Semver) int
.isGreaterThan: (Quantity, Quantity) bool; (Semver, Semver) bool
.isLessThan: (Quantity, Quantity) bool; (Semver, Semver) bool
semver: (string, bool) Semver; (string) Semver
isSemver: (string) bool; (string, bool) bool
.major: (Semver) int
.minor: (Semver) int
.patch: (Semver) int
url: (string) URL
isURL: (string) bool
.getEscapedPath: (URL) string
.getHost: (URL) string
.getHostname: (URL) string
.getPort: (URL) string
.getScheme: (URL) string
.getQuery: (URL) map(string, list(string))
ip: (string) IP
.ip: (CIDR) IP
isIP: (string) bool
ip.isCanonical: (string) bool
.family: (IP) int
.isGlobalUnicast: (IP) bool
.isLinkLocalMulticast: (IP) bool
.isLinkLocalUnicast: (IP) bool
.isLoopback: (IP) bool
.isUnspecified: (IP) bool
cidr: (string) CIDR
isCIDR: (string) bool
.containsCIDR: (CIDR, CIDR) bool; (CIDR, string) bool
.containsIP: (CIDR, IP) bool; (CIDR, string) bool
.masked: (CIDR) CIDR
.prefixLength: (CIDR) int
format.named: (string) optional(Format)
.validate: (Format, string) optional(list(string))
"""

VARIABLES = {"device": CelType(DEVICE)}

DEVICE_FIELDS = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": mapped(STRING, mapped(STRING, ANY)),
    "capacity": mapped(STRING, mapped(STRING, CelType(_SHORT["Quantity"]))),
}
"""The fields of `device`."""

TYPE_NAMES = {
    *("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"),
    *(DURATION, TIMESTAMP, "optional_type", "net.IP", "net.CIDR"),
}
"""Names that are values of the type `type`."""

CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
"""Functions that a server calls at compile time if the argument is a constant."""


def _lines() -> list[str]:
    made = [line for line in _TABLE.splitlines() if line]
    numbers = ("int", "uint", "double")
    pairs = [("bool", "bool"), *itertools.product(numbers, numbers)]
    pairs += [(each, each) for each in ("string", "bytes", "Timestamp", "Duration")]
    for operator in ("<", "<=", ">", ">="):
        made += [f"_{operator}_: ({first}, {second}) bool" for first, second in pairs]
    for each in _ORDERED.split():
        made += [f".isSorted: (list({each})) bool", f".sort: (list({each})) list({each})"]
        made += [f".{name}: (list({each})) {each}" for name in ("min", "max")]
        made.append(f".@sortByAssociatedKeys: (list(T), list({each})) list(T)")
    for each in _TIME_PARTS.split():
        made += [f".{each}: (Timestamp) int; (Timestamp, string) int"]
    for part in ("Hours", "Milliseconds", "Minutes", "Seconds"):
        made.append(f".get{part}: (Duration) int")
    return [*made, *(f"format.{each}: () Format" for each in _FORMATS.split())]


@functools.cache
def functions() -> dict[str, tuple[Overload, ...]]:
    """Return the overloads by name."""
    made: dict[str, list[Overload]] = {}
    for line in _lines():
        name, _, overloads = line.partition(": ")
        is_member = name.startswith(".")
        for each in overloads.split("; "):
            args, _, result = each.removeprefix("(").rpartition(") ")
            made.setdefault(name.removeprefix("."), []).append(
                Overload(is_member, tuple(map(_type, _parts(args))), _type(result))
            )
    return {name: tuple(each) for name, each in made.items()}


def _parts(text: str) -> list[str]:
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found if each.strip()]


def _type(text: str) -> CelType:
    name, _, inner = text.partition("(")
    if re.fullmatch("[A-Z]", name):
        name = f"${name}"
    params = tuple(map(_type, _parts(inner.removesuffix(")")))) if inner else ()
    return CelType(_SHORT.get(name, name), params)
