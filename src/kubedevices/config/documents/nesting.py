"""How deep brackets are nested in a text. Pure, and quick also for a text made to be slow."""

_OPENING, _CLOSING = b"[{", b"]}"
_OTHERS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_ONE_KIND = bytes.maketrans(_OPENING + _CLOSING, b"[[]]")


def is_deeper(text: bytes, limit: int) -> bool:
    """Whether the brackets of `text` are nested more than `limit` levels deep.

    Brackets in quotes count too: the caller removes quoted texts first. A text whose brackets do
    not match may be called deeper than it is, but never less deep.
    """
    if sum(map(text.count, (b"[", b"{"))) <= limit:
        return False
    brackets = text.translate(_ONE_KIND, _OTHERS)
    # Each round removes the innermost level of all branches. So the text is as deep as the number
    # of rounds, and the brackets that remain have no partner.
    for rounds in range(limit + 1):
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            return rounds + inner.count(b"[") > limit
        brackets = inner
    return True
