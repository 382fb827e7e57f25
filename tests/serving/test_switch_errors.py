"""A switch with a part that fails ends with the error, so that its process is started again."""

from typing import Any

import pytest

from kubedevices.dra.driver import DraDriver
from kubedevices.plugin.runner import PluginRunner
from kubedevices.serving.handover import Handover
from kubedevices.serving.mode_source import ModeFile
from tests.serving.node_rig import NodeRig
from tests.waiting import until


@pytest.mark.parametrize(
    ("part", "method"),
    [
        (ModeFile, "run"),
        (Handover, "decide"),
        (PluginRunner, "run"),
        (DraDriver, "run"),
    ],
)
async def test_an_error_of_a_part_ends_the_switch(
    rig: NodeRig, part: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part stays dead while the others go on; the error is that of the part."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a mistake of ours")

    async def fail_later(*_: Any) -> None:
        fail()

    monkeypatch.setattr(part, method, fail if part is Handover else fail_later)
    if part is DraDriver:
        rig.choose("dra")
    with pytest.raises(ZeroDivisionError, match="a mistake of ours"):
        async with rig.serving() as switch:
            await until(lambda: switch.plugin is None)
