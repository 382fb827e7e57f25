"""Two instances of a driver on a node: a rolling update, and the sockets of a killed instance."""

import asyncio
import fcntl
import os
import socket
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.dra import claim_lock
from kubedevices.dra.claim_lock import ClaimLock
from kubedevices.dra.driver import DraDriver
from kubedevices.dra.names import DRIVER_LIMIT
from kubedevices.dra.options import DraSettings
from kubedevices.errors import PreparedUnwritable, SocketPathTooLong
from kubedevices.plugin.timing import Timing
from tests.dra.cluster import OneNode, claim_of
from tests.dra.test_driver import DRIVER, UID, Rig, Widgets
from tests.waiting import until

OLD, NEW = ["w-0", "w-1"], ["w-0", "w-1", "w-2"]


@pytest.fixture
def rig(short_dir: Path, server: OneNode) -> Rig:
    server.give("one", claim_of(UID, "w-1"))
    return Rig(short_dir, server)


def newer() -> Widgets:
    return Widgets(*(kd.Device(name, env={"W": name}) for name in NEW))


async def test_a_newer_instance_takes_over_and_the_older_comes_back(rig: Rig) -> None:
    """The kubelet calls both instances, and each knows the claims of the other."""
    async with rig.driver() as older:
        await rig.register()
        await until(lambda: rig.api.devices == [OLD])
        async with rig.driver(newer()) as latest:
            await until(lambda: rig.api.devices == [NEW])
            assert older.sockets.registration.exists(), "no kubelet has the newer yet"
            await rig.register(latest.sockets.registration)
            await until(lambda: not older.sockets.registration.exists())
            assert older.has_started
            assert not older.is_registered
            await until(lambda: older.reason_to_keep("w-2"), timeout=10)
            asked = older.requests["get", "nodes"]
            for first, second in ((older, latest), (latest, older)):
                prepared = await rig.call("NodePrepareResources", first.sockets.service)
                assert not prepared.error
                await until(
                    lambda: (
                        older.reason_to_keep("w-1")
                        and latest.reason_to_keep("w-1") == "a claim has it"
                    )
                )
                assert await rig.call("NodePrepareResources", second.sockets.service) == prepared
                assert not (await rig.call("NodeUnprepareResources", second.sockets.service)).error
                assert not [*rig.cdi_dir.iterdir()]
            rig.scanner.devices.append(kd.Device("old-only"))
            rig.scanner.trigger()
            await until(lambda: older.offer is not None and len(older.offer.devices) == 3)
            assert rig.api.devices == [NEW], "one of them writes slices"
            assert older.requests["get", "nodes"] == asked, "the other does not even begin to"
        await until(older.sockets.registration.exists)
        await until(lambda: rig.api.devices == [[*OLD, "old-only"]])


async def test_an_older_instance_that_ends_keeps_the_files_of_the_newer(rig: Rig) -> None:
    """In the order of a DaemonSet that starts the new pod first."""
    old = asyncio.Event()

    async def run_old() -> None:
        async with rig.driver() as driver:
            await rig.register(driver.sockets.registration)
            old.set()
            await ends.wait()

    ends, running = asyncio.Event(), asyncio.create_task(run_old())
    await old.wait()
    async with rig.driver(newer()) as latest:
        await rig.register(latest.sockets.registration)
        await rig.call("NodePrepareResources")
        ends.set()
        await running
        followers = [each for each in asyncio.all_tasks() if each.get_name().startswith(DRIVER)]
        assert not followers, "the older follows the newer no more"
        assert latest.has_started
        assert rig.service == latest.sockets.service
        assert not (await rig.call("NodePrepareResources")).error
        (file,) = rig.cdi_dir.iterdir()
        assert '"W=w-1"' in file.read_text()
        await until(lambda: rig.api.devices == [NEW])


async def test_an_instance_that_starts_beside_a_newer_one_stands_by_at_once(rig: Rig) -> None:
    """It writes no slice and has no registration socket, not even for a moment."""
    older = DraDriver(rig.scanner, domain=DRIVER, **rig.options)
    async with rig.driver(newer()) as latest:
        await rig.register(latest.sockets.registration)
        await until(lambda: rig.api.devices == [NEW])
        running = asyncio.create_task(older.run(), name="older")
        await until(lambda: older.has_started)
        assert not older.requests
        assert not older.sockets.registration.exists()
        older.stop()
        await running


async def test_an_instance_stands_by_for_as_long_as_a_newer_one_is_registered(rig: Rig) -> None:
    """Longer than it would wait for a newer instance that no kubelet registers."""
    rig.options["timing"] = Timing(
        look_interval=0.05, take_over_timeout=0.1, newer_instance_timeout=0.1
    )
    now = asyncio.get_running_loop().time
    async with rig.driver() as older, rig.driver(newer()) as latest:
        await rig.register(latest.sockets.registration)
        await until(lambda: not older.sockets.registration.exists())
        left = now()
        await until(lambda: now() > left + 0.4)
        assert not older.sockets.registration.exists()


async def test_a_newer_instance_ends_without_waiting_for_the_older(rig: Rig) -> None:
    """The older waits for this end in a call that never ends by itself."""
    rig.options["timing"] = Timing(look_interval=0.05, exit_grace=600.0)
    async with rig.driver() as older, asyncio.timeout(20):
        async with rig.driver(newer()) as latest:
            await rig.register(latest.sockets.registration)
            await until(lambda: not older.sockets.registration.exists())
        await until(older.sockets.registration.exists)


