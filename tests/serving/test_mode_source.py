"""The mode of a node, in a file or a label, and what the log says of it."""

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import ApiUnreachable, CannotRead
from kubedevices.serving import mode_source
from kubedevices.serving.mode_source import ModeFile, NodeLabel
from kubedevices.serving.modes_of_devices import Mode, parse_mode
from tests.waiting import until


async def test_a_mode_file_without_text_changes_nothing(tmp_path: Path) -> None:
    """An administrator may truncate the file before the new mode is in it."""
    (tmp_path / "mode").write_text(" \n")
    (tmp_path / "link").symlink_to("mode")
    for name in ("mode", "link", "none"):
        source = ModeFile(tmp_path / name, "split")
        await source.begin()
        assert source.mode == "split"


async def test_a_mode_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """The error has the name of the file once, and the reason."""
    (tmp_path / "long").write_text(" " * 4096 + "dra")
    with pytest.raises(CannotRead, match="long: more than 4096 bytes"):
        await ModeFile(tmp_path / "long", "dra").begin()
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


def labelled(mode: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"mode": mode}}}


class Answers:
    """An API server that gives these answers, and raises the errors among them, in this order."""

    def __init__(self, *answers: dict[str, Any] | ApiUnreachable | None) -> None:
        self.left = [*answers]

    async def next(self) -> dict[str, Any] | None:
        if not self.left:
            await asyncio.Event().wait()
        if isinstance(answer := self.left.pop(0), ApiUnreachable):
            raise answer
        return answer

    async def get_node(self, name: str) -> dict[str, Any]:
        return await self.next() or {}

    async def watch_node(self, name: str, version: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield events until an answer is None."""
        while node := await self.next():
            yield {"type": "MODIFIED", "object": node}


async def test_the_same_trouble_with_the_label_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time that it begins: an answer, an event and a valid mode in between end it."""
    monkeypatch.setattr(mode_source, "LABEL_INTERVAL", 0.0)
    down = ApiUnreachable("the server", "nobody answers")
    api = Answers(
        *(down, down, labelled("both"), labelled("both"), labelled("dra"), labelled("both"), down),
        *(labelled("dra"), None, down, labelled("split")),
    )
    source = NodeLabel(api, "node1", "mode", "device-plugin", tmp_path / "memory")
    following = asyncio.create_task(source.run(lambda: None))
    await until(lambda: source.mode == "split", 20)
    following.cancel()
    await asyncio.wait({following})
    assert caplog.text.count("nobody answers; the mode stays") == 3
    assert caplog.text.count("not 'both'; the mode stays") == 2


async def test_a_label_counts_although_nothing_can_remember_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory of the file that remembers it is missing, or is a file."""
    (tmp_path / "file").touch()
    source = NodeLabel(Answers(labelled("dra")), "n", "mode", "split", tmp_path / "file" / "memory")
    await source.begin()
    assert source.mode == "dra"
    assert "cannot be written" in caplog.text


async def test_a_damaged_memory_of_the_label_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer of the API server in time, the process begins in the mode it was given."""
    monkeypatch.setattr(mode_source, "_FIRST_READ_LIMIT", 0.01)
    (tmp_path / "memory").write_text("both")
    source = NodeLabel(Answers(), "n", "mode", "split", tmp_path / "memory")
    await source.begin()
    assert source.mode == "split"
    assert "the last known mode counts: no answer" in caplog.text
