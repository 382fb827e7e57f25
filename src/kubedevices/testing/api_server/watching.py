"""The events of watches. asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from kubedevices.errors import ApiRefused
from kubedevices.host import deadlines
from kubedevices.testing.api_server.http import ApiRequest, status_of
from kubedevices.testing.api_server.selections import Selected, selection
from kubedevices.testing.api_server.store import Store, WatchEvent
from kubedevices.values.scheduling.kinds import KINDS, ApiPath, Object

_WATCH_SECONDS = 1800.0
_BOOKMARK_SECONDS = 60.0
_TRUE = ("1", "true", "True")


class Watches:
    """All watches of a server on what `store` returns; `started` is their number so far."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self.started = 0
        self._store = store
        self._changed = asyncio.Event()
        self._endings: dict[str, bytes] = {}

    def wake(self) -> None:
        """Let all watches look for events."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    def end(self, plural: str, last: bytes = b"") -> None:
        """End one watch of a kind after these bytes: whole lines, or a part of one.

        It tells no change that nobody has seen yet.
        """
        self._endings[plural] = last
        self.wake()

    async def events(self, request: ApiRequest, place: ApiPath) -> AsyncIterator[Object | bytes]:
        """Yield events until the caller's `timeoutSeconds`, or until the version is too old."""
        self.started += 1
        query = request.query
        selected = selection(place.plural, query)
        has_bookmarks = query.get("allowWatchBookmarks") in _TRUE
        at = int(query.get("resourceVersion") or 0)
        if _wants_all(query):
            at = self._store().version
            for each in self._store().select(place, selected):
                yield {"type": "ADDED", "object": each}
            if "sendInitialEvents" in query:
                yield _bookmark(place, at, is_first=True)
        loop = asyncio.get_running_loop()
        end = loop.time() + float(query.get("timeoutSeconds", _WATCH_SECONDS))
        bookmark = loop.time() + _BOOKMARK_SECONDS if has_bookmarks else end
        at = at or self._store().version
        while True:
            changed = self._changed
            try:
                events = self._store().since(at)
            except ApiRefused as error:  # sent as an event; the status of the answer is 200
                problem = status_of(error.status, error.reason, error.message)
                yield {"type": "ERROR", "object": problem}
                return
            if (last := self._endings.pop(place.plural, None)) is not None:
                yield last
                return
            for event in events:
                at = event.version
                if made := _watched(event, place, selected):
                    yield made
            if not await deadlines.until(min(end, bookmark), changed.wait()):
                if has_bookmarks:
                    yield _bookmark(place, at)
                if loop.time() >= end:
                    return
                bookmark = loop.time() + _BOOKMARK_SECONDS


def _wants_all(query: Mapping[str, str]) -> bool:
    """Whether a watch begins with all objects, as events."""
    if "sendInitialEvents" in query:
        return query["sendInitialEvents"] in _TRUE
    return int(query.get("resourceVersion") or 0) == 0


def check_watch(query: Mapping[str, str]) -> None:
    """Refuse a combination of parameters that a server refuses; raises `ApiRefused`."""
    if query.get("sendInitialEvents") in _TRUE:
        if query.get("resourceVersionMatch") != "NotOlderThan":
            _refuse("resourceVersionMatch: Forbidden: must be NotOlderThan with sendInitialEvents")
        if query.get("allowWatchBookmarks") not in _TRUE:
            _refuse("sendInitialEvents: Forbidden: sendInitialEvents needs allowWatchBookmarks")
    elif query.get("resourceVersionMatch") and "sendInitialEvents" not in query:
        _refuse("resourceVersionMatch: Forbidden: is forbidden for watch unless sendInitialEvents")


def _refuse(problem: str) -> None:
    text = f'ListOptions.meta.k8s.io "" is invalid: {problem}'
    raise ApiRefused("watch", 422, "Invalid", text)


def _bookmark(place: ApiPath, version: int, *, is_first: bool = False) -> Object:
    kind = KINDS[place.plural]
    metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
    if is_first:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    made = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
    return {"type": "BOOKMARK", "object": made}


def _watched(event: WatchEvent, place: ApiPath, selected: Selected) -> Object | None:
    """Return the event as a watch sends it; None if the watch does not select the object.

    A change may add the object to the selection (ADDED) or remove it (DELETED).
    """
    if event.plural != place.plural:
        return None
    metadata = event.object["metadata"]
    if place.namespace and metadata.get("namespace") != place.namespace:
        return None
    if place.name and metadata["name"] != place.name:
        return None
    was_selected = event.before is not None and selected(event.before)
    if event.type == "DELETED":
        kind = "DELETED" if was_selected else ""
    elif selected(event.object):
        kind = "MODIFIED" if was_selected else "ADDED"
    else:
        kind = "DELETED" if was_selected else ""
    return {"type": kind, "object": event.object} if kind else None
