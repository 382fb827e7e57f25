"""State files across versions: each form of a file is read, and a newer form is told and kept."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from kubedevices.dra.claim_log import ClaimLog, read_refusals
from kubedevices.dra.claims import Result
from kubedevices.dra.options import DraOptions, DraSettings
from kubedevices.dra.prepared_file import PreparedClaim, PreparedClaims, PreparedDevice
from kubedevices.dra.state_files import StateFiles
from kubedevices.errors import ApiUnreachable, CannotRead, OtherVersion
from kubedevices.expose.names_file import KeptNames, KeptResource
from kubedevices.host.state_file import StateFile
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy.dra_bridge import DraBridge
from kubedevices.proxy.known_sockets import KnownSockets
from kubedevices.proxy.proxy_config import ProxyRule
from kubedevices.proxy.saved_list import SavedLists
from kubedevices.serving.held_devices_file import HeldDevicesFile
from kubedevices.serving.mode_source import NodeLabel
from kubedevices.values.allocation import ClaimReference
from tests.dra.test_claim_log import Service
from tests.proxy.test_saved_list import kept, plugin_of
from tests.waiting import until

ONE = ClaimReference("default", "uid-1", "claim-1")
CLAIM = PreparedClaim(ONE, "boot", True, (PreparedDevice(Result("r", "n", "d", "", False)),))
HELD = ProxyRule(hold=300.0, hold_over_reboot=True)
KUBECONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "a", "user": {"token": "none"}}],
}


class Widgets(Scanner):
    async def scan(self, notifier: Notifier) -> None:
        await asyncio.Event().wait()


class Node:
    """An API server that answers with `labels`, or not at all."""

    def __init__(self, labels: dict[str, str] | None) -> None:
        self.labels = labels

    async def get_node(self, name: str) -> dict[str, Any]:
        if self.labels is None:
            raise ApiUnreachable("https://there", f"no node {name}")
        return {"metadata": {"labels": self.labels}}

    async def watch_node(self, name: str, version: str) -> AsyncGenerator[dict[str, Any], None]:
        yield {"type": "MODIFIED", "object": {"name": name, "version": version}}


async def while_running(task: Coroutine[Any, Any, Any], condition: Callable[[], bool]) -> None:
    running = asyncio.create_task(task)
    try:
        await until(condition)
    finally:
        running.cancel()
        await asyncio.wait({running})


def label(path: Path, labels: dict[str, str] | None) -> NodeLabel:
    return NodeLabel(Node(labels), "node1", "mode", "device-plugin", path)


async def read_mode(path: Path) -> object:
    source = label(path, None)
    await source.begin()
    return "" if source.mode == "device-plugin" else source.mode


def bridge(path: Path) -> tuple[DraBridge, Path]:
    """Return a bridge and the data directory of its driver `example.com`."""
    kubeconfig = path.with_name("kubeconfig")
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    options: DraOptions = {"kubelet_dir": path.parent / "k", "kubeconfig": kubeconfig}
    return DraBridge(options, path.parent), DraSettings(**options).data_dir("example.com")


async def read_domains(path: Path) -> object:
    """Return the domains for which drivers start, because they may have slices."""
    found, data_dir = bridge(path)
    domains = list[str]()
    StateFiles(data_dir).note_slices({"d"})

    async def drive(domain: str) -> None:
        domains.append(domain)
        await asyncio.Event().wait()

    found._drive = drive  # type: ignore[method-assign]
    running = asyncio.create_task(found.run())
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    return domains


async def write_names(path: Path) -> None:
    names = KeptNames("NAMESPACE", path.parent)
    names.keep("serial", KeptResource("stable", {}))
    names.save(["serial"])


async def write_sockets(path: Path) -> None:
    sockets = KnownSockets(path.parent)
    sockets.load()
    sockets.add("example.com/w", Path("/run/w.sock"))
    before = path.read_bytes() if path.exists() else b""
    await while_running(sockets.keep(), lambda: path.exists() and path.read_bytes() != before)


async def write_list(path: Path) -> None:
    saved = SavedLists(path.parents[1], lambda _: HELD)
    saved.load()
    before = path.read_bytes() if path.exists() else b""
    async with kept(saved, plugin_of("example.com/w")):
        await until(lambda: path.exists() and path.read_bytes() != before)


async def write_domains(path: Path) -> None:
    before = path.read_bytes() if path.exists() else b""
    serving = bridge(path)[0].serve("example.com", Widgets(), "plugin")
    await while_running(serving, lambda: path.exists() and path.read_bytes() != before)


async def write_refused(path: Path) -> None:
    service = Service()
    service.refused = {ONE.uid: "no device"}
    await ClaimLog(service, path).prepare((ONE,))


async def write_prepared(path: Path) -> None:
    claims, is_whole = PreparedClaims.read(path)
    if is_whole:
        claims.put(CLAIM)
    else:
        claims.begin_anew([CLAIM])


async def write_held(path: Path) -> None:
    HeldDevicesFile(path.parent, "boot").write([("gpu", "a")])


async def write_slices(path: Path) -> None:
    StateFiles(path.parent).note_slices({"d"})


def now(read: Callable[[Path], object]) -> Callable[[Path], Awaitable[object]]:
    async def reading(path: Path) -> object:
        return read(path)

    return reading


class Kind(NamedTuple):
    """A state file: `old` is its content before it had a version, empty if it always had one."""

    read: Callable[[Path], Awaitable[object]]
    write: Callable[[Path], Awaitable[None]]
    content: object
    nothing: object
    old: str = ""


DEVICES = '{"resource": "example.com/w", "options": {"pre_start_required": false, '
DEVICES += '"get_preferred_allocation_available": false, "unknown": ""}, "devices": []}'
REFUSED = f'[{{"claim": {json.dumps(ONE._asdict())}, "reason": "no device", "at": 1.5}}]'
KINDS = {
    "prepared.json": Kind(
        now(lambda path: [*PreparedClaims.read(path)[0]]), write_prepared, [CLAIM], []
    ),
    "proxy-sockets.json": Kind(
        now(lambda path: KnownSockets(path.parent).load()),
        write_sockets,
        {"example.com/w": Path("/run/w.sock")},
        {},
    ),
    "refused.json": Kind(
        now(lambda path: [(each.claim, each.reason) for each in read_refusals(path)]),
        write_refused,
        [(ONE, "no device")],
        [],
        REFUSED,
    ),
    "held-by-plugin.json": Kind(
        now(lambda path: [*HeldDevicesFile(path.parent, "boot").read()[0]]),
        write_held,
        [("gpu", "a")],
        [],
        '{"boot_id": "boot", "devices": [["gpu", "a"]]}',
    ),
    "lists/example.com_w.json": Kind(
        now(lambda path: {*SavedLists(path.parents[1], lambda _: HELD).load()}),
        write_list,
        {"example.com/w"},
        set(),
        DEVICES,
    ),
    "dra-domains.json": Kind(
        read_domains, write_domains, ["example.com"], [], '["example.com"]'
    ),
    "has-slices": Kind(
        now(lambda path: StateFiles(path.parent).published()),
        write_slices,
        frozenset({"d"}),
        None,
        '{"devices": ["d"]}',
    ),
    "expose-NAMESPACE.json": Kind(
        now(lambda path: {*KeptNames("NAMESPACE", path.parent).resources}),
        write_names,
        {"serial"},
        set(),
        "",
    ),
    "mode": Kind(
        read_mode, lambda path: label(path, {"mode": "dra"}).begin(), "dra", "", "dra"
    ),
}  # fmt: skip
WITH_OLD_FORM = {name: kind for name, kind in KINDS.items() if kind.old}
NEVER_REPLACED = {"has-slices"}
"""A file that a program of an older version leaves as it is: any device may be in a slice."""


PAGE = Path(__file__).parents[2] / "docs/upgrade.md"


def place(directory: Path, name: str, content: str = "") -> Path:
    path = directory / "state" / name
    path.parent.mkdir(parents=True)
    if content:
        path.write_text(content)
    return path


@pytest.mark.parametrize("name", KINDS)
async def test_each_state_file_says_its_version_and_is_read_back(tmp_path: Path, name: str) -> None:
    """So a program of a later version knows which form it reads."""
    path = place(tmp_path, name)
    await KINDS[name].write(path)
    assert json.loads(path.read_text())["version"] == 1
    assert await KINDS[name].read(path) == KINDS[name].content


@pytest.mark.parametrize("name", WITH_OLD_FORM)
async def test_the_form_before_versions_is_read(tmp_path: Path, name: str) -> None:
    """An upgrade forgets nothing."""
    path = place(tmp_path, name, KINDS[name].old)
    assert await KINDS[name].read(path) == KINDS[name].content


@pytest.mark.parametrize("name", KINDS)
async def test_a_newer_version_is_told_and_kept(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After a downgrade: it is not called damaged, and is there again after the next upgrade."""
    text = '{"version": 7, "more": "than this program knows"}'
    path = place(tmp_path, name, text)
    assert await KINDS[name].read(path) == KINDS[name].nothing
    told = f"cannot read {path}: it has version 7, of a newer kubedevices"
    assert told in caplog.text
    if name in NEVER_REPLACED:
        await KINDS[name].write(path)
        assert path.read_text() == text
        return
    await KINDS[name].write(path)
    assert "damaged" not in caplog.text
    assert "corrupt" not in caplog.text
    assert await KINDS[name].read(path) == KINDS[name].content
    (second,) = path.parent.glob(f"{path.name}.version-7-*")
    assert second.read_text() == text
    assert f"it is kept as {second.name}" in caplog.text


