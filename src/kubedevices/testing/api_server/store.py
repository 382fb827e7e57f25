"""The objects of an API server, their versions, and the events for watches. Pure.

A refused call raises `ApiRefused` with the status, reason and text of Kubernetes.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kubedevices.errors import ApiRefused
from kubedevices.testing.api_server.claim_rules import (
    claim_problems,
    class_problems,
    set_claim_defaults,
)
from kubedevices.testing.api_server.slice_rules import slice_problems
from kubedevices.values.quantities import canonical
from kubedevices.values.scheduling.kinds import KINDS, ApiPath, Object

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated name suffixes in Kubernetes."""

_DEVICE_FIELDS = {
    *("name", "attributes", "capacity", "consumesCounters", "taints", "allowMultipleAllocations"),
    *("nodeName", "nodeSelector", "allNodes", "nodeAllocatableResourceMappings"),
    *("bindsToNode", "bindingConditions", "bindingFailureConditions"),
}
"""The fields of a device in a ResourceSlice in Kubernetes 1.36."""

Selected = Callable[[Object], bool]


class WatchEvent(NamedTuple):
    """A change of an object; `before` is the object before, None if it was created."""

    version: int
    type: str
    plural: str
    object: Object
    before: Object | None


@dataclass
class Store:
    """Objects by plural, namespace and name, and the events for watches."""

    version: int = 1000
    oldest: int = 0
    """Watches from an earlier version are refused with status 410."""

    admit: Callable[[str, Object], None] = lambda _plural, _made: None
    """Called with the plural and each object before it is checked; may change or refuse it.

    So do webhooks, and servers with disabled feature gates, which drop fields.
    """

    events: list[WatchEvent] = field(default_factory=list)
    _objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    _created_count: int = 0

    # ------------------------------------------------------------ reading

    def get(self, place: ApiPath) -> Object:
        """Return an object; raises `ApiRefused`, not found."""
        return copy.deepcopy(self._find(place))

    def select(self, place: ApiPath, selected: Selected = lambda _: True) -> list[Object]:
        """Return the objects of a kind in one or all namespaces, in the order of their names."""
        return copy.deepcopy(self.peek(place, selected))

    def peek(self, place: ApiPath, selected: Selected) -> list[Object]:
        """Return the stored objects themselves, which the caller must not change."""
        return [
            each
            for (plural, namespace, _), each in sorted(self._objects.items())
            if plural == place.plural and place.namespace in ("", namespace) and selected(each)
        ]

    def since(self, version: int) -> list[WatchEvent]:
        """Return the events after `version`; raises `ApiRefused`, expired."""
        if version < self.oldest:
            problem = f"too old resource version: {version} ({self.oldest})"
            raise ApiRefused("watch", 410, "Expired", problem)
        return [each for each in self.events if each.version > version]

    def forget_events(self) -> None:
        """Forget all events, as a server does after some minutes."""
        self.oldest = self.version
        self.events.clear()

    # ------------------------------------------------------------ writing

    def create(self, place: ApiPath, made: Object, now: str) -> Object:
        """Store a new object; return it as stored. `now` is the time for its metadata."""
        made = copy.deepcopy(made)
        kind, metadata = KINDS[place.plural], made.setdefault("metadata", {})
        self._created_count += 1
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                self._invalid(place, "", ["metadata.name: Required value: name or generateName"])
            metadata["name"] = metadata["generateName"] + _suffix(self._created_count)
        if kind.is_namespaced:
            metadata["namespace"] = place.namespace or metadata.get("namespace", "default")
        key = _key(place.plural, metadata)
        if key in self._objects:
            problem = f'{_resource(place)} "{metadata["name"]}" already exists'
            raise ApiRefused(f"create {place.plural}", 409, "AlreadyExists", problem)
        metadata |= {"creationTimestamp": now, "generation": 1}
        metadata["uid"] = metadata.get("uid") or str(UUID(int=self._created_count, version=4))
        return self._put(place, key, made, None, now)

    def update(self, place: ApiPath, made: Object, now: str) -> Object:
        """Replace an object, or only its status. An equal object causes no event."""
        made, before = copy.deepcopy(made), self._find(place)
        metadata, known = made.setdefault("metadata", {}), before["metadata"]
        for key in ("resourceVersion", "uid"):
            if metadata.get(key) and metadata[key] != known[key]:
                self._conflict(place, "the object has been modified; please apply your changes to "
                               "the latest version and try again")  # fmt: skip
        if place.subresource == "status":
            made = copy.deepcopy(before) | {"status": made.get("status", {})}
        elif KINDS[place.plural].has_status:
            made["status"] = copy.deepcopy(before.get("status", {}))
        for key in ("uid", "creationTimestamp", "resourceVersion", "generation"):
            made["metadata"][key] = known[key]
        return self._put(place, _key(place.plural, known), made, before, now)

    def delete(self, place: ApiPath, preconditions: Mapping[str, str] | None = None) -> Object:
        """Delete an object and the objects that it owns; return the object."""
        found = self._find(place)
        for key, value in (preconditions or {}).items():
            if found["metadata"][key] != value:
                self._conflict(place, f"Precondition failed: {key} in precondition: {value}, {key} "
                               f"in object meta: {found['metadata'][key]}")  # fmt: skip
        del self._objects[_key(place.plural, found["metadata"])]
        self.version += 1
        gone = copy.deepcopy(found)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(WatchEvent(self.version, "DELETED", place.plural, gone, found))
        self._delete_owned(found["metadata"]["uid"])
        return gone

    def _delete_owned(self, owner: str) -> None:
        for plural, namespace, name in [*self._objects]:
            owners = self._objects[plural, namespace, name]["metadata"].get("ownerReferences", ())
            if any(each["uid"] == owner for each in owners):
                self.delete(ApiPath(plural, namespace, name))

    def _put(
        self,
        place: ApiPath,
        key: tuple[str, str, str],
        made: Object,
        before: Object | None,
        now: str,
    ) -> Object:
        kind = KINDS[place.plural]
        made["apiVersion"], made["kind"] = kind.api_version, kind.name
        if place.plural == "resourceslices":
            _drop_unknown_fields(made)
        if place.plural == "resourceclaims" and not place.subresource:
            set_claim_defaults((made.get("spec") or {}).get("devices") or {})
        self.admit(place.plural, made)
        if problems := _problems(place.plural, made, before):
            self._invalid(place, made["metadata"]["name"], problems)
        if place.plural == "resourceslices":
            _set_server_fields(made, now)
        if before is not None and made == before:
            return copy.deepcopy(made)
        if before is not None and made.get("spec") != before.get("spec"):
            made["metadata"]["generation"] += 1
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self._objects[key] = made
        kind_of_event = "MODIFIED" if before else "ADDED"
        self.events.append(WatchEvent(self.version, kind_of_event, place.plural, made, before))
        return copy.deepcopy(made)

    def _find(self, place: ApiPath) -> Object:
        namespace = place.namespace if KINDS[place.plural].is_namespaced else ""
        try:
            return self._objects[place.plural, namespace, place.name]
        except KeyError:
            problem = f'{_resource(place)} "{place.name}" not found'
            raise ApiRefused(f"get {place.plural}", 404, "NotFound", problem) from None

    def _conflict(self, place: ApiPath, problem: str) -> None:
        text = f'Operation cannot be fulfilled on {_resource(place)} "{place.name}": {problem}'
        raise ApiRefused(f"change {place.plural}", 409, "Conflict", text)

    def _invalid(self, place: ApiPath, name: str, problems: list[str]) -> None:
        kind = KINDS[place.plural]
        shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        text = f'{kind.name}.{kind.group} "{name}" is invalid: {shown}'
        raise ApiRefused(f"write {place.plural}", 422, "Invalid", text)


def _problems(plural: str, made: Object, before: Object | None) -> list[str]:
    if plural == "resourceslices":
        return slice_problems(made, before)
    if plural == "resourceclaims":
        return claim_problems(made, before)
    return class_problems(made) if plural == "deviceclasses" else []


def _drop_unknown_fields(made: Object) -> None:
    """Remove unknown fields from the devices of a ResourceSlice, as an API server does."""
    for device in made["spec"].get("devices") or ():
        for name in device.keys() - _DEVICE_FIELDS:
            del device[name]


def _set_server_fields(made: Object, now: str) -> None:
    """Set `timeAdded` of taints, and write quantities in their canonical form."""
    for device in made["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)
        for capacity in (device.get("capacity") or {}).values():
            capacity["value"] = canonical(capacity["value"])


def _key(plural: str, metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    namespace = metadata.get("namespace", "") if KINDS[plural].is_namespaced else ""
    return plural, namespace, metadata["name"]


def _resource(place: ApiPath) -> str:
    group = KINDS[place.plural].group
    return f"{place.plural}.{group}" if group else place.plural


def _suffix(number: int) -> str:
    made = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        made = _LETTERS[digit] + made
    return made
