"""`python3 tests/kubernetes/single_node --dir DIR COMMAND`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.kubernetes.single_node.commands import main  # noqa: E402 - needs the path above

main()
