"""A DRA driver of ours with one defect: `python -m tests.check.defective_driver DEFECT ARG…`.

The defect patches the driver before `kubedevices ARG…` runs. So the rule has to find in a driver of
its own process what a published driver did wrong. `none` is no defect.
"""

import sys
from collections.abc import Sequence

from kubedevices.cli import main
from kubedevices.dra.device_plugin_guard import KubeletGuard
from tests.check.defects import (
    DEFECTS,
    VARIANTS,
    configuration,
    health,
    patch,
    prepare,
    process,
    registration,
    slices,
    state,
    unprepare,
)

__all__ = ["DEFECTS"]
_THEMES = (
    configuration,
    health,
    prepare,
    process,
    registration,
    slices,
    state,
    unprepare,
)  # each registers its defects


def run(name: str, arguments: Sequence[str]) -> int:
    """Break the driver, and run it; it does not wait for a kubelet that has just started."""
    patch(KubeletGuard, _is_young=lambda *_words: False)
    if name != "none":
        {**DEFECTS, **VARIANTS}[name]()
    return main(list(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
