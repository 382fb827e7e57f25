"""A pod that lacks devices waits for admissions and releases of these devices, and for no other."""

import asyncio
import contextlib

from kubedevices.errors import KubedevicesError
from kubedevices.node.admission.concurrency import OngoingWork
from tests.waiting import until

WIDGET, GADGET = "example.com/widget", "example.com/gadget"


async def begin_waiting(ongoing: OngoingWork, *resources: str) -> asyncio.Task[bool]:
    """Begin to wait for devices of `resources`."""
    task = asyncio.create_task(ongoing.may_free(resources))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_no_devices_may_be_freed_without_an_admission_of_the_resource() -> None:
    """Not before an admission, not during one of another resource, and not after the end."""
    ongoing = OngoingWork()
    assert not await ongoing.may_free([WIDGET])
    with ongoing.admission([GADGET]):
        assert not await ongoing.may_free([WIDGET])
    assert not await ongoing.may_free([GADGET])


async def test_a_failed_admission_wakes_waiters_for_its_devices() -> None:
    """The waiters wake at once, also while other admissions are ongoing.

    Waiters for other devices sleep on.
    """
    ongoing, order = OngoingWork(), []
    with ongoing.admission([WIDGET]), ongoing.admission([GADGET]):
        with contextlib.suppress(KubedevicesError), ongoing.admission([WIDGET, "cpu"]):
            first, second = [await begin_waiting(ongoing, WIDGET) for _ in range(2)]
            other = await begin_waiting(ongoing, GADGET)
            for name, task in (("first", first), ("second", second)):
                task.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
            raise KubedevicesError
        assert all(await asyncio.gather(first, second))
        assert order == ["first", "second"]
        assert not other.done()
    assert await other


async def test_only_the_last_successful_admission_wakes_waiters() -> None:
    """A successful admission frees no device.

    Waking a thousand waiters would repeat a thousand plans in vain.
    """
    ongoing = OngoingWork()
    with ongoing.admission([WIDGET]):
        with ongoing.admission([WIDGET]):
            waiting = await begin_waiting(ongoing, WIDGET)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting


async def test_a_successful_release_wakes_waiters_at_once() -> None:
    """A failed release frees nothing: the waiters wake only if no other work is ongoing."""
    ongoing = OngoingWork()
    with ongoing.admission([WIDGET]):
        with ongoing.release([WIDGET]):
            waiting = await begin_waiting(ongoing, WIDGET)
        assert await waiting
        with contextlib.suppress(KubedevicesError), ongoing.release([WIDGET]):
            waiting = await begin_waiting(ongoing, WIDGET)
            raise KubedevicesError
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting


async def test_a_cancelled_waiter_is_removed() -> None:
    """The end of the ongoing work does not touch the cancelled waiter."""
    ongoing = OngoingWork()
    with ongoing.admission([WIDGET]):
        waiting = await begin_waiting(ongoing, WIDGET)
        waiting.cancel()
        await until(waiting.done)
        assert repr(ongoing) == "<OngoingWork with 1 open, 0 waiting>"
    assert repr(ongoing) == "<OngoingWork with 0 open, 0 waiting>"
