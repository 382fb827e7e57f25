"""Repairs what a plugin gets wrong, so that node and pods do not suffer: `Repaired`.

Correct lists and answers pass unchanged. Each kind of fault is counted, and logged once.

* In lists: duplicate IDs (the unhealthy device counts), an unknown word of health (Unhealthy), NUMA
  nodes below 0 (none), and an empty list that is followed by the real list within a second.
* In answers: an error of GetPreferredAllocation, or a preference that no node can follow (no
  preference); container paths that are relative, or at which two different things belong. The same
  entry twice is no fault: many plugins repeat a common device file, and a node takes it once.
* A plugin without GetDevicePluginOptions gets the default options.
* A name of a variable that no shell can use is logged, counted and passed on.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kubedevices.errors import PluginAway
from kubedevices.plugin.allocate_response import explain_preference
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.capabilities import AllocateAnswer, UseDefault
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.middleware import Middleware, OwnedRelay, innermost
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from kubedevices.values.device import Device, DeviceSpec, Mount
from kubedevices.values.device_tree import DeviceTree

EMPTY_FOR = 1.0
"""Seconds for which an empty list is held back: some plugins send it before their first scan."""

_LIST_FAULTS = {
    "doubled": "two devices with one ID: the unhealthy device counts",
    "odd_words": "a health that is neither Healthy nor Unhealthy: it counts as Unhealthy",
    "negative_nodes": "a NUMA node below 0: it counts as none",
    "impossible_ids": "an ID that cannot be used: the device is left out",
}
"""Fields of `list.oddities`, an attribute of the scanner of another plugin."""

_PASSED_ON = {"odd_variables"}
"""Faults that nobody can repair."""

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_Part = TypeVar("_Part", DeviceSpec, Mount)

_log = logging.getLogger(__name__)


class Repaired(Middleware):
    """Corrects what the plugin of `scanner` gets wrong; `use` switches it on or off."""

    def __init__(self, scanner: Scanner, is_on: bool = True) -> None:
        super().__init__(scanner)
        self.is_on = is_on
        self._logged: set[tuple[str, str]] = set()
        # By device type: the last devices, and since when the list has been empty.
        self._full: dict[str, Mapping[str, Device]] = {}
        self._empty_since: dict[str, float] = {}
        # The tree whose faults were counted last: a second look at the same tree counts nothing.
        self._counted: DeviceTree | None = None

    def use(self, is_on: bool) -> None:
        """Correct faults from now on, or pass everything unchanged. From any thread."""
        self.is_on = is_on
        self.look_again()

    def report(self, device_type: str, event: str, text: str) -> None:
        """Count a fault, and log it the first time."""
        self.count(event, device_type)
        if (device_type, event) not in self._logged:
            self._logged.add((device_type, event))
            done = "passed on unchanged" if event in _PASSED_ON else "repaired"
            _log.warning("%s: %s: %s (logged once; the metrics count it)", device_type, done, text)

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return the corrected tree; `tree` itself if it has no faults."""
        if not self.is_on:
            return tree
        odd = self._odd_types(tree)
        early = {name for name in tree if self._is_too_early(name, tree, now)}
        if not odd and not early:
            return tree
        repaired = DeviceTree()
        for name in tree:
            devices = dict(tree.devices(name))
            if name in early:
                # The last list stays; without a last list the type is not served yet.
                devices = dict(self._full.get(name, {}))
                if not devices:
                    continue
            repaired.put_list(
                name, devices, b"" if name in odd or name in early else tree.sent(name)
            )
        return repaired

    def _odd_types(self, tree: DeviceTree) -> set[str]:
        """Return the types whose list must not pass as the plugin sent it; at most one type."""
        plugin: Any = innermost(self.scanner)
        oddities = getattr(getattr(plugin, "list", None), "oddities", None)
        sent = {name for name in tree if tree.sent(name)}
        found = {name for name in _LIST_FAULTS if getattr(oddities, name, 0)} if sent else set()
        for device_type in sent if tree is not self._counted else ():
            for event in found:
                self.report(device_type, event, f"the plugin listed {_LIST_FAULTS[event]}")
        self._counted = tree
        return sent if found else set()

    def _is_too_early(self, device_type: str, tree: DeviceTree, now: float) -> bool:
        """Whether to hold back an empty list, for `EMPTY_FOR` seconds at most."""
        if tree.count(device_type):
            if self._empty_since.pop(device_type, None) is not None:
                text = "a list without devices, and the real list shortly afterwards"
                self.report(device_type, "empty_first", f"the plugin sent {text}")
            self._full[device_type] = tree.devices(device_type)
            return False
        since = self._empty_since.setdefault(device_type, now)
        if now < since + EMPTY_FOR:
            self.look_again(since + EMPTY_FOR)
            return True
        self._full.pop(device_type, None)
        return False

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "MendedRelay":
        """Return the relay that corrects answers."""
        if self.is_on and not getattr(innermost(self.scanner), "has_options", True):
            text = "the plugin has no GetDevicePluginOptions: its options are the defaults"
            self.report(device_type, "missing_options", text)
        return MendedRelay(self, inner, device_type, inner_type)


