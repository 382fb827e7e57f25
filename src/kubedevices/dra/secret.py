"""A token or key that no message, log line, `repr` or report shows. Pure."""

from typing import Any, NoReturn

_SHORTEST = 8
"""Bytes; a shorter text may be a part of any word, and is no secret."""


class Secret:
    """Text or bytes. `str`, `repr` and `format` show a placeholder; only `reveal` shows the value.

    It cannot be pickled, and JSON cannot express it.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str | bytes) -> None:
        self.__value = value

    def reveal(self) -> str:
        """Return the text. Use it where it leaves the process: in a header."""
        return self.__value if isinstance(self.__value, str) else self.__value.decode()

    def reveal_bytes(self) -> bytes:
        """Return the bytes."""
        return self.__value if isinstance(self.__value, bytes) else self.__value.encode()

    def hide_in(self, text: str) -> str:
        """Return what a server sent without the secret: some proxies repeat our headers."""
        if len(self.reveal_bytes()) < _SHORTEST:
            return text
        return text.replace(self.reveal(), str(self))

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal_bytes() == self.reveal_bytes()

    def __hash__(self) -> int:
        return hash(self.reveal_bytes())

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")
