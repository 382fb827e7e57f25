"""Several things at once, all or nothing: a failure ends the others. For calls to plugins."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def concurrently(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; raise the failure that comes first in order of `work`.

    The others are cancelled and waited for, so nothing of them happens after the return.
    """
    if len(work) == 1:
        return [await work[0]]
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(each) for each in work]
    except BaseExceptionGroup:
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error from None
        raise
    return [task.result() for task in tasks]
