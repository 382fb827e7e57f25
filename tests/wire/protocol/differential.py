"""One conversation with two ends, ours and another; and in what the other may differ."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tests.wire.frames import CLIENT_HELLO, SERVER_HELLO
from tests.wire.protocol.conversations import conversation
from tests.wire.protocol.ends import H2, End, Fact, Ngh2, Ours

LENGTH = 25
ORACLES: tuple[type[End], ...] = (H2, Ngh2)
ANY = ""


class Difference(NamedTuple):
    """Where two ends part; `refuses` names the stricter, or is empty when the facts differ."""

    oracle: str
    what: str
    detail: str
    state: str
    refuses: str
    seed: int
    history: tuple[str, ...]

    @property
    def reason(self) -> str | None:
        """Why they may, None if they may not."""
        for known, reason in KNOWN.items():
            if all(mine in (ANY, theirs) for mine, theirs in zip(known, self, strict=False)):
                return reason
        return None

    def __str__(self) -> str:
        where = (
            f"{self.oracle}, seed {self.seed}: {self.what} ({self.detail or 'plain'}) on a stream"
        )
        return "\n  ".join((f"{where} {self.state}: {self.refuses or 'other'}", *self.history))


KNOWN: dict[tuple[str, str, str, str, str], str] = {
    ("h2", "RST_STREAM", ANY, "idle", "ours"): "6.4: an error; h2 lets it pass",
    ("h2", "RST_STREAM", ANY, "even", "ours"): "6.4: an error; h2 lets it pass",
    ("h2", ANY, "without :authority", ANY, "h2"): "8.3.1: it may be absent; h2 wants it or Host",
    (
        "h2",
        ANY,
        ANY,
        "left",
        "h2",
    ): "5.1: after our RST_STREAM frames are discarded; h2 resets",
    ("h2", "CONTINUATION", "noise", "left", ANY): "5.1: the same; both end the connection",
    ("h2", "WINDOW_UPDATE", ANY, "closed", "h2"): "6.9: never an error on a closed stream",
    ("h2", "WINDOW_UPDATE", ANY, "skipped", "h2"): "6.9: nor on one that was skipped",
    ("h2", "WINDOW_UPDATE", "noise", ANY, "h2"): "6.9: the reserved bit is ignored; h2 reads it",
    ("h2", "HEADERS", "content-length", ANY, "ours"): "8.1.1: h2 compares it with DATA alone",
    ("h2", "HEADERS", "padding alone", ANY, "h2"): "6.2: padding may fill a frame; h2 forbids it",
    ("h2", "SETTINGS", ANY, ANY, "ours"): "6.5.3: each value counts; h2 looks at the last",
    ("h2", "SETTINGS", ANY, ANY, "h2"): "6.9.2: what was reset has no window; h2 counts it",
    ("ngh2", "SETTINGS", ANY, ANY, "ours"): "6.5.3: each value counts; it looks at the last",
    ("ngh2", ANY, "on itself", ANY, "ours"): "5.3.1 of RFC 7540: an error; RFC 9113 is silent",
    ("ngh2", "PRIORITY", ANY, "no stream", "ours"): "6.3: an error; libnghttp2 lets it pass",
    ("ngh2", "DATA", ANY, "closed", "ours"): "5.1: an error, or discarded as there",
    ("ngh2", "HEADERS", ANY, "closed", "ours"): "5.1: an error, or discarded as there",
    ("ngh2", "DATA", ANY, "skipped", "ours"): "5.1.1: closed too; there it is discarded",
    ("ngh2", "HEADERS", ANY, "skipped", "ours"): "5.1.1: a number too small is an error",
    ("ngh2", "DATA", ANY, "left", "ours"): "6.1: wrong padding is an error there too",
    ("ngh2", ANY, "without :authority", ANY, "ngh2"): "8.3.1: it may be absent; there it or Host",
    ("ngh2", "HEADERS", "content-length", ANY, "ngh2"): "8.1.1: in trailers it means nothing",
    ("ngh2", "HEADERS", "damaged", ANY, "ngh2"): "8.2.1: we look for what must not be, and no more",
}
"""Oracle, frame, what is odd about it, state of its stream, who refuses → what the RFC says."""


def difference(seed: int, oracle: type[End], *, is_client: bool) -> Difference | None:
    """Return where ours and the other part in the conversation of `seed`, if they do."""
    ours, theirs = Ours(is_client=is_client), oracle(is_client=is_client)
    for end in (ours, theirs):
        for _ in range(3 if is_client else 0):
            end.open()
        assert end.receive(SERVER_HELLO if is_client else CLIENT_HELLO) == [("settings",)]
    history: list[str] = []
    measured: set[int] = set()  # streams whose header fields said how much DATA comes
    for what, detail, stream, data in _turns(seed, to_client=is_client):
        history.append(f"{what} {stream} {detail} {data.hex()}")
        if not data:
            if ours.may(what, stream):
                for end in (ours, theirs):
                    getattr(end, what)(stream)
            continue
        state = ours.state(stream)
        mine, other = ours.receive(data), theirs.receive(data)
        if state in ("closed", "left", "skipped"):  # a reset of what is over is no news
            mine, other = _without_resets(mine), _without_resets(other)
        if mine != other:
            refuses = {(True, False): "ours", (False, True): oracle.name}.get(
                (("refuse",) in mine, ("refuse",) in other), ""
            )
            story = (*history, str(mine), str(other))
            odd = _oddity(mine) or ("content-length" if stream in measured else detail)
            return Difference(oracle.name, what, odd, state, refuses, seed, story)
        measured |= {fact[1] for fact in mine if _fields(fact).keys() & {b"content-length"}}
        if ours.is_over or theirs.is_over or ("goaway", 0) in mine:
            return None
        for open_stream in ours.unfinished():
            rooms = ours.room(open_stream), theirs.room(open_stream)
            if rooms[0] != rooms[1]:
                story = (*history, f"room of {open_stream}: {rooms}")
                return Difference(oracle.name, what, "windows", state, "", seed, story)
    return None


def _oddity(facts: list[Fact]) -> str:
    """Return what is odd about header fields whatever the conversation meant to be odd."""
    fields = {name: value for fact in facts for name, value in _fields(fact).items()}
    if b":method" in fields and b":authority" not in fields:
        return "without :authority"
    if not fields.get(b":path", b"/").startswith(b"/") or b'"' in fields.get(b":authority", b""):
        return "damaged"
    if b"content-length" in fields and b":status" not in fields and b":method" not in fields:
        return "content-length"
    if any(not 0x20 <= byte < 0x7F for value in fields.values() for byte in value):
        return "damaged"
    return ""


def _fields(fact: Fact) -> dict[bytes, bytes]:
    return dict(fact[2]) if fact[0] == "headers" else {}


def _without_resets(facts: list[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact[0] != "reset"]


def _turns(seed: int, *, to_client: bool) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield what happens, the frames of a header block as one."""
    held = None
    for act in islice(conversation(seed, to_client=to_client), LENGTH):
        what, detail, stream, data = held or (act.what, act.detail, act.stream, b"")
        if not act.data:
            if held is None:
                yield what, detail, stream, b""
        elif act.leaves_open:
            held = what, detail, stream, data + act.data
        else:
            held = None
            yield what, detail, stream, data + act.data
