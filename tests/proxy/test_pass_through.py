"""What passes through a proxy without rules is equal in both directions.

Bytes go in at one end and are compared at the other: messages of chance, with unknown fields at
every level. `test_recording` and `test_replay` have the traffic of a record.
"""

import asyncio
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubedevices.kubelet_api import convert, services
from kubedevices.kubelet_api.protobuf import Field, Message, block, integer, text, text_map, texts
from kubedevices.kubelet_api.services import device_plugin_methods
from kubedevices.wire.unix_grpc import UnaryMethod
from tests.fake_kubelet import FakeKubelet
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.proxy_rig import ask, first_list, proxied, ruled
from tests.waiting import until

CALLS: dict[str, tuple[Message[Any], Message[Any]]] = {
    services.ALLOCATE: (convert.ALLOCATE_REQUEST, convert.ALLOCATE_RESPONSE),
    services.GET_PREFERRED_ALLOCATION: (convert.PREFERRED_REQUEST, convert.PREFERRED_RESPONSE),
    services.PRE_START_CONTAINER: (convert.PRE_START_REQUEST, convert.PRE_START_RESPONSE),
}
WORDS = ("", "a", "GPU-1", "Ω/ü", "x" * 200)
UNKNOWN = b"\xba\x01"  # the tag of field 23, of bytes


def made(kind: Message[Any], luck: Random) -> bytes:
    """Return a message of chance as every library writes it."""
    parts = [_field(each, luck) for each in kind.by_number]
    if luck.random() < 0.3:
        content = luck.randbytes(luck.randrange(100))
        parts.append(UNKNOWN + bytes([len(content)]) + content)
    return b"".join(parts)


def _field(field: Field, luck: Random) -> bytes:
    if field.of is not None:
        count = luck.randrange(4) if field.is_repeated else luck.randrange(2)
        return b"".join(block(field.number, made(field.of, luck)) for _ in range(count))
    if field.kind == "texts":
        return texts(field.number, luck.choices(WORDS, k=luck.randrange(4)))
    if field.kind == "map":
        keys = luck.sample(WORDS, luck.randrange(4))
        return text_map(field.number, {each: luck.choice(WORDS) for each in keys})
    if field.kind == "text":
        return text(field.number, luck.choice(WORDS))
    return integer(field.number, luck.choice((0, 1)))


class Echo:
    """A plugin of bytes: notes each question, and has an answer for it."""

    def __init__(self, plugin: FakePlugin) -> None:
        self.asked: set[tuple[str, bytes]] = set()
        self.answers: dict[tuple[str, bytes], bytes] = {}
        methods = dict(device_plugin_methods(plugin))
        for method in CALLS:
            methods[method] = UnaryMethod(partial(self._say, method))
        plugin._server.methods = methods

    def _say(self, method: str, payload: bytes) -> bytes:
        self.asked.add((method, payload))
        return self.answers[method, payload]


@pytest.mark.parametrize("seed", range(4))
async def test_random_messages_are_equal_at_both_ends(short_dir: Path, seed: int) -> None:
    """Questions as the plugin gets them, answers as the kubelet does; sixteen at once."""
    luck = Random(seed)
    async with proxied(short_dir, rules=ruled(repair=False)) as rig:
        plugin = FakePlugin(
            rig.inside, devices=healthy("a"), pre_start=True, preferred=lambda _: ()
        )
        echo = Echo(plugin)
        async with plugin:
            await plugin.register()
            served = await rig.served(1)
            for _ in range(4):
                echo.asked.clear()
                for _ in range(16):
                    method = luck.choice([*CALLS])
                    request, response = CALLS[method]
                    echo.answers[method, made(request, luck)] = made(response, luck)
                got = await asyncio.gather(*(ask(served, *each) for each in echo.answers))
                assert got == [*echo.answers.values()]
                assert echo.asked == echo.answers.keys()
                echo.answers.clear()


def has_come(kubelet: FakeKubelet, device_id: str) -> bool:
    return device_id in {each.id for each in kubelet.lists(RESOURCE)[-1]}


async def test_random_lists_are_equal_at_both_ends(short_dir: Path) -> None:
    """Whatever they say about their devices."""
    luck = Random(1)
    async with proxied(short_dir, rules=ruled(repair=False)) as rig:
        plugin = await rig.plugin(*healthy("a"))
        served = await rig.served(1)
        for number in range(12):
            message = made(convert.DEVICE_LIST, luck) + convert.DEVICE_LIST.to_wire(
                healthy(f"n{number}", "last")
            )
            await plugin.send_bytes(message)
            await until(partial(has_come, rig.kubelet, f"n{number}"))
            assert await first_list(served) == message
