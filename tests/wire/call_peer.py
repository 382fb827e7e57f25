"""A client of any kind in a process of its own: `python -m tests.wire.call_peer KIND PATH`.

Reads one message of Watch, says `ready`, and stays. Tests kill or freeze it.
"""

import asyncio
import sys
from pathlib import Path

from tests.wire.peer_clients import CLIENTS


async def call(kind: str, path: Path) -> None:
    """Hold a stream until killed."""
    client = await CLIENTS[kind].dial(path)
    async for _ in client.stream("Watch", b"x"):
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(call(sys.argv[1], Path(sys.argv[2])))
