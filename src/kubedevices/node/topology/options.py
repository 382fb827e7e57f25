"""The settings of the topology manager: policy, scope and options, checked.

The error messages have the wording of the kubelet. `policy` uses the settings; the command line
reports the errors.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kubedevices.errors import UsageError

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_NODES = "max-allowable-numa-nodes"
DEFAULT_MAX_NODES = 8

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class TopologyError(UsageError):
    """Topology settings that are wrong, or that this machine does not support."""


class UnknownTopologyPolicy(TopologyError):
    """A policy that does not exist."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        super().__init__(f'unknown policy: "{policy}"')


class UnknownTopologyScope(TopologyError):
    """A scope that does not exist."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f'unknown scope: "{scope}"')


class UnknownTopologyOption(TopologyError):
    """A policy option that does not exist."""

    def __init__(self, option: str) -> None:
        self.option = option
        super().__init__(f'unknown Topology Manager Policy option: "{option}"')


class BadTopologyOption(TopologyError):
    """An option that must be true or false."""

    def __init__(self, option: str, value: str) -> None:
        self.option, self.value = option, value
        super().__init__(
            f'bad value for option "{option}": strconv.ParseBool: parsing "{value}": invalid syntax'
        )


class NotANumberOption(TopologyError):
    """An option that must be an integer."""

    def __init__(self, option: str, value: str) -> None:
        self.option, self.value = option, value
        super().__init__(
            f'unable to convert policy option to integer "{option}": '
            f'strconv.Atoi: parsing "{value}": invalid syntax'
        )


class TooLowMaxNumaNodes(TopologyError):
    """A value of max-allowable-numa-nodes below the default."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(
            f'the minimum value of "{MAX_NODES}" should not be less than {DEFAULT_MAX_NODES}'
        )


class TooManyNumaNodes(TopologyError):
    """More NUMA nodes than allowed: the number of sets of nodes doubles with each node."""

    def __init__(self, nodes: int, limit: int) -> None:
        self.nodes, self.limit = nodes, limit
        super().__init__(f"unsupported on machines with more than {limit} NUMA Nodes")


class NoNumaDistances(TopologyError):
    """prefer-closest-numa-nodes on a machine that does not report the distances of its nodes."""

    def __init__(self) -> None:
        super().__init__(
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
        )


class TopologySettings(NamedTuple):
    """Checked settings; `distances[a][b]` is the distance from NUMA node a to NUMA node b."""

    policy: str = "none"
    scope: str = "container"
    numa_nodes: tuple[int, ...] = ()
    prefer_closest: bool = False
    distances: Mapping[int, Mapping[int, int]] = MappingProxyType({})


def check_settings(
    policy: str,
    scope: str = "container",
    options: Mapping[str, str] | None = None,
    *,
    numa_nodes: Sequence[int] = (),
    distances: Mapping[int, Sequence[int]] | None = None,
) -> TopologySettings:
    """Return the checked settings; raises `TopologyError`.

    `distances` has per node the distances to all `numa_nodes` in their order, as the kernel lists
    them. With the policy none, nothing else is checked, as in the kubelet.
    """
    if policy not in POLICIES:
        raise UnknownTopologyPolicy(policy)
    if policy == "none":
        return TopologySettings()
    nodes = tuple(sorted(set(numa_nodes)))
    closest, limit = False, DEFAULT_MAX_NODES
    for option, value in (options or {}).items():
        if option == PREFER_CLOSEST:
            closest = _boolean(option, value)
        elif option == MAX_NODES:
            limit = _integer(option, value)
            if limit < DEFAULT_MAX_NODES:
                raise TooLowMaxNumaNodes(limit)
        else:
            raise UnknownTopologyOption(option)
    if len(nodes) > limit:
        raise TooManyNumaNodes(len(nodes), limit)
    if scope not in SCOPES:
        raise UnknownTopologyScope(scope)
    by_node = _by_node(nodes, distances or {}) if closest else {}
    return TopologySettings(policy, scope, nodes, closest, by_node)


def _by_node(
    nodes: tuple[int, ...], distances: Mapping[int, Sequence[int]]
) -> dict[int, dict[int, int]]:
    if any(len(distances.get(node, ())) < len(nodes) for node in nodes):
        raise NoNumaDistances
    return {node: dict(zip(nodes, distances[node], strict=False)) for node in nodes}


def _boolean(option: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise BadTopologyOption(option, value)


def _integer(option: str, value: str) -> int:
    if not _INTEGER.fullmatch(value):
        raise NotANumberOption(option, value)
    return int(value)
