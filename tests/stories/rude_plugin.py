"""A plugin whose every text is harmful to a terminal: IDs, answers, errors and its own output."""

import asyncio
import sys
from pathlib import Path

from kubedevices.errors import RpcError, StatusCode
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
)
from kubedevices.values.device import DeviceSpec, Mount
from tests.fake_plugin import FakePlugin, healthy
from tests.strangers import PLANT

REFUSED = "refused"
"""The plugin answers Allocate of this device by an error."""


def answer(request: AllocateRequest) -> AllocateResponse:
    """Put the harmful text into each field of the answer."""
    ids = [each for container in request.containers for each in container.device_ids]
    if REFUSED in ids:
        raise RpcError(StatusCode.INTERNAL, PLANT)
    everywhere = ContainerAllocateResponse(
        env={"TEXT": PLANT, PLANT: "value"},
        annotations={PLANT: PLANT},
        devices=[DeviceSpec(f"/dev/{PLANT}", f"/dev/{PLANT}", "rw")],
        mounts=[Mount(f"/{PLANT}", f"/{PLANT}")],
    )
    return AllocateResponse([everywhere for _ in request.containers])


async def serve(directory: Path) -> None:
    """Print, register, and serve until the end."""
    print(PLANT, flush=True)
    print(PLANT, file=sys.stderr, flush=True)
    plugin = FakePlugin(directory, devices=healthy(PLANT, "ok"))
    plugin.allocate_answer = answer
    await plugin.start()
    await plugin.register()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
