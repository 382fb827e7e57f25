"""One device type, from its first devices to its removal: how it fails and how it is updated."""

import asyncio
import re
import socket
from pathlib import Path

import pytest

from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.serving.modes import serve
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, widgets

NAME = "example.com-widget.sock"


def pauses(text: str) -> list[str]:
    """Return the pauses that the log names, in seconds."""
    return re.findall(r"again in (\S+) s or when", text)


async def test_an_isolated_type_is_tried_again_ever_more_rarely(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it was served for a while: then the pauses begin anew."""
    timing = QUICK._replace(isolate_first=0.02, isolate_last=0.08)
    scanner = Widgets(widget=widgets("w1"))
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(short_dir / NAME))
        foreign.listen()
        async with serve(
            scanner, domain=DOMAIN, socket_dir=short_dir, registration="none", timing=timing,
            on_server_error="isolate",
        ) as runner:  # fmt: skip
            # A machine that stands still makes a try look like a time of serving: they begin anew.
            await until(lambda: "0.02 0.04 0.08 0.08" in " ".join(pauses(caplog.text)))
            (short_dir / NAME).rename(short_dir / "foreign")
            await until(lambda: runner.is_serving("widget"))
            await asyncio.sleep(2 * timing.isolate_last)
            caplog.clear()
            (short_dir / "foreign").rename(short_dir / NAME)
            await until(lambda: pauses(caplog.text))
            assert pauses(caplog.text)[0] == "0.02"


async def test_an_update_is_built_once(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list costs a thread and a look into /sys: it is made when devices change and never else."""
    build, built = DeviceListBuilder.build, []

    def count(self: DeviceListBuilder, devices: object) -> object:
        built.append(devices)
        return build(self, devices)  # type: ignore[arg-type]

    monkeypatch.setattr(DeviceListBuilder, "build", count)
    scanner = Widgets(widget=widgets("w1"))
    async with serve(scanner, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK):
        await kubelet.wait_for(RESOURCE, 1)
        scanner.show(widget=widgets("w1", "w2"))
        await kubelet.wait_for(RESOURCE, 2)
        await asyncio.sleep(0.1)
        assert len(built) == 2
