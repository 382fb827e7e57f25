"""The mode of a node in one of its labels."""

import pytest

from kubedevices.errors import UsageError
from kubedevices.serving import mode_source
from kubedevices.testing.api_server import HANG_UP
from tests.serving.node_rig import BOTH, NodeRig
from tests.waiting import until

LABEL = "example.com/device-mode"


@pytest.fixture(autouse=True)
def _quick(rig: NodeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode_source, "LABEL_INTERVAL", 0.05)
    monkeypatch.setattr(mode_source, "_FIRST_READ_LIMIT", 0.2)
    rig.options |= {"mode_file": None, "mode_label": LABEL}


def label(rig: NodeRig, value: str) -> None:
    rig.api.label_node({LABEL: value} if value else {})


def calls(rig: NodeRig, path: str) -> int:
    return rig.api.calls(path)


async def test_the_label_is_followed_without_a_restart(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """There and back; a wrong or missing label changes nothing."""
    async with rig.serving():
        await until(lambda: rig.pods.offered == BOTH)
        label(rig, "dra")
        await until(lambda: rig.published == BOTH)
        label(rig, "DRA")
        await until(lambda: "the mode stays dra" in caplog.text)
        label(rig, "")
        label(rig, "device-plugin")
        await until(lambda: rig.pods.offered == BOTH)
    assert calls(rig, "/api/v1/nodes") == 1, "one watch has told all changes"


async def test_a_node_without_the_label_keeps_its_mode(rig: NodeRig) -> None:
    """Also a node that changes in other ways."""
    label(rig, "dra")
    async with rig.serving():
        await until(lambda: rig.published == BOTH)
        label(rig, "")
        steps = rig.steps
        label(rig, "")
        await until(lambda: rig.has_made(20, since=steps))
        assert rig.published == BOTH


@pytest.mark.parametrize(
    "last", [b"", b'{"type": "ERROR", "object": {"code": 410}}\n', b'{"type": "DELETED"}\n']
)
async def test_a_watch_that_ends_is_begun_again(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    """The node is read first: a change in between is not missed."""
    monkeypatch.setattr(mode_source, "_REREAD_PAUSE", 0.01)
    label(rig, "device-plugin")
    async with rig.serving():
        await until(lambda: calls(rig, "/api/v1/nodes"))
        rig.api.end_watch("nodes", last)
        label(rig, "dra")
        await until(lambda: rig.published == BOTH)


async def test_without_the_right_to_watch_the_label_is_read_at_intervals(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the missing rule, once."""
    rig.api.refuse("watch", "nodes", 403, "no")
    async with rig.serving():
        await until(lambda: calls(rig, "/api/v1/nodes") > 3)
        label(rig, "dra")
        await until(lambda: rig.published == BOTH)
    lines = [each.message for each in caplog.records if "the mode stays" in each.message]
    assert len(lines) == 1
    assert "resources: [nodes], verbs: [watch]" in lines[0]


async def test_the_last_known_mode_counts_without_the_api_server(rig: NodeRig) -> None:
    """Pods of a device plugin must not wait, and no pod may get a device of the other API."""
    label(rig, "dra")
    async with rig.serving():
        await until(lambda: rig.published == BOTH)
    fault, rig.api.fault = rig.api.fault, lambda _request: HANG_UP
    async with rig.serving() as switch:
        await until(lambda: switch.has_started)
        assert switch.mode == "dra"
        rig.api.fault = fault
        label(rig, "device-plugin")
        await until(lambda: rig.pods.offered == BOTH)
    rig.api.fault = lambda _request: HANG_UP
    async with rig.serving("dra"):
        await until(lambda: rig.pods.offered == BOTH)


async def test_a_wrong_label_is_an_error_at_the_start(rig: NodeRig) -> None:
    """The error has the node and the label."""
    label(rig, "both")
    with pytest.raises(UsageError, match=f"the label {LABEL} of the node node1 must be one of"):
        async with rig.serving() as switch:
            await until(lambda: switch.has_started)
