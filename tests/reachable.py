"""What an object keeps alive: a test sees with it whether a long life fills the memory."""

import asyncio
import gc
import logging
from collections import Counter
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

_OF_THE_PROCESS = (
    type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType,
    logging.Logger, asyncio.AbstractEventLoop,
)  # fmt: skip


def reachable(root: object) -> Counter[str]:
    """Return how many objects of each type `root` keeps alive; code and the loop do not count."""
    seen, waiting = dict[int, Any](), [root]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not isinstance(each, _OF_THE_PROCESS):
            seen[id(each)] = each
            waiting += gc.get_referents(each)
    return Counter(type(each).__qualname__ for each in seen.values())
