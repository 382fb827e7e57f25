"""docs/development/tour.md names existing files and functions, and the call chains stay short."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kubedevices
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from tests.fake_plugin import RESOURCE, FakePlugin, healthy

TOUR = Path(__file__).parents[2] / "docs/development/tour.md"
LINK = re.compile(r"\]\(([^)]+\.py)\)")
CHAPTERS = dict(
    re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", TOUR.read_text(), re.MULTILINE | re.DOTALL)
)
ROWS = [
    row
    for chapter in CHAPTERS.values()
    for row in re.findall(r"^\| .+ \|$", chapter, re.MULTILINE)
    if LINK.search(row)
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_a_step_names_functions_of_its_files(row: str) -> None:
    """The functions in the last column are defined in a file that the row links to."""
    text = "".join((TOUR.parent / link).read_text() for link in LINK.findall(row))
    for name in re.findall(r"`([\w.]+)`", row.rsplit(" | ", 1)[1]):
        for part in name.split("."):
            assert re.search(rf"\b(?:def|class) {part}\b", text), part


@pytest.mark.parametrize(
    ("chapter", "limit"),
    [("A pod: an admission in nine files", 9), ("An Allocate call: five files in the plugin", 5)],
)
def test_a_call_chain_is_short(chapter: str, limit: int) -> None:
    """Each file counts once; the heading has their number."""
    steps = CHAPTERS[chapter].split("|\n\n")[0]  # the table, without the text after it
    assert len(set(LINK.findall(steps))) == limit


def test_each_place_to_change_exists() -> None:
    """The last table names existing files and folders."""
    package = TOUR.parents[2] / "src/kubedevices"
    places = re.findall(r"`([\w*]+/[\w*./]*)`", CHAPTERS["Where to change what"])
    assert len(places) > 8
    assert all(list(package.glob(place.rstrip("/"))) for place in places)


async def test_the_tour_names_every_file_of_an_admission(short_dir: Path) -> None:
    """The chapter names each file below node/ with a function that runs during an admission."""
    package, passed = Path(kubedevices.__file__).parent, set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        passed.add(frame.f_code.co_filename)

    plugin = FakePlugin(short_dir / "p", devices=healthy("a", "b", numa=(0, 1)))
    async with DeviceManager(short_dir / "p") as manager, plugin:
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        # This task writes the kubelet's checkpoint in the background, after changes of pods.
        beside = {package / "node/checkpoint/writer.py"}
        sys.setprofile(note)
        try:
            await manager.allocate(Pod("p", containers=(Container("c", {RESOURCE: 1}),)))
        finally:
            sys.setprofile(None)
    named = {
        (TOUR.parent / link).resolve()
        for link in LINK.findall(CHAPTERS["A pod: an admission in nine files"])
    }
    control = package / "node/services/control.py"  # calls `DeviceManager.allocate`
    way = {path for path in map(Path, passed) if package / "node" in path.parents}
    assert way - beside == named - {control}
