"""The beginning and the end of long output are kept."""

import tracemalloc
from pathlib import Path

from kubedevices.host.kept_output import KEPT_HEAD, KEPT_TAIL, drop_middle, read_output

MEBI = 1024 * 1024


def test_short_output_is_complete(tmp_path: Path) -> None:
    """Also output that has exactly the most bytes; a missing file is empty."""
    file = tmp_path / "log"
    assert read_output(file) == ""
    text = "x" * (KEPT_HEAD + KEPT_TAIL)
    file.write_text(text)
    assert read_output(file) == text
    drop_middle(file)
    assert read_output(file) == text


def test_of_long_output_the_middle_is_left_out(tmp_path: Path) -> None:
    """The note says how much; reading 300 MB needs little memory."""
    file = tmp_path / "log"
    with file.open("wb") as output:
        output.write(b"first line\n")
        output.truncate(300_000_000)
        output.seek(0, 2)
        output.write(b"\nlast line\n")
    tracemalloc.start()
    text = read_output(file)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * MEBI
    assert text.startswith("first line\n")
    assert text.endswith("\nlast line\n")
    dropped = file.stat().st_size - KEPT_HEAD - KEPT_TAIL
    assert f"{dropped:,} bytes of the output are left out here" in text


def test_the_middle_uses_no_disk(tmp_path: Path) -> None:
    """Beginning and end stay; the writer goes on at the end."""
    file = tmp_path / "log"
    with file.open("ab") as output:
        for _ in range(16):
            output.write(b"a" * MEBI)
        output.flush()
        before = read_output(file)
        drop_middle(file)
        assert file.stat().st_blocks * 512 < 2 * MEBI
        assert read_output(file) == before
        output.write(b"last")
    assert read_output(file).endswith("last")


def test_nothing_else_is_changed(tmp_path: Path) -> None:
    """A link or a directory in place of the file, or no file."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * 4 * MEBI)
    (tmp_path / "link").symlink_to(precious)
    for name in ("link", "missing", "."):
        drop_middle(tmp_path / name)
    assert precious.read_bytes() == b"x" * 4 * MEBI