def test_the_page_lists_each_state_file_with_its_versions() -> None:
    """Its table says which version reads which file."""
    _, _, page = PAGE.read_text().partition("## State files")
    rows = [
        line.split("|")
        for line in page.partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    listed = {
        row[1].strip().strip("`").replace("RESOURCE", "example.com_w"): row[2] for row in rows
    }
    listed.pop("maintenance.json")  # people write it, so its reader is strict
    assert listed.keys() == KINDS.keys()
    assert {name for name, forms in listed.items() if "none" in forms} == {*WITH_OLD_FORM}


@pytest.mark.parametrize("version", ["0", "-1", "true", "1.0", '"1"', "null", "[]"])
def test_a_version_that_is_no_number_is_damage(tmp_path: Path, version: str) -> None:
    """No program of ours writes one."""
    file = StateFile.at(tmp_path / "state.json", limit=1000, version=3)
    file.path.write_text(f'{{"version": {version}}}')
    with pytest.raises(CannotRead, match="it is damaged: its version is not a number of 1") as told:
        file.read(lambda found: found)
    assert not isinstance(told.value, OtherVersion)


def test_the_newest_known_version_is_read_and_a_newer_one_names_both(tmp_path: Path) -> None:
    """The reader may write an older version, as the claims of a driver without shared devices."""
    file = StateFile.at(tmp_path / "state.json", limit=1000, version=3)
    for version in (1, 2, 3):
        file.write({"version": version})
        assert file.read(lambda found: cast("dict[str, int]", found)) == {"version": version}
    file.path.write_text('{"version": 4}')
    with pytest.raises(OtherVersion, match="reads versions up to 3") as told:
        file.read(lambda found: found)
    assert (told.value.version, told.value.newest) == (4, 3)


def test_a_newer_file_is_kept_once_and_damage_is_not_kept(tmp_path: Path) -> None:
    """Each write of a process would keep its own file otherwise."""
    path = tmp_path / "ours/state.json"
    file = StateFile.at(path, limit=1000, version=1)
    path.parent.mkdir()
    path.write_text("{")
    file.write({"a": 1})
    path.write_text('{"version": 2}')
    assert [*path.parent.iterdir()] == [path]
    again = StateFile.at(path, limit=1000, version=1)
    again.write({"a": 1})
    again.write({"a": 2})
    assert len([*path.parent.iterdir()]) == 2
