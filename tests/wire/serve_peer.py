"""A server of any kind in a process of its own: `python -m tests.wire.serve_peer KIND PATH`.

Says `ready` once it listens. Tests kill or freeze it.
"""

import asyncio
import sys
from pathlib import Path

from tests.wire.behaviour import Behaviour
from tests.wire.peer_servers import SERVERS


async def serve(kind: str, path: Path) -> None:
    """Serve until killed."""
    server = SERVERS[kind](Behaviour())
    await server.start(path)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
