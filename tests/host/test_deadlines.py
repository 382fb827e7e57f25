"""`kubedevices.host.deadlines`: time limits that hold in every version of Python."""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from kubedevices.host import deadlines

SOURCES = Path(__file__).parents[2] / "src" / "kubedevices"


class OldTimeout:
    """`asyncio.Timeout` of Python 3.11.2, which forgets that the task is being cancelled."""

    def __init__(self, when: float | None) -> None:
        self._inner = asyncio.Timeout(when)
        self.expired = self._inner.expired

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(TimeoutError):
            await self._inner.__aexit__(kind, error, trace)


@pytest.mark.parametrize("kind", [asyncio.Timeout, OldTimeout])
async def test_a_limit_expires_in_a_task_that_is_being_cancelled(kind: Any) -> None:
    """The clean-up after the limit runs, and the task ends as cancelled."""
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with deadlines._Timeout(kind(asyncio.get_running_loop().time())):
                    await asyncio.Event().wait()
            except TimeoutError:
                seen.append("cleaned up")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait({task})
    assert task.cancelled()
    assert seen == ["cleaned up"]


async def test_a_cancelled_body_is_not_a_timeout() -> None:
    """Also if the limit expires at the same time."""

    async def work() -> None:
        async with deadlines.timeout(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_limits_are_those_of_asyncio() -> None:
    """A limit in the past, no limit, and a body that ends in time."""
    for limit in (deadlines.timeout(0), deadlines.timeout_at(0)):
        with pytest.raises(TimeoutError):
            async with limit:
                await asyncio.Event().wait()
    async with deadlines.timeout(None), deadlines.timeout(60):
        await asyncio.sleep(0)


def test_nothing_goes_around_the_module() -> None:
    """`asyncio.timeout` is wrong in the clean-up of a task, with the Python of Debian 12."""
    around = [
        str(file.relative_to(SOURCES))
        for file in SOURCES.rglob("*.py")
        if "asyncio.timeout" in file.read_text()
    ]
    assert around == ["host/deadlines.py"]
