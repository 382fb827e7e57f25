"""Correct plugins with unusual habits: `kubedevices check` must not fail them.

python unusual_plugin.py --habit NAME --device-dir DIR [...]
"""

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from tests.check.good_plugin import (
    POLL,
    Device,
    GoodPlugin,
    Refused,
    arguments,
    identity,
    start,
)
from tests.check.listening import accepts


class OneAfterTheOther(GoodPlugin):
    """Two resources; the second calls Register some time after the answer to the first."""

    pause = 0.0

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.is_registered = asyncio.Event()
        self.second = Second(args, self)

    async def keep_serving(self) -> None:
        await asyncio.gather(super().keep_serving(), self.second.keep_serving())

    async def call_register(self) -> None:
        await super().call_register()
        self.is_registered.set()

    async def announce(self) -> None:
        await super().announce()
        self.second.devices = self.devices
        await self.second.announce()

    async def close_server(self, grace: float = 0) -> None:
        await super().close_server(grace)
        self.is_registered.clear()
        if self.stopping.is_set():
            await self.second.close_server(grace)


class Second(GoodPlugin):
    """The second plugin of the same process."""

    resource = "example.com/gadget"

    def __init__(self, args: argparse.Namespace, first: OneAfterTheOther) -> None:
        super().__init__(args)
        self.path = self.path.with_name("example.com-gadget.sock")
        self.devices = self.scan()
        self.first = first

    async def call_register(self) -> None:
        await self.first.is_registered.wait()
        await asyncio.sleep(self.first.pause)
        await super().call_register()


class OneLongAfterTheOther(OneAfterTheOther):
    """The same, with so long a pause that the check expects no further resource."""

    pause = 0.7


class SecondNeverChanges(OneAfterTheOther):
    """Two resources; the devices of the second are always the same."""

    async def announce(self) -> None:
        await GoodPlugin.announce(self)


class RemembersDevices(GoodPlugin):
    """A trigger works only once: devices that were found stay in the list."""

    def scan(self) -> dict[str, Device]:
        return {**self.devices, **super().scan()} if len(self.devices) < 8 else self.devices


class LooksRarely(GoodPlugin):
    """Scans only once; every stream has the list of the start."""

    async def keep_scanning(self) -> None:
        await asyncio.Event().wait()


class RegistersTwiceAfterAWait(GoodPlugin):
    """Dials the kubelet in a loop, so it may register before it sees the new kubelet.sock.

    Then it binds and registers once more; the kubelet has no list of the first time.
    """

    waited = False
    is_first_of_two = False

    async def register(self) -> bool:
        self.waited = not self.kubelet.exists()
        return await super().register()

    async def call_register(self) -> None:
        self.is_first_of_two = self.waited
        await super().call_register()
        self.waited = False

    def device_list(self) -> object:
        if self.is_first_of_two:
            raise RuntimeError("about to bind again")
        return super().device_list()

    async def until_lost(self) -> None:
        if self.is_first_of_two:
            await asyncio.sleep(0.1)
            await self.close_server()
            return
        await super().until_lost()


class AllocatesAfterTheSecondTime(RegistersTwiceAfterAWait):
    """The same, a bit slower: the kubelet has a list, but Allocate gets no connection."""

    def device_list(self) -> object:
        return GoodPlugin.device_list(self)

    async def Allocate(self, request: object, context: object) -> object:  # noqa: N802
        if self.is_first_of_two:
            await asyncio.sleep(1)  # longer than it takes to bind again
        return await super().Allocate(request, context)


