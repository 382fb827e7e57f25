"""Keeps the ResourceSlices of the node right: a thread that writes, and one that watches."""

import threading
from collections.abc import Callable
from typing import Any

from tests.check.grpc_driver.api import SLICES, Api, ApiError
from tests.check.grpc_driver.inventory import Inventory
from tests.check.grpc_driver.slices import Pool, equal

Object = dict[str, Any]
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0


class Publisher:
    """Lists, compares and writes whenever a device or a slice has changed."""

    def __init__(
        self, api: Api, inventory: Inventory, pool: Pool, log: Callable[[str], None]
    ) -> None:
        self.api, self.inventory, self.pool, self.log = api, inventory, pool, log
        self.woken = threading.Event()
        self.newest = 0
        self._accepted: dict[int, tuple[Object, Object]] = {}
        self._version = ""
        self._has_version = threading.Event()
        inventory.on_change.append(self.wake)

    def start(self) -> None:
        """Publish from now on."""
        threading.Thread(target=self._keep_published, name="publish", daemon=True).start()
        threading.Thread(target=self._keep_watching, name="watch", daemon=True).start()

    def wake(self) -> None:
        """Compare again."""
        self.woken.set()

    def registered(self) -> None:
        """A kubelet has accepted the driver: the watch sees what that kubelet does to slices."""

    # ------------------------------------------------------------ writing

    def _keep_published(self) -> None:
        failures = 0
        while True:
            self.woken.clear()
            try:
                self.sync()
                failures = 0
            except ApiError as error:
                failures += 1
                self.failed(error, failures)
            else:
                self.until_woken()

    def until_woken(self) -> None:
        """Wait for a change."""
        self.woken.wait()

    def failed(self, error: ApiError, failures: int) -> None:
        """Wait before the next attempt; what changes meanwhile does not make it sooner."""
        self.log(f"publishing: {error}")
        pause = min(_FIRST_PAUSE * 2 ** (failures - 1), _LAST_PAUSE)
        self.rest(max(pause, error.retry_after))

    def rest(self, seconds: float) -> None:
        """Wait, whatever happens."""
        threading.Event().wait(seconds)

    def sync(self) -> None:
        """Compare once, and write what differs; raises `ApiError`."""
        listed = self.api.slices()
        self._version = listed["metadata"]["resourceVersion"]
        self._has_version.set()
        self.write(listed["items"], self.parts())

    def parts(self) -> list[list[Object]]:
        """Return the devices of each slice."""
        entries = [each.entry(self.pool.driver) for each in self.inventory.devices.values()]
        return self.pool.parts(entries)

    def write(self, found: list[Object], parts: list[list[Object]]) -> None:
        """Write what differs; obsolete slices first."""
        todo = self.pool.writes(map(self.as_sent, found), parts, self.newest)
        for each in todo.delete:
            self.delete(each)
        for number, made in todo.update:
            self.update(number, made)
        if todo.create:
            uid = self.node_uid()
            for number, spec in todo.create:
                made = self.pool.new(number, spec, uid)
                self.keep(number, spec, self.api.call("POST", SLICES, made))

    def node_uid(self) -> str:
        """Return the UID of the Node: another one if the Node was made again."""
        return str(self.api.node(self.pool.node)["metadata"]["uid"])

    def update(self, number: int, made: Object) -> None:
        """Replace a slice."""
        answer = self.api.call("PUT", f"{SLICES}/{made['metadata']['name']}", made)
        self.keep(number, made["spec"], answer)

    def delete(self, found: Object) -> None:
        """Delete a slice as we have seen it, and no newer one."""
        metadata = found["metadata"]
        known = {key: metadata[key] for key in ("uid", "resourceVersion")}
        try:
            path = f"{SLICES}/{metadata['name']}"
            self.api.call("DELETE", path, {"preconditions": known})
        except ApiError as error:
            if error.status != 404:
                raise

    def keep(self, number: int, sent: Object, answer: Object) -> None:
        """Remember what the server made of a slice: it drops the fields of a disabled gate."""
        self.newest = max(self.newest, sent["pool"]["generation"])
        if not equal(sent, answer["spec"]):
            self.log(f"the server keeps only a part of slice {number}")
            self._accepted[number] = (sent, answer["spec"])

    def as_sent(self, found: Object) -> Object:
        """Return a slice with what we sent, if it is as the server has answered."""
        for sent, accepted in self._accepted.values():
            if found["spec"] == accepted:
                return found | {"spec": sent}
        return found

    # ------------------------------------------------------------ watching

    def _keep_watching(self) -> None:
        failures = 0
        while True:
            self._has_version.wait()
            self._has_version.clear()
            try:
                for event in self.api.watch(self._version):
                    failures = 0
                    self.seen(event)
            except ApiError as error:
                if error.status == 410:
                    self.too_old()
                else:
                    failures += 1
                    self.log(f"watching: {error}")
            if failures:
                self.rest(min(_FIRST_PAUSE * 2 ** (failures - 1), _LAST_PAUSE))
            # What happened since the watch has ended is in the next list.
            self._has_version.clear()
            self.wake()

    def too_old(self) -> None:
        """The version of the watch has expired: a new list has a newer one."""

    def seen(self, event: Object) -> None:
        """Compare after each change of a slice, also of our own."""
        self.wake()
