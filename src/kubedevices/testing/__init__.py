"""Doubles for tests of device plugins; the pytest plugin with its fixtures.

The fixtures are `bench`, `replay` and `dra_check`.

pytest loads this package in every session if kubedevices is installed. So the package imports the
other modules only when a test uses them. `kubedevices check` uses parts of it on machines
without pytest, so only `fixtures` imports pytest.

fixtures           the pytest plugin; it needs neither pytest-asyncio nor any setting
stub_plugin        `StubPlugin`, a device plugin whose answers a test sets
workbench          `Bench`, a whole node in a temporary directory
kubelet            a kubelet of the device plugin API that can misbehave on purpose
dra_kubelet        the kubelet's side of DRA
api_server         an API server in the process of a test, with faults

`conformance`, all checks of `kubedevices check` on a scanner, is in `check.pytest_check`, and so is
`check_driver`, all rules for DRA drivers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubedevices.check.pytest_check import DriverCheck, NotConformant, check_driver, conformance
    from kubedevices.testing.fixtures import Replayer, bench, dra_check, replay
    from kubedevices.testing.stub_plugin import StubPlugin
    from kubedevices.testing.workbench import Bench

__tracebackhide__ = True  # a failing test shows its own lines, not ours

__all__ = [
    "Bench",
    "DriverCheck",
    "NotConformant",
    "Replayer",
    "StubPlugin",
    "bench",
    "check_driver",
    "conformance",
    "dra_check",
    "replay",
]

_HOME_OF = {
    "Bench": "kubedevices.testing.workbench",
    "DriverCheck": "kubedevices.check.pytest_check",
    "NotConformant": "kubedevices.check.pytest_check",
    "Replayer": "kubedevices.testing.fixtures",
    "StubPlugin": "kubedevices.testing.stub_plugin",
    "bench": "kubedevices.testing.fixtures",
    "check_driver": "kubedevices.check.pytest_check",
    "conformance": "kubedevices.check.pytest_check",
    "dra_check": "kubedevices.testing.fixtures",
    "replay": "kubedevices.testing.fixtures",
}


# No __dir__: pytest reads every name in __dir__, so it would import all modules.
def __getattr__(name: str) -> Any:
    """Import a public name from its module at the first use (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