class NamedBySecond(GoodPlugin):
    """Has the second of its start in the name of its socket, like generic-device-plugin.

    The clock is the worst there is: a second begins with each socket.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        now = time.time()
        found = {path: now - path.stat().st_mtime for path in self.socket_dir.glob("widget-*")}
        same = [path for path, age in found.items() if age < 1]
        self.path = same[0] if same else self.path.with_name(f"widget-{now}.sock")


class NamedBySecondAndRemoving(NamedBySecond):
    """At start and end it removes any file with its socket name; it watches only kubelet.sock."""

    async def open_server(self) -> None:
        self.path.unlink(missing_ok=True)
        await super().open_server()

    async def until_lost(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            if identity(self.kubelet) != self.registered_at:
                return

    async def close_server(self, grace: float = 0) -> None:
        await super().close_server(grace)
        self.path.unlink(missing_ok=True)


class NamedBySecondAndBinding(NamedBySecond):
    """Removes nothing before it binds: the name is always new."""

    async def open_server(self) -> None:
        if self.path.exists() and not accepts(self.path):
            raise Refused("address already in use")
        await super().open_server()


class KeepsTheMissing(GoodPlugin):
    """Lists a missing device as unhealthy."""

    def scan(self) -> dict[str, Device]:
        found = super().scan()
        gone = Device(self.device_dir / "w0", "Unhealthy")
        return {name: found.get(name, gone) for name in sorted({*self.devices, *found})}


class PoolOfThreads(GoodPlugin):
    """Starts threads with each registration until it has enough, like a Go program."""

    async def call_register(self) -> None:
        if threading.active_count() < 14:
            for _ in range(2):
                threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        await super().call_register()


class WatchesLate(GoodPlugin):
    """Begins to watch files shortly after Register: Intel's framework, kubevirt-gpu."""

    async def until_lost(self) -> None:
        await asyncio.sleep(0.1)
        self.mine, self.registered_at = identity(self.path), identity(self.kubelet)
        await super().until_lost()


class LateOnce(GoodPlugin):
    """Registers at once after each kubelet restart except the second."""

    times = 0

    async def call_register(self) -> None:
        self.times += 1
        if self.times == 3:
            await asyncio.sleep(3.5)
        await super().call_register()


class HearsSigtermLate(GoodPlugin):
    """Handles SIGTERM only shortly after Register."""

    ready_at = 0.0

    async def call_register(self) -> None:
        await super().call_register()
        self.ready_at = time.monotonic() + 0.1

    async def close_server(self, grace: float = 0) -> None:
        if self.stopping.is_set() and time.monotonic() < self.ready_at:
            os._exit(1)
        await super().close_server(grace)


class BothWays(GoodPlugin):
    """Calls Register, and also has its socket in the plugin registry directory, if it exists."""

    async def open_server(self) -> None:
        await super().open_server()
        found = self.socket_dir.parent / "registry" / self.path.name
        if not found.parent.is_dir():
            return
        found.unlink(missing_ok=True)
        os.link(self.path, found)
        self.mine = identity(self.path)  # the hard link changed the time of the file

    def services(self) -> list[Any]:
        return [*super().services(), self.watcher_service()]


class ChoosesByDirectory(GoodPlugin):
    """Uses the plugin watcher if the plugin registry directory exists, else Register."""

    def __init__(self, args: argparse.Namespace) -> None:
        registry = args.socket_dir.parent / "registry"
        if registry.exists():
            args.registry_dir = registry
        super().__init__(args)


class Interchangeable(GoodPlugin):
    """Has places at one device file: each ID, known or not, gets the same complete answer."""

    async def check_ids(self, ids: list[str], context: Any) -> None:
        pass

    def fill(self, answer: Any, ids: list[str]) -> None:
        answer.devices.add(host_path="/dev/null", container_path="/dev/kvm", permissions="rw")


class SpeaksV1Alpha(GoodPlugin):
    """Calls the Register of v1alpha, which no kubelet serves any more, and gives up."""

    register_method = "/deviceplugin.Registration/Register"

    async def register(self) -> bool:
        try:
            return await super().register()
        except Refused:
            os._exit(1)


class RegistersOften(GoodPlugin):
    """Registers again and again, at short intervals: the check must not wait without a limit."""

    async def until_lost(self) -> None:
        await asyncio.wait({asyncio.create_task(super().until_lost())}, timeout=0.1)


HABITS = {
    name: each
    for name, each in vars().items()
    if isinstance(each, type) and issubclass(each, GoodPlugin)
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin that the command line names; return the exit code."""
    parser = arguments()
    parser.add_argument("--habit", required=True, choices=sorted(HABITS))
    args = parser.parse_args(argv)
    return start(HABITS[args.habit], args)


if __name__ == "__main__":
    os._exit(main())
