"""A whole node in a directory of its own, with faults: for tests of device plugins in any language.

`Bench` is synchronous; node and scanners run in a thread of theirs, on real sockets. With pytest it
comes as the fixture `bench`, see `kubedevices.testing`.

loop_thread  an event loop in a thread, whose clock can be moved
node         the device manager that answers Register badly when it is told to
plugins      handles of what runs against it: a scanner, or any program
dra_node     a kubelet's half of DRA and an API server, both stand-ins
driver       the handle of a scanner that runs as a DRA driver
claims       the calls of `Bench` for DRA drivers
faults       the calls of `Bench` that break something
facade       `Bench`
"""

from kubedevices.bench.bench import Allocated, Bench, Numbers
from kubedevices.bench.plugins import ProcessPlugin, RunningPlugin, ScannerPlugin

__all__ = ["Allocated", "Bench", "Numbers", "ProcessPlugin", "RunningPlugin", "ScannerPlugin"]
