"""Targets with a bug each, which a search must find."""

import os
import signal
import time

from tests.fuzz.target import Target, by_name

MANY = b"[" * 1000


def harmless(_data: bytes) -> None:
    """Have no bug."""


def raises(data: bytes) -> None:
    """Raise for a long input."""
    if len(data) >= 5:
        raise ValueError("too long")


def crashes(data: bytes) -> None:
    """Die as a parser in C does with too deep an input."""
    if data.count(b"[") >= 100:
        os.kill(os.getpid(), signal.SIGSEGV)


def computes(data: bytes) -> None:
    """Never end, and keep the processor busy."""
    while b"[" in data:
        pass


def waits(data: bytes) -> None:
    """Never end, and wait."""
    if b"[" in data:
        time.sleep(10**6)


def takes_memory(data: bytes) -> None:
    """Make a gigabyte of a small input."""
    if b"[" in data:
        bytearray(2**30)


TARGETS = by_name(
    [
        Target("harmless", harmless),
        Target("raises", raises),
        Target("crashes", crashes, tokens=(b"[",)),
        Target("computes", computes, tokens=(b"[",), cpu_seconds=0.2),
        Target("waits", waits, tokens=(b"[",), clock_seconds=0.5),
        Target("takes-memory", takes_memory, tokens=(b"[",)),
        Target("seed", raises, seeds=(MANY,)),
    ]
)
