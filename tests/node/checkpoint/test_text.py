"""The text of the kubelet's checkpoint: golden files in both directions, and rules for
every file.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.text import (
    BadCheckpoint,
    Checkpoint,
    CheckpointEntry,
    checkpoint_of,
    format_checkpoint,
    parse_checkpoint,
    restore,
)
from kubedevices.node.pods.pod_devices import HeldDevices, Holding, PodDevices
from kubedevices.values.allocation import ContainerAllocateResponse
from tests.golden_data import GOLDEN, load

GOOD = load("checkpoints/manifest")
BAD = load("checkpoints_bad/manifest")
READ_HERE = "v1_pre_1_20_format.json"
"""A kubelet refuses this file: see the row about old checkpoints in differences-from-kubelet.md."""
V1_FILES = sorted((GOLDEN / "checkpoints_v1").glob("*.json"))


def file_of(case: Mapping[str, Any]) -> str:
    return str(case["file"])


def parsed(data: bytes) -> Checkpoint:
    found = parse_checkpoint(data)
    assert isinstance(found, Checkpoint), found
    return found


# ---------------------------------------------------------------- golden files


@pytest.mark.parametrize("case", GOOD, ids=file_of)
def test_a_good_file_is_written_again_byte_for_byte(case: Mapping[str, Any]) -> None:
    """A file of a kubelet is read and written again with the same bytes."""
    data = (GOLDEN / "checkpoints" / case["file"]).read_bytes()
    checkpoint = parsed(data)
    assert format_checkpoint(checkpoint) == data
    assert json.loads(data)["Checksum"] == case["checksum"]
    hashed = (GOLDEN / "checkpoints" / case["hash_input_file"]).read_bytes()
    assert hash_input(checkpoint) == hashed


@pytest.mark.parametrize("case", BAD, ids=file_of)
def test_a_damaged_or_odd_file_loads_as_in_the_kubelet(case: Mapping[str, Any]) -> None:
    """Held devices, registered resources and refusals are those of kubelet 1.32."""
    data = (GOLDEN / "checkpoints_bad" / case["file"]).read_bytes()
    found = parse_checkpoint(data)
    if not case["loaded"]:
        assert isinstance(found, Checkpoint if case["file"] == READ_HERE else BadCheckpoint)
        return
    assert isinstance(found, Checkpoint)
    restored = restore(found, CONTAINER_RESPONSE.from_wire)
    pod_devices = PodDevices()
    for holding in restored.holdings:
        pod_devices.insert(*holding)
    held = {resource: sorted(ids) for resource, ids in pod_devices.reserved().items()}
    assert held == case["allocated"]
    assert sorted(restored.resources) == sorted(case["registered"])


@pytest.mark.parametrize("path", V1_FILES, ids=lambda path: path.name)
def test_a_file_from_before_1_20_is_read(path: Any) -> None:
    """The devices are on NUMA node 0."""
    found = parsed(path.read_bytes())
    assert found.is_v1
    for entry, raw in zip(found.entries or (), entries_of(path), strict=True):
        assert entry.device_ids == {0: tuple(raw["DeviceIDs"])}
    written = format_checkpoint(found)
    assert not parsed(written).is_v1, "written in today's form"
    assert parsed(written).entries == found.entries


def entries_of(path: Any) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["Data"]["PodDeviceEntries"])


# ---------------------------------------------------------------- unusual but valid


ENTRY = "PodDeviceEntries"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"Data":{}', "it is not JSON: Expecting ',' delimiter: line 1 column 11 (char 10)"),
        ('{"Checksum":NaN}', "it is not JSON: NaN is not a value of JSON"),
        ("{}", "checkpoint is corrupted"),
        ("[]", "the file: an object is expected, not a list"),
        ('{"Data":7}', "Data: an object is expected, not the number 7"),
        ('{"Checksum":-1}', "Checksum: -1 is not from 0 to 18446744073709551615"),
        ('{"Checksum":1.0}', "Checksum: an integer is expected, not the number 1.0"),
        ('{"Checksum":"1"}', "Checksum: an integer is expected, not a text"),
    ],
)
def test_a_bad_checkpoint_is_an_error_value(text: str, reason: str) -> None:
    """The reason has the place, the value there and the expected type. No error is raised."""
    found = parse_checkpoint(text.encode())
    assert isinstance(found, BadCheckpoint)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ("[7]", f"{ENTRY}.0: an object is expected, not the number 7"),
        ("{}", f"{ENTRY}: a list is expected, not an object"),
        ('[{"PodUID":true}]', f"{ENTRY}.0.PodUID: a text is expected, not true"),
        ('[{},{"AllocResp":"*"}]', f"{ENTRY}.1.AllocResp: it is not base64"),
        ('[{"AllocResp":[256]}]', f"{ENTRY}.0.AllocResp.0: 256 is not from 0 to 255"),
        ('[{"DeviceIDs":{"x":[]}}]', f"{ENTRY}.0.DeviceIDs.x: an integer is expected"),
        ('[{"DeviceIDs":[null,7]}]', f"{ENTRY}.0.DeviceIDs.1: a text is expected"),
        ('[{"DeviceIDs":[]},{"DeviceIDs":{}}]', "DeviceIDs: some entries have a list"),
        ('[{"DeviceIDs":{}},{"DeviceIDs":[]}]', "DeviceIDs: some entries have a list"),
    ],
)
def test_an_invalid_entry_is_an_error_value(entries: str, reason: str) -> None:
    """The reason has the place, the value there and the expected type."""
    found = parse_checkpoint(f'{{"Data":{{"PodDeviceEntries":{entries}}}}}'.encode())
    assert isinstance(found, BadCheckpoint)
    assert found.reason.startswith(reason)


def test_field_names_match_in_any_case_as_in_the_kubelet() -> None:
    """Unknown fields are ignored. Of two fields with one name, the later counts."""
    good = format_checkpoint(Checkpoint((CheckpointEntry("p", "c", "r/a", {0: ("d",)}, b"x"),), {}))
    odd = (
        good.replace(
            b'"PodUID":"p"', b'"poduid":"q","x":[1.5e3,{}],"POD\xc5\xbfUID":0,"poDuId":"p"'
        )
        .replace(b'"DeviceIDs":{"0":', b'"deviceid\xc5\xbf":{"+00":')
        .replace(b'"AllocResp":"eA=="', b'"AllocResp":[120]')
        .replace(b'"Data":', b' "CHECKSUM":5,"Data":')
    )
    assert parsed(odd) == parsed(good)


def test_texts_are_escaped_and_keys_sorted_as_in_the_kubelet() -> None:
    """Keys are in the order of their texts, also numbers. Five more characters are escaped."""
    odd = '<a>&\u2028\u2029\x7f\x01\t"\\é'
    entry = CheckpointEntry("p", "c", "r/a", {2: ("b",), 10: (), -1: None}, b"")
    data = format_checkpoint(Checkpoint((entry,), {"r/b": (odd,), "r/a": ()}))
    assert b'"DeviceIDs":{"-1":null,"10":[],"2":["b"]}' in data
    assert (
        rb'"RegisteredDevices":{"r/a":[],"r/b":["\u003ca\u003e\u0026\u2028\u2029'
        b"\x7f"
        rb"\u0001\t\"\\" + 'é"]}'.encode()
    ) in data


def test_null_for_a_text_or_a_number_changes_nothing() -> None:
    """A document that is only null is corrupt."""
    good = format_checkpoint(Checkpoint(None, {}))
    data = good.replace(b'"Checksum":', b'"Checksum":null,"checksum":')
    assert parsed(data) == parsed(good)
    assert str(parse_checkpoint(b"null")) == "checkpoint is corrupted"


def test_broken_utf_8_counts_as_replacement_characters() -> None:
    """Each invalid byte and each lone surrogate is one U+FFFD, also in the checksum."""
    names = ("\ufffd\ufffd", "\ufffdx")
    good = format_checkpoint(Checkpoint(None, {"r/a": names}))
    broken = good.replace("\ufffd\ufffd".encode(), b"\xe2\x82").replace(
        "\ufffdx".encode(), rb"\ud800x"
    )
    assert broken != good
    assert parsed(broken).registered == {"r/a": names}


def test_a_wrong_checksum_has_the_content_of_the_file() -> None:
    """So a corrupt file can be shown: stored checksum, computed checksum, and content."""
    good = format_checkpoint(Checkpoint(None, {"r/a": ("d",)}))
    found = parse_checkpoint(good.replace(b'["d"]', b'["e"]'))
    assert isinstance(found, BadCheckpoint)
    assert found.content is not None
    assert found.content.registered == {"r/a": ("e",)}
    assert found.computed != found.content.checksum


def test_very_deep_nesting_is_an_error_value() -> None:
    """Ten thousand brackets cause no exception and no crash."""
    found = parse_checkpoint(b"[" * 100_000)
    assert isinstance(found, BadCheckpoint)
    found = parse_checkpoint(b"[" * 100_000 + b"]" * 100_000)
    assert isinstance(found, BadCheckpoint)


def test_the_boot_id_of_newer_kubelets_is_preserved() -> None:
    """The field is beside the data, and the checksum does not cover it."""
    data = format_checkpoint(Checkpoint(None, {}, boot_id="b"))
    assert parsed(data).boot_id == "b"
    assert format_checkpoint(parsed(data)) == data


# ---------------------------------------------------------------- holdings


def test_holdings_survive_a_checkpoint() -> None:
    """Checkpoint: three pods, three resources, nodes 0 and -1, and a CDI device come back equal."""
    response = ContainerAllocateResponse(
        env={"A": "1"}, annotations={"k": "v"}, cdi_devices=["v.example/gpu=0"]
    )
    holdings = [
        Holding("pod-1", "main", "v.example/a", HeldDevices({0: ["d1"], 1: ["d2"]}, response)),
        Holding("pod-1", "main", "v.example/b", HeldDevices({-1: ["d1"]}, response)),
        Holding("pod-2", "main", "v.example/a", HeldDevices({0: ["d3"], 1: ["d3"]}, response)),
        Holding("pod-3", "init", "v.example/c", HeldDevices({}, ContainerAllocateResponse())),
    ]
    registered = {"v.example/b": ["d1"], "v.example/a": []}
    saved = format_checkpoint(checkpoint_of(holdings, registered, CONTAINER_RESPONSE.to_wire))
    restored = restore(parsed(saved), CONTAINER_RESPONSE.from_wire)
    assert list(restored.holdings) == holdings
    assert restored.resources == ("v.example/a", "v.example/b")
    assert not restored.skipped
    before, after = PodDevices(), PodDevices()
    for pod_devices, entries in ((before, holdings), (after, list(restored.holdings))):
        for holding in entries:
            pod_devices.insert(*holding)
    assert before.reserved() == after.reserved() != {}


def test_a_node_without_pods_is_written_as_null() -> None:
    """A kubelet writes null too."""
    saved = format_checkpoint(checkpoint_of([], {}, CONTAINER_RESPONSE.to_wire))
    assert saved == (GOLDEN / "checkpoints" / "01_empty.json").read_bytes()


def test_an_entry_that_cannot_be_decoded_is_skipped() -> None:
    """The other devices are still read. Of two entries for one resource the later counts."""

    def decode(data: bytes) -> ContainerAllocateResponse:
        if data == b"bad":
            raise ProtocolError("bad")
        return ContainerAllocateResponse()

    bad = CheckpointEntry("p", "c", "r/a", {0: ("d",)}, b"bad")
    one = CheckpointEntry("p", "d", "r/a", {0: ("e",), 1: None}, b"")
    two = CheckpointEntry("p", "d", "r/a", {0: ("f",)}, None)
    restored = restore(Checkpoint((bad, one, two), None), decode)
    assert restored.skipped == (bad,)
    assert [holding.held.device_ids for holding in restored.holdings] == [("f",)]
    assert restored.resources == ()


# ---------------------------------------------------------------- rules

texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ['<a>&"\\', "\u2028\u2029", "\x00\x1f\x7f\b\f\n\r\t", "gpu-0", "é\U0001f600"]
)
id_lists = st.none() | st.lists(texts, max_size=4).map(tuple)
entries = st.builds(
    CheckpointEntry,
    texts,
    texts,
    texts,
    st.none() | st.dictionaries(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 12), id_lists),
    st.none() | st.binary(max_size=300),
)
checkpoints = st.builds(
    Checkpoint,
    st.none() | st.lists(entries, max_size=4).map(tuple),
    st.none() | st.dictionaries(texts, id_lists, max_size=4),
)


def hash_input(checkpoint: Checkpoint) -> bytes:
    """Return the full text from which the checksum is computed."""

    def ids(listed: Sequence[str] | None) -> str:
        return "<nil>" if listed is None else f"[{' '.join(listed)}]"

    def mapping(lists: Mapping[Any, Sequence[str] | None] | None) -> str:
        if lists is None:
            return "<nil>"
        return f"map[{' '.join(f'{key}:{ids(lists[key])}' for key in sorted(lists))}]"

    def raw(response: bytes | None) -> str:
        return "<nil>" if response is None else f"[{' '.join(map(str, response))}]"

    found = "<nil>"
    if checkpoint.entries is not None:
        each = (
            f"{{PodUID:(string){e.pod_uid} ContainerName:(string){e.container} "
            f"ResourceName:(string){e.resource} "
            f"DeviceIDs:(checkpoint.DevicesPerNUMA){mapping(e.device_ids)} "
            f"AllocResp:([]uint8){raw(e.response)}}}"
            for e in checkpoint.entries
        )
        found = f"[{' '.join(each)}]"
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){found} "
        f"RegisteredDevices:(map[string][]string){mapping(checkpoint.registered)}}}"
    ).encode()


def slow_fnv1a(data: bytes) -> int:
    hashed = 2166136261
    for byte in data:
        hashed = ((hashed ^ byte) * 16777619) % 2**32
    return hashed


@given(checkpoints)
@example(Checkpoint((), None))
@example(Checkpoint((CheckpointEntry(response=bytes(range(256))),), {"": ()}))
def test_a_written_checkpoint_is_read_with_the_right_checksum(checkpoint: Checkpoint) -> None:
    """The content is equal, and the checksum is that of the full text."""
    data = format_checkpoint(checkpoint)
    assert parsed(data) == checkpoint
    assert format_checkpoint(parsed(data)) == data
    assert json.loads(data)["Checksum"] == slow_fnv1a(hash_input(checkpoint))


FIELDS = "Data Checksum PodDeviceEntries RegisteredDevices DeviceIDs AllocResp PodUID BootID 0 x"
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.binary(max_size=100) | json_like.map(lambda value: json.dumps(value).encode()))
def test_parsing_any_bytes_returns_a_value(data: bytes) -> None:
    """No bytes cause an exception."""
    assert isinstance(parse_checkpoint(data), Checkpoint | BadCheckpoint)


@given(st.data())
def test_parsing_a_damaged_file_returns_a_value(data: st.DataObject) -> None:
    """A byte is changed, removed or inserted: a file is valid only with equal content."""
    case = data.draw(st.sampled_from(GOOD))
    good = (GOLDEN / "checkpoints" / case["file"]).read_bytes()
    at = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 3))
    damaged = good[:at] + data.draw(st.binary(max_size=2)) + good[at + cut :]
    found = parse_checkpoint(damaged)
    if isinstance(found, Checkpoint):
        assert format_checkpoint(found) == good


def test_a_thousand_pods_are_written_quickly() -> None:
    """A file of 450 kB takes well under a second, and much less the second time."""
    response = CONTAINER_RESPONSE.to_wire(
        ContainerAllocateResponse(env={"VISIBLE": "gpu-0", "PADDING": "x" * 180})
    )
    rows = tuple(
        CheckpointEntry(f"{i:036d}", "main", "v.example/gpu", {0: (f"gpu-{i}",)}, response)
        for i in range(1000)
    )
    checkpoint = Checkpoint(rows, {"v.example/gpu": tuple(f"gpu-{i}" for i in range(1000))})
    began = time.thread_time()  # other processes may use the CPU meanwhile
    data = format_checkpoint(checkpoint)
    first = time.thread_time() - began
    again = min(timed(checkpoint) for _ in range(5))
    assert len(data) > 400_000
    assert first < 1
    assert again < first / 2, "known entries are not hashed again"


def timed(checkpoint: Checkpoint) -> float:
    began = time.thread_time()
    format_checkpoint(checkpoint)
    return time.thread_time() - began
