"""What is wrong with a text that is not JSON, in the words of the kubelet's language.

For `checkpoint`, once Python's parser has refused a text: kubelets log these very sentences, so a
person who looks for them finds the same ones here.
"""

import re
from typing import NoReturn

END = "unexpected end of JSON input"

_SPACE = re.compile(rb"[ \t\r\n]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS = re.compile(rb"[0-9]*")
_LITERALS = (b"true", b"false", b"null")
_HEX = b"0123456789abcdefABCDEF"
_NAMED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 92: "\\\\"}


class _Wrong(Exception):
    """A character that cannot be where it is, or the end of the text."""


def explain(data: bytes) -> str:
    """Return the first mistake in `data`, an empty string when it is JSON."""
    try:
        _Scanner(data).document()
    except _Wrong as mistake:
        return str(mistake)
    return ""


class _Scanner:
    """Walks over one JSON text without building anything; nesting costs no stack."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def document(self) -> None:
        closing: list[bytes] = []
        self._space()
        while True:
            if self._opened(closing):
                continue
            while self._ended(closing):
                pass
            if not closing:
                return

    def _opened(self, closing: list[bytes]) -> bool:
        """Read up to the end of a value; True when a container began and a value is to come."""
        start = self._peek()
        if start == b"{":
            self._skip()
            if self._peek() != b"}":
                closing.append(b"}")
                self._key()
                return True
            self._skip()
        elif start == b"[":
            self._skip()
            if self._peek() != b"]":
                closing.append(b"]")
                return True
            self._skip()
        else:
            self._scalar(start)
        self._space()
        return False

    def _ended(self, closing: list[bytes]) -> bool:
        """Read what follows a value; True when that ended a container, which is a value too."""
        if not closing:
            if self._at < len(self._data):
                self._wrong("after top-level value")
            return False
        inside = "object key:value pair" if closing[-1] == b"}" else "array element"
        after = self._peek()
        if after == closing[-1]:
            closing.pop()
            self._skip()
            return True
        if after != b",":
            self._wrong(f"after {inside}")
        self._skip()
        if closing[-1] == b"}":
            self._key()
        return False

    def _key(self) -> None:
        if self._peek() != b'"':
            self._wrong("looking for beginning of object key string")
        self._string()
        self._space()
        if self._peek() != b":":
            self._wrong("after object key")
        self._skip()

    def _scalar(self, start: bytes) -> None:
        if start == b'"':
            self._string()
        elif start == b"-" or start.isdigit():
            self._number()
        else:
            literal = next((each for each in _LITERALS if each.startswith(start)), None)
            if literal is None:
                self._wrong("looking for beginning of value")
            for expected in literal:
                wanted = chr(expected)
                if self._peek() != bytes([expected]):
                    self._wrong(f"in literal {literal.decode()} (expecting '{wanted}')")
                self._at += 1

    def _string(self) -> None:
        self._at += 1
        while True:
            self._match(_PLAIN)
            here = self._peek()
            if here == b'"':
                self._at += 1
                return
            if here != b"\\":
                self._wrong("in string literal")
            self._at += 1
            escape = self._peek()
            if escape not in b'bfnrt\\/"u':
                self._wrong("in string escape code")
            self._at += 1
            for _ in range(4 if escape == b"u" else 0):
                if self._peek() not in _HEX:
                    self._wrong("in \\u hexadecimal character escape")
                self._at += 1

    def _number(self) -> None:
        if self._peek() == b"-":
            self._at += 1
            if not self._peek().isdigit():
                self._wrong("in numeric literal")
        if self._peek() == b"0":
            self._at += 1
        else:
            self._match(_DIGITS)
        if self._data[self._at : self._at + 1] == b".":
            self._at += 1
            self._digits("after decimal point in numeric literal")
        if self._data[self._at : self._at + 1] in (b"e", b"E"):
            self._at += 1
            if self._peek() in (b"+", b"-"):
                self._at += 1
            self._digits("in exponent of numeric literal")

    def _digits(self, where: str) -> None:
        if not self._peek().isdigit():
            self._wrong(where)
        self._match(_DIGITS)

    # ------------------------------------------------------------ characters

    def _peek(self) -> bytes:
        """Return the next character; there must be one, else the text ends too early."""
        here = self._data[self._at : self._at + 1]
        if not here:
            raise _Wrong(END)
        return here

    def _skip(self) -> None:
        self._at += 1
        self._space()

    def _space(self) -> None:
        self._match(_SPACE)

    def _match(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._data, self._at)
        self._at = found.end() if found else self._at

    def _wrong(self, where: str) -> NoReturn:
        raise _Wrong(f"invalid character {_quoted(self._data[self._at])} {where}")


def _quoted(code: int) -> str:
    """Return a byte as a quoted character, escaped unless it can be printed."""
    if code == ord("'"):
        return "'\\''"
    if code in _NAMED:
        return f"'{_NAMED[code]}'"
    shown = chr(code)
    return (
        f"'{shown}'"
        if shown.isprintable()
        else f"'\\x{code:02x}'"
        if code < 128
        else f"'\\u{code:04x}'"
    )
