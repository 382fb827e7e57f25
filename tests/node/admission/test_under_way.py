"""Who lacks devices waits for what is under way, and for nothing else."""

import asyncio
import contextlib

from kubedevices.errors import KubedevicesError
from kubedevices.node.admission.order import UnderWay
from tests.waiting import until

WIDGET, GADGET = "example.com/widget", "example.com/gadget"


async def waits(under_way: UnderWay, *resources: str) -> asyncio.Task[bool]:
    """Begin to wait for devices of `resources`."""
    task = asyncio.create_task(under_way.may_free(resources))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_no_devices_may_be_freed_without_an_admission_of_the_resource() -> None:
    """Neither at first, nor for other resources, nor after the end."""
    under_way = UnderWay()
    assert not await under_way.may_free([WIDGET])
    with under_way.admission([GADGET]):
        assert not await under_way.may_free([WIDGET])
    assert not await under_way.may_free([GADGET])


async def test_a_failed_admission_wakes_waiters_for_its_devices() -> None:
    """At once, also when others are still under way; whoever wants other devices sleeps on."""
    under_way, order = UnderWay(), []
    with under_way.admission([WIDGET]), under_way.admission([GADGET]):
        with contextlib.suppress(KubedevicesError), under_way.admission([WIDGET, "cpu"]):
            first, second = [await waits(under_way, WIDGET) for _ in range(2)]
            other = await waits(under_way, GADGET)
            for name, task in (("first", first), ("second", second)):
                task.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
            raise KubedevicesError
        assert all(await asyncio.gather(first, second))
        assert order == ["first", "second"]
        assert not other.done()
    assert await other


async def test_only_the_last_successful_admission_wakes_waiters() -> None:
    """What it took is not free; with a thousand waiting each would plan again for nothing."""
    under_way = UnderWay()
    with under_way.admission([WIDGET]):
        with under_way.admission([WIDGET]):
            waiting = await waits(under_way, WIDGET)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting


async def test_a_release_wakes_as_soon_as_it_has_succeeded() -> None:
    """A release that fails frees nothing: then it is the last one that wakes."""
    under_way = UnderWay()
    with under_way.admission([WIDGET]):
        with under_way.release([WIDGET]):
            waiting = await waits(under_way, WIDGET)
        assert await waiting
        with contextlib.suppress(KubedevicesError), under_way.release([WIDGET]):
            waiting = await waits(under_way, WIDGET)
            raise KubedevicesError
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting


async def test_a_cancelled_waiter_is_forgotten() -> None:
    """Nothing is left of it, and the end of what it waited for does no harm."""
    under_way = UnderWay()
    with under_way.admission([WIDGET]):
        waiting = await waits(under_way, WIDGET)
        waiting.cancel()
        await until(waiting.done)
        assert repr(under_way) == "<UnderWay with 1 open, 0 waiting>"
    assert repr(under_way) == "<UnderWay with 0 open, 0 waiting>"