async def test_sockets_of_a_killed_instance_are_removed(rig: Rig) -> None:
    """The kubelet would dial them. Sockets of live instances stay."""
    async with rig.driver() as driver:
        names = [driver.sockets.service, driver.sockets.registration]
    dead = [
        path.with_name(path.name.replace(path.suffixes[-2], ".0000000000001")) for path in names
    ]
    stranger = names[1].with_name("another.com-reg.sock")
    for path in (*dead, stranger):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    async with rig.driver() as driver:
        await until(lambda: not any(path.exists() for path in dead))
        assert stranger.exists()
        assert driver.has_started


def leave_socket(path: Path, *, is_young: bool = False) -> None:
    """Leave a socket as a killed process does; a young one may be of a process that starts."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    os.utime(path, (2**32, 2**32) if is_young else (1, 1))


async def test_sockets_of_an_instance_that_is_killed_later_are_removed(rig: Rig) -> None:
    """At the next change of instances; each socket stays while it is young."""
    async with rig.driver() as driver:
        own = driver.sockets.registration
        own.with_name(own.name.replace(own.suffixes[-2], ".no-instance")).touch()
        for first, second in ((False, False), (True, False), (False, True)):
            paths = [
                path.with_name(path.name.replace(path.suffixes[-2], ".0000000000001"))
                for path in (driver.sockets.service, driver.sockets.registration)
            ]
            for path, is_young in zip(paths, (first, second), strict=True):
                leave_socket(path, is_young=is_young)
            await rig.register(own)
            await until(lambda: [each.exists() for each in paths] == [first, second])  # noqa: B023
            for path in paths:
                path.unlink(missing_ok=True)


async def test_sockets_with_usual_names_of_a_killed_driver_are_removed(rig: Rig) -> None:
    """Of this driver only. A socket that is young or in use, and other files, stay."""
    first, second, third, young = (f"0000000{n}-0000-4000-8000-000000000000" for n in range(4))
    rig.registry.mkdir(parents=True)
    dead = [rig.registry / f"example.com-{first}-reg.sock", rig.registry / "example.com-reg.sock"]
    stay = [
        rig.registry / name
        for name in (
            f"another.com-{first}-reg.sock",
            f"example.com-a-{first}-reg.sock",
            "example.com-other-reg.sock",
            f"example.com-{young}-reg.sock",
        )
    ]
    for path in (*dead, *stay):
        leave_socket(path, is_young=young in path.name)
    file = rig.registry / f"example.com-{second}-reg.sock"
    file.touch()
    os.utime(file, (1, 1))
    live = rig.registry / f"example.com-{third}-reg.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(live))
        listening.listen()
        os.utime(live, (1, 1))
        async with rig.driver():
            await until(lambda: not any(path.exists() for path in dead))
            assert all(path.exists() for path in (*stay, file, live))


@pytest.mark.parametrize("length", range(8, DRIVER_LIMIT + 1, 5))
def test_sockets_of_long_names_are_shortened(length: int) -> None:
    """Linux binds paths of 107 bytes; two drivers never share a path."""
    settings = DraSettings(node_name="n")
    directory = settings.kubelet_dir / "plugins"
    paths = set()
    for last in "ab":
        driver = "x" * (length - 5) + f"{last}.com"
        service = settings.service_socket(driver)
        assert service.parent.parent == directory
        assert len(bytes(service)) <= SocketPathTooLong.limit
        assert len(bytes(settings.registration_socket(driver))) <= SocketPathTooLong.limit
        paths |= {service, settings.data_dir(driver)}
    assert len(paths) == 4


def test_a_path_that_cannot_be_shortened_is_an_error() -> None:
    """The error has the path and advice."""
    settings = DraSettings(node_name="n", kubelet_dir=Path("/" + "k" * 70))
    with pytest.raises(SocketPathTooLong, match=r"k/plugins/.*--root-dir"):
        settings.service_socket("example.com")


async def test_one_process_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    """A dead process releases the lock; a removed file is created again."""
    first, second = (ClaimLock(tmp_path / "d" / "lock") for _ in range(2))
    order = []

    async def use(lock: ClaimLock, name: str) -> None:
        async with lock:
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

    await asyncio.gather(*(use(lock, f"{i}") for i in range(8) for lock in (first, second)))
    assert order[::2] == order[1::2]
    (tmp_path / "d" / "lock").unlink()
    await use(first, "last")


async def test_a_lock_that_is_never_released_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet repeats its call; no attempt leaves the file open."""
    monkeypatch.setattr(claim_lock, "LOCK_LIMIT", 0.01)
    first, second = (ClaimLock(tmp_path / "lock") for _ in range(2))
    async with first:
        before = len([*Path("/proc/self/fd").iterdir()])
        with pytest.raises(
            PreparedUnwritable, match=rf"process {os.getpid()} \(.* has held the lock"
        ):
            await second.__aenter__()
        assert len([*Path("/proc/self/fd").iterdir()]) == before
    async with second:
        pass


async def test_a_lock_on_a_file_that_was_replaced_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before it was locked: another process would lock the new file."""
    path, lock, removals = tmp_path / "lock", fcntl.flock, [1]

    def remove_first(file: int, how: int) -> None:
        if removals:
            path.unlink()
            path.touch()
            removals.clear()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    async with ClaimLock(path):
        monkeypatch.setattr(claim_lock, "LOCK_LIMIT", 0.01)
        with pytest.raises(PreparedUnwritable):
            await ClaimLock(path).__aenter__()