class MendedRelay(OwnedRelay[Repaired]):
    """Corrects the answers of the plugin; the answers of the framework need no correction."""

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Ask the plugin; correct its answer in place."""
        answer = await super().allocate(request)
        if self.owner.is_on and not isinstance(answer, UseDefault):
            for container in answer.containers:
                for event, text in repair_container(container):
                    self.owner.report(self.device_type, event, text)
        return answer

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Return the preference of the plugin; no preference if a node cannot follow it."""
        try:
            answer = await super().get_preferred_allocation(request)
        except PluginAway:  # `hold`, an outer layer, decides whether to wait
            raise
        except Exception as error:
            if not self.owner.is_on:
                raise
            text = f"GetPreferredAllocation failed, answered without preference: {describe(error)}"
            self.owner.report(self.device_type, "failed_preferences", text)
            return _no_preference(request)
        problem = preference_problem(request, answer) if self.owner.is_on else ""
        if problem:
            text = f"a preference that cannot be followed, answered without: {problem}"
            self.owner.report(self.device_type, "wrong_preferences", text)
            return _no_preference(request)
        return answer


def _no_preference(request: PreferredAllocationRequest) -> PreferredAllocationResponse:
    return PreferredAllocationResponse(tuple(() for _ in request.containers))


def preference_problem(
    request: PreferredAllocationRequest, answer: PreferredAllocationResponse
) -> str:
    """Return why a node cannot follow a preference, or an empty string."""
    if len(answer.containers) != len(request.containers):
        return f"{len(answer.containers)} answers for {len(request.containers)} containers"
    pairs = zip(request.containers, answer.containers, strict=True)
    problems = (explain_preference(asked, tuple(preferred)) for asked, preferred in pairs)
    return next(filter(None, problems), "")


def repair_container(container: ContainerAllocateResponse) -> Iterator[tuple[str, str]]:
    """Correct an answer in place; yield each fault as event and text."""
    problems: list[tuple[str, str]] = []
    devices = [*_mended_parts(container.devices, problems)]
    mounts = [*_mended_parts(container.mounts, problems)]
    if problems:
        container.devices[:], container.mounts[:] = devices, mounts
        yield from problems
    for name in container.env:
        if not _VARIABLE.fullmatch(name):
            yield "odd_variables", f"the variable {name!r}, which no shell can use"


def _mended_parts(parts: Sequence[_Part], problems: list[tuple[str, str]]) -> Iterator[_Part]:
    """Yield parts with absolute paths, and for each path only the first part, as a kubelet does.

    A repetition of the first part is yielded too.
    """
    at: dict[str, _Part] = {}
    for part in parts:
        place = part.container_path
        if not place.startswith("/"):
            place = f"/{place}" if place else part.host_path
            text = f"the path {part.container_path!r} in a container: it is {place} now"
            problems.append(("relative_paths", text))
        repaired = part if place == part.container_path else part._replace(container_path=place)
        if at.setdefault(place, repaired) != repaired:
            text = f"two different entries for {place} in a container: the first counts"
            problems.append(("doubled_paths", text))
            continue
        yield repaired
