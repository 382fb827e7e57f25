"""The frames of SQLite's write-ahead log: whether one is damaged, and the log with new sums. Pure.

SQLite reads the log up to the first frame whose checksum is wrong, and says nothing: the pods of
all later frames are missing then. A checksum covers its frame and, through the checksum before it,
all earlier frames. So we check each frame against the checksum that its predecessor has in the log.
https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER, _FRAME_HEADER = 32, 24
_MAGIC = 0x377F0682  # the last bit says whether the checksums are of big-endian words
_VERSION = 3007000
_MASK = 0xFFFFFFFF

Sums = tuple[int, int]


class _Frame(NamedTuple):
    head: bytes  # page number, and size of the database after a commit (else 0)
    page: bytes
    salts: bytes
    sums: Sums


def problem_of(log: bytes, page_size: int) -> str:
    """Return what is damaged in a log; empty if SQLite reads all of it that was ever complete.

    A power cut in the middle of a write looks like damage of the last frames.
    """
    if len(log) < _HEADER + _FRAME_HEADER + page_size:
        return ""  # no frame is complete
    order = _order(log)
    header = log[:_HEADER].ljust(_HEADER, b"\0")
    sums = _sums(header[:24], (0, 0), order)
    if _numbers(header[24:]) != sums or struct.unpack(">I", header[8:12])[0] != page_size:
        return "the header of its log is damaged"
    for number, frame in enumerate(_frames(log, page_size, header[16:24]), 1):
        expected = _sums(frame.head + frame.page, sums, order)
        if frame.salts != header[16:24] or frame.sums != expected:
            return f"frame {number} of its log is damaged, so SQLite does not read the rest"
        sums = frame.sums
    return ""


def with_new_sums(log: bytes, page_size: int) -> bytes:
    """Return a log that SQLite reads to its end: all frames, with the checksums of their content.

    A frame with damage in one word is repaired. Another frame may have wrong content: the reader
    checks each row.
    """
    # Most salts are right: those of the header or of the first frame may be the damaged ones.
    step = _FRAME_HEADER + page_size
    salts = [log[at + 8 : at + 16] for at in range(_HEADER, len(log) - step + 1, step)]
    salt = log[16:24] if log[16:24] in salts else (salts or [bytes(8)])[0]
    order = _order(log)
    magic = _MAGIC | (order == ">")
    head = struct.pack(">IIII", magic, _VERSION, page_size, 0) + salt
    sums = _sums(head, (0, 0), order)
    parts = [head, struct.pack(">II", *sums)]
    before = _numbers(log[24:32])  # the sums that the log has, not the new ones
    for frame in _frames(log, page_size, salt):
        content = _repaired(frame.head + frame.page, before, frame.sums, order)
        sums, before = _sums(content, sums, order), frame.sums
        parts += [content[:8], salt, struct.pack(">II", *sums), content[8:]]
    return b"".join(parts)


def _repaired(content: bytes, before: Sums, wanted: Sums, order: str) -> bytes:
    """Return `content` with the one word corrected that makes the sums wrong; else unchanged.

    A pair of words (even, odd) adds to the sums: first += even + second, second += odd + first. So
    a difference (f, s) of the sums before a pair is (f + s, f + 2 s) after it. We follow the
    difference of the sums at the end back to the pair where it can begin: (x, x) if the even word
    differs by x, (0, x) if the odd word does. If several words could be wrong, none is changed.
    """
    found = _sums(content, before, order)
    if found == wanted:
        return content
    first, second = ((there - here) & _MASK for there, here in zip(wanted, found, strict=True))
    repaired = []
    for at in range(len(content) - 8, -1, -8):
        if first in (0, second):
            place = at if first else at + 4
            (word,) = struct.unpack_from(f"{order}I", content, place)
            right = struct.pack(f"{order}I", (word + second) & _MASK)
            repaired.append(content[:place] + right + content[place + 4 :])
        first, second = (2 * first - second) & _MASK, (second - first) & _MASK
    return repaired[0] if len(repaired) == 1 else content


def _frames(log: bytes, page_size: int, salt: bytes) -> Iterator[_Frame]:
    """Yield the complete frames of this log, without frames that an earlier log has left.

    An earlier log has another number as its first salt, and a random second salt.
    """
    step = _FRAME_HEADER + page_size
    for at in range(_HEADER, len(log) - step + 1, step):
        salts = log[at + 8 : at + 16]
        if salts[:4] == salt[:4] or salts[4:] == salt[4:]:
            page = log[at + _FRAME_HEADER : at + step]
            yield _Frame(log[at : at + 8], page, salts, _numbers(log[at + 16 : at + 24]))


def _order(log: bytes) -> str:
    return ">" if log[3:4] == bytes([_MAGIC & 0xFF | 1]) else "<"


def _numbers(data: bytes) -> Sums:
    first, second = struct.unpack(">II", data)
    return first, second


def _sums(data: bytes, start: Sums, order: str) -> Sums:
    first, second = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
