"""The header fields of one block, checked by the rules of RFC 9113, sections 8.2 and 8.3.

`hpack` caches a block together with the result of the check, so equal blocks are checked once.
"""

import re
from enum import Enum

Field = tuple[bytes, bytes]
Fields = tuple[Field, ...]

# RFC 9113, section 8.2.1: no upper case, no control characters, a colon only at the beginning.
_NAME = re.compile(rb":?[!-9;-@\[-~]+").fullmatch
_VALUE = re.compile(rb"|[^\0\r\n \t](?:[^\0\r\n]*[^\0\r\n \t])?").fullmatch
# Less strict for responses: grpc-go's servers send status texts and metadata with spaces around.
_VALUE_OF_SERVERS = re.compile(rb"[^\0\r\n]*").fullmatch
_OF_CONNECTIONS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_PSEUDO_OF_REQUESTS = frozenset((b":method", b":scheme", b":path", b":authority"))


class HeaderKind(Enum):
    """The kind of a block, which its pseudo-header fields show."""

    REQUEST = "request"
    RESPONSE = "response"
    TRAILERS = "trailers"


class HeaderBlock:
    """The fields of a block. `problem` says why the block is malformed; empty: it is not."""

    __slots__ = ("content_length", "fields", "kind", "named", "problem")

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.named = dict(fields)
        self.content_length: int | None = None
        self.kind = self._kind()
        self.problem = self._problem()

    def __repr__(self) -> str:
        return f"<HeaderBlock {self.kind.value} {self.fields}>"

    @property
    def is_informational(self) -> bool:
        """Whether this is a 1xx response, which the final response follows."""
        return self.kind is HeaderKind.RESPONSE and self.named[b":status"][:1] == b"1"

    def _kind(self) -> HeaderKind:
        if b":status" in self.named:
            return HeaderKind.RESPONSE
        is_request = any(name.startswith(b":") for name in self.named)
        return HeaderKind.REQUEST if is_request else HeaderKind.TRAILERS

    def _problem(self) -> str:
        pseudo: list[bytes] = []
        seen_others = False
        is_value = _VALUE if self.kind is HeaderKind.REQUEST else _VALUE_OF_SERVERS
        for name, value in self.fields:
            if not _NAME(name):
                return f"header name {_shown(name)}"
            if not is_value(value):
                return f"value of {_shown(name)}: {_shown(value)}"
            if not name.startswith(b":"):
                seen_others = True
                if name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers"):
                    return f"field of HTTP/1.1 connections: {_shown(name)}: {_shown(value)}"
            elif seen_others or name in pseudo:
                return f"{_shown(name)} twice or after other fields"
            else:
                pseudo.append(name)
        return self._problem_of_pseudo(set(pseudo)) or self._problem_of_length()

    def _problem_of_pseudo(self, pseudo: set[bytes]) -> str:
        if self.kind is HeaderKind.RESPONSE:
            unknown = pseudo - {b":status"}
            # A `:status` that is not a number passes: `grpc_headers.response_problem` shows it.
            missing: set[bytes] = set()
        elif self.kind is HeaderKind.REQUEST:
            unknown = pseudo - _PSEUDO_OF_REQUESTS
            missing = {b":method", b":scheme", b":path"} - pseudo
            if not self.named.get(b":path", b"/"):
                return "empty :path"
        else:
            return ""
        for name in sorted(unknown):
            return f"unexpected {_shown(name)}"
        for name in sorted(missing):
            return f"missing {_shown(name)}"
        return ""

    def _problem_of_length(self) -> str:
        lengths = {value for name, value in self.fields if name == b"content-length"}
        if not lengths:
            return ""
        length = lengths.pop()
        if lengths or not length.isdigit() or len(length) > 19:
            return f"content-length {_shown(length)}"
        self.content_length = int(length)
        return ""


def _shown(text: bytes) -> str:
    return repr(text[:80])[1:]
