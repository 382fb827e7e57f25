"""The golden vectors: answers of a kubelet 1.32, compared with the answers of the node.

If our answer differs, the test names the row of docs/differences-from-kubelet.md.
"""

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden")


def load(name: str) -> Any:
    """Return the content of one JSON file, named without its suffix."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def cases(name: str) -> list[tuple[int, Any]]:
    """Return the entries of a list of vectors with their numbers, for parametrized tests."""
    return list(enumerate(load(name)))
