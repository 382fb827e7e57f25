"""What a program is told when a simulator cannot take its step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import KubedevicesError, UsageError
from kubedevices.rules.step_control import StepControl, tell


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("no such device"), UsageError, "no such device"),
        (UsageError("no such key"), UsageError, "no such key"),
        (RuntimeError("a bug"), KubedevicesError, "SOCKET: internal error: RuntimeError: a bug"),
        (KubedevicesError("the disk is full"), KubedevicesError, "SOCKET: the disk is full"),
    ],
)
async def test_a_step_that_is_wrong_is_not_one_that_failed(
    short_dir: Path, error: Exception, kind: type[Exception], text: str
) -> None:
    """Who asked can mend the first; the second names the simulator."""

    def take_step(_: Mapping[str, Any]) -> int:
        raise error

    socket = short_dir / "c.sock"
    control = StepControl(socket, take_step, dict)
    await control.start()
    try:
        with pytest.raises(KubedevicesError) as caught:
            await tell(socket, {})
    finally:
        await control.stop()
    assert (type(caught.value), str(caught.value)) == (kind, text.replace("SOCKET", str(socket)))
