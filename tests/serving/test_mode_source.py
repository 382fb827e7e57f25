"""The mode of a node in a file."""

import asyncio
import re
from pathlib import Path

import pytest

from kubedevices.errors import CannotRead
from kubedevices.serving import mode_source
from kubedevices.serving.mode_source import ModeFile
from kubedevices.serving.modes_of_devices import Mode, parse_mode
from tests.waiting import until


async def test_a_mode_file_without_text_changes_nothing(tmp_path: Path) -> None:
    """An administrator may truncate the file before the new mode is in it."""
    (tmp_path / "mode").write_text(" \n")
    for name in ("mode", "none"):
        source = ModeFile(tmp_path / name, "split")
        await source.begin()
        assert source.mode == "split"


async def test_a_mode_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """The error has the name of the file once, and the reason."""
    with pytest.raises(
        CannotRead, match=f"^cannot read {re.escape(str(tmp_path))}: it is a directory"
    ):
        await ModeFile(tmp_path, "dra").begin()


async def test_the_same_mistake_in_a_mode_file_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time that it is made: a valid mode in between ends it."""
    read, changes = list[str](), list[Mode]()

    def noting(text: str, where: str) -> Mode:
        read.append(text)
        return parse_mode(text, where)

    monkeypatch.setattr(mode_source, "parse_mode", noting)
    source = ModeFile(tmp_path / "mode", "dra")
    following = asyncio.create_task(source.run(lambda: changes.append(source.mode)))
    for text in ("DRA", "DRA ", "dra", "DRA", "split"):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(tmp_path / "mode")
        count = len(read)
        await until(lambda: len(read) > count)  # noqa: B023
    await until(lambda: changes)
    following.cancel()
    await asyncio.wait({following})
    assert changes == ["split"]
    assert caplog.text.count("not 'DRA'; the mode stays dra") == 2
