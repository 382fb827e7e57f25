"""`kubedevices` with all modules loaded; `preloaded_supervisor` starts it by a fork.

A check starts some thirty plugin processes, and a start of Python took most of their time.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from kubedevices.cli import main

__all__ = ["main"]

KUBEDEVICES = (sys.executable, str(Path(__file__)))
"""The command of `kubedevices`, as words."""

if __name__ == "__main__":
    os._exit(main())
