"""Lists that somebody does something with on their way to a stream."""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import kubedevices as kd
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, healthy, widgets


async def first_only(resource: str, lists: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    assert resource == RESOURCE
    yield await anext(lists)


async def test_the_end_of_wrapped_lists_is_the_end_of_the_stream(short_dir: Path) -> None:
    """And the plugin registers again, as after any lost stream."""
    scanner = Widgets(widget=widgets("w1"))
    async with (
        FakeKubelet(short_dir) as kubelet,
        kd.serve(
            scanner, domain=DOMAIN, socket_dir=short_dir, timing=QUICK, wrap_lists=first_only
        ) as runner,
    ):
        await until(lambda: len(kubelet.accepted) > 2)
        assert {tuple(each.devices.items()) for each in kubelet.accepted[:2]} == {
            tuple(healthy("w1").items())
        }
        assert all(len(each.lists) == 1 for each in kubelet.accepted[:2])
        await until(lambda: len(runner.servers["widget"].streams) <= 1)
