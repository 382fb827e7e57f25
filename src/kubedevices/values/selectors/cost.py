"""The most that an expression may cost: an API server refuses an expression that may exceed it.

The cost is in units of the specification of CEL. Rules and numbers: cel-go 0.27, `checker/cost.go`;
k8s.io/apiserver, `pkg/cel/library/cost.go`; k8s.io/dynamic-resource-allocation, `cel/compile.go`.
Only the upper bound is computed. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kubedevices.values.selectors.call_cost import MOST, UNKNOWN, Operand, Size, call_cost, capped
from kubedevices.values.selectors.cel_types import DURATION, TIMESTAMP, CelType, Overload
from kubedevices.values.selectors.syntax import CelNode

LIMIT = 1_000_000

_SCALARS = {"bool", "double", "int", "uint", DURATION, TIMESTAMP}


_SHARED = (3, 5, 6, 7)
"""Lengths of paths after which cel-go appends to both variables of a fold in one array."""


class _EntrySizes(NamedTuple):
    """The sizes of keys and values; `kind` is list or map."""

    kind: str
    key: Size
    value: Size


class _SizedVariable(NamedTuple):
    path: tuple[str, ...]
    size: Size | None = None
    entry: _EntrySizes | None = None


def estimate(tree: CelNode) -> int:
    """Return the upper bound of the cost of a checked tree."""
    return _Estimate().cost(tree)


def _device_size(path: Sequence[str]) -> Size | None:
    """Return the size of a part of `device`, by its path."""
    match path:
        case ["device"] | ["device", "capacity", "@values", "@values"]:
            return Size(0, 0)
        case ["device", "driver"] | ["device", "attributes" | "capacity", "@keys"]:
            return Size(0, 63)
        case ["device", "allowMultipleAllocations"]:
            return Size(0, 1)
        case ["device", "attributes" | "capacity"]:
            return Size(0, 32)
        case ["device", "attributes" | "capacity", "@values" | "@items"]:
            return Size(0, 32)
        case ["device", "attributes" | "capacity", "@values" | "@items", "@keys"]:
            return Size(0, 32)
        case ["device", "capacity", "@values" | "@items", "@values" | "@items"]:
            return Size(0, 0)
        case ["device", "attributes", "@values" | "@items", _]:
            return Size(0, 64)
    return None


class _Estimate:
    def __init__(self) -> None:
        self._variables: dict[str, list[_SizedVariable]] = {}
        self._paths: dict[CelNode, tuple[str, ...]] = {}
        self._sizes: dict[CelNode, Size] = {}
        self._entries: dict[CelNode, _EntrySizes] = {}

    def cost(self, node: CelNode) -> int:
        """Return the cost of a node, and note paths and sizes."""
        return capped(getattr(self, f"_{node.kind}")(node))

    # ------------------------------------------------------------ sizes

    def _variable(self, node: CelNode) -> _SizedVariable | None:
        found = self._variables.get(node.name) if node.kind == "ident" else None
        return found[-1] if found else None

    def _path(self, node: CelNode) -> tuple[str, ...]:
        found = self._variable(node)
        return found.path if found else self._paths.get(node, ())

    def _known_size(self, node: CelNode) -> Size | None:
        if node in self._sizes:
            return self._sizes[node]
        if (size := _literal_size(node)) is not None:
            return size
        if (size := _device_size(self._path(node))) is not None:
            self._sizes[node] = size
            return size
        if _is_scalar(node.type):
            return Size(1, 1)
        found = self._variable(node)
        return found.size if found else None

    def _size(self, node: CelNode) -> Size:
        found = self._known_size(node)
        return UNKNOWN if found is None else found

    def _entry(self, node: CelNode) -> _EntrySizes | None:
        if node in self._entries:
            return self._entries[node]
        found = self._variable(node)
        return found.entry if found else None

    def _keep(self, node: CelNode, size: Size | None, entry: _EntrySizes | None = None) -> None:
        if size is not None:
            self._sizes[node] = size
        if entry is not None:
            self._entries[node] = entry

    # ------------------------------------------------------------ nodes

    def _const(self, _node: CelNode) -> int:
        return 0

    def _ident(self, node: CelNode) -> int:
        found = self._variable(node)
        self._paths[node] = found.path if found else (node.name,)
        return 1

    def _select(self, node: CelNode) -> int:
        assert node.target is not None
        before = self.cost(node.target)
        if node.is_test:
            return before
        self._paths[node] = (*self._path(node.target), node.name)
        held = node.target.type.name
        return before + (held == "map" or held.startswith("kubernetes."))

    def _list(self, node: CelNode) -> int:
        total, item = 10, Size(MOST if node.parts else 0, 0)
        for each in node.parts:
            total += self.cost(each)
            item |= self._size(each)
        self._entries[node] = _EntrySizes("list", Size(1, 1), item)
        return total

    def _map(self, node: CelNode) -> int:
        total = 30 + sum(map(self.cost, node.parts))
        sizes = [Size(MOST if node.parts else 0, 0)] * 2
        for i, each in enumerate(node.parts):
            sizes[i % 2] |= self._size(each)
        self._entries[node] = _EntrySizes("map", *sizes)
        return total

    def _fold(self, node: CelNode) -> int:
        over, start, condition, step, result = node.parts
        total = self.cost(over) + self.cost(start)
        held = _SizedVariable(self._path(start), self._known_size(start), self._entry(start))
        self._push(node.names[2], held)
        if over.kind == "list" and not over.parts and condition.value is False:  # cel.bind
            total += self.cost(result)
            self._keep(node, self._known_size(result), self._entry(result))
            self._variables[node.names[2]].pop()
            return total
        pushed = self._push_items(node, over)
        each = self.cost(condition) + self.cost(step)
        for name in pushed:
            self._variables[name].pop()
        total += self.cost(result)
        self._variables[node.names[2]].pop()
        count = self._size(over)
        if start.kind == "const":
            self._keep(node, self._known_size(start))
        elif start.kind in ("list", "map"):
            self._keep(node, count, self._entry(step))
        return total + capped(count.most * each)

    def _push(self, name: str, variable: _SizedVariable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _push_items(self, node: CelNode, over: CelNode) -> list[str]:
        entry, path = self._entry(over), self._path(over)
        is_list = (entry.kind if entry else over.type.name) == "list"
        keys, values = ("@indices", "@items") if is_list else ("@keys", "@values")
        key = _SizedVariable((*path, keys), entry.key if entry else None)
        value = _SizedVariable((*path, values), entry.value if entry else None)
        first, second = node.names[:2]
        if second and len(path) in _SHARED:
            key = key._replace(path=value.path)
        if not second:
            self._push(first, value if is_list else key)
            return [first]
        self._push(first, key)
        self._push(second, value)
        return [first, second]

    def _call(self, node: CelNode) -> int:
        costs = [self.cost(each) for each in node.parts]
        if node.name == "dyn":
            self._keep(node, self._known_size(node.parts[0]), self._entry(node.parts[0]))
            return 1 + costs[0]
        if not node.overloads and node.name != "_?._":
            return 0
        total = self.cost(node.target) if node.target else 0
        most, size = 0, None
        overloads: list[Overload | None] = [*node.overloads] or [None]
        for overload in overloads:
            found, made = self._function(node, overload, costs)
            most = max(most, found)
            if made is not None:
                size = made if size is None else size | made
            if node.name == "_[_]" and overload and overload.args[0].name in ("list", "map"):
                entry = self._entry(node.parts[0])
                size = entry.value if entry else None
                part = "@items" if overload.args[0].name == "list" else "@values"
                self._paths[node] = (*self._path(node.parts[0]), part)
            if size is None:
                size = self._known_size(node)
        self._keep(node, size)
        return total + most

    def _function(
        self, node: CelNode, overload: Overload | None, costs: list[int]
    ) -> tuple[int, Size | None]:
        """Return the cost of a call with its arguments, and the size of its result."""
        if node.name == "_?_:_":
            _, one, other = node.parts
            self._join_entries(node, one, other)
            return costs[0] + max(costs[1:]), self._size(one) | self._size(other)
        values = [
            Operand(each.type, self._size(each), self._items(each), each.value)
            for each in node.below()
        ]
        if node.name == "_+_":
            self._join_entries(node, *node.parts)
        found, size = call_cost(node.name, overload, values)
        return found + sum(costs), size

    def _join_entries(self, node: CelNode, one: CelNode, other: CelNode) -> None:
        """Note the sizes of the entries of a node that has those of one or of both others."""
        mine, theirs = self._entry(one), self._entry(other)
        if mine and theirs:
            both = _EntrySizes(mine.kind, mine.key | theirs.key, mine.value | theirs.value)
            self._entries[node] = both

    def _items(self, node: CelNode) -> Size:
        """Return the size of the items of a list that is a part of `device`."""
        return _device_size((*self._path(node), "@items")) or UNKNOWN


def _literal_size(node: CelNode) -> Size | None:
    if node.kind == "const":
        number = len(node.value) if isinstance(node.value, str | bytes) else 1
    elif node.kind == "list":
        number = len(node.parts)
    elif node.kind == "map":
        number = len(node.parts) // 2
    else:
        return None
    return Size(number, number)


def _is_scalar(found: CelType) -> bool:
    return found.name in _SCALARS or (found.name == "optional_type" and _is_scalar(found.params[0]))
