"""Finds the lines in a program's output that say why it crashed: for Go, Python and Rust.

The output of other programs, or without a crash, is cut to its last lines.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

_GO = re.compile(r"^(panic: |fatal error: |F\d{4} \d\d:|.*\bmsg=.*level=fatal|.*level=fatal)")
_GO_FRAME = re.compile(r"^([\w./*()\-\[\]{}·…%]+)\(.*\)$")
_GO_PLACE = re.compile(r"^\t(\S.*?\.(?:go|s):\d+)")
_PYTHON = "Traceback (most recent call last):"
_PYTHON_FRAME = re.compile(r'^  File "([^"]+)", line \d+, in ')
_PYTHON_ERROR = re.compile(r"^[A-Za-z_][\w.]*(: |$)")
_RUST = re.compile(r"^thread '.*' (\(\d+\) )?panicked at ")
_LOGGING = ("k8s.io/klog", "github.com/golang/glog", "github.com/sirupsen/logrus", "log.")
_FOREIGN_GO = ("/vendor/", "/pkg/mod/")
_FOREIGN_PYTHON = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")


def last_words(text: str, lines: int = 3) -> str:
    """Return the message of a crash and its first own frame, or else the last `lines` lines."""
    printed = text.splitlines()
    for number, line in enumerate(printed):
        if _GO.match(line):
            return "\n".join(_of_go(printed[number:]))
        if _RUST.match(line):
            said = [each for each in printed[number + 1 : number + 2] if each.strip()]
            return "\n".join([line, *said])
    starts = [number for number, line in enumerate(printed) if line.strip() == _PYTHON]
    if starts:
        return "\n".join(_of_python(printed[starts[-1] :]))
    return "\n".join(_without_frames([line for line in printed if line.strip()])[-lines:])


def _without_frames(printed: Sequence[str]) -> list[str]:
    """Remove the stack that Go programs log below an error."""
    places = [bool(_GO_PLACE.match(line)) for line in printed]
    below = [*places[1:], False]
    return [
        line
        for line, is_place, has_place in zip(printed, places, below, strict=False)
        if not is_place and not has_place
    ]


def is_crash(text: str) -> bool:
    """Whether the output shows a crash; without one, the program decided to exit."""
    return any(
        line.startswith(("panic: ", "fatal error: ", _PYTHON)) or _RUST.match(line)
        for line in text.splitlines()
    )


def _of_go(crash: Sequence[str]) -> list[str]:
    """Return the message, the line with the signal, and the first frame of the program's code."""
    words = [crash[0]]
    if crash[1:] and crash[1].startswith(("[signal ", "\tpanic: ")):
        words.append(crash[1].strip())
    frames = _stack(crash)
    # A server that recovers and panics again stands above the panic that it saw.
    panics = [number for number, (call, _) in enumerate(frames) if call.startswith("panic(")]
    own = [each for each in frames[panics[-1] if panics else 0 :] if _is_its_own(each[0])]
    in_program = [each for each in own if not any(part in each[1] for part in _FOREIGN_GO)]
    first = (in_program or own)[:1]
    return [*words, *(f"{call.partition('(0x')[0]} at {place}" for call, place in first)]


def _stack(crash: Sequence[str]) -> list[tuple[str, str]]:
    """Return the calls and their places of the goroutine that crashed, the innermost first."""
    found: list[tuple[str, str]] = []
    for call, place in pairwise(crash):
        if found and not call.strip():  # the next goroutine
            break
        if _GO_FRAME.match(call) and (where := _GO_PLACE.match(place)):
            found.append((call, where[1]))
    return found


def _is_its_own(function: str) -> bool:
    """Whether a function is in the program or in its modules, not in Go or in a log library.

    The first part of a module path has a dot (`example.com/…`); packages of Go have none.
    """
    first = function.partition("/")[0] if "/" in function else ""
    return function.startswith("main.") or ("." in first and not function.startswith(_LOGGING))


def _of_python(crash: Sequence[str]) -> list[str]:
    """Return the error and the innermost frame that is not in a library."""
    frames = [line.strip() for line in crash if _PYTHON_FRAME.match(line)]
    own = [frame for frame in frames if not any(each in frame for each in _FOREIGN_PYTHON)]
    errors = [line for line in crash[1:] if _PYTHON_ERROR.match(line)]
    return [*errors[:1], *(own or frames)[-1:]]
