"""Another task of the event loop, which sees whether long work lets it run."""

import asyncio
from typing import Self


class Turns:
    """Counts the turns of another task, while the context lasts."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)
