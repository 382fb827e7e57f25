"""A node for tests, in its own directory and with faults: tests device plugins in any language.

`Bench` is synchronous. The node and scanners run in a thread, on real sockets. pytest has it as
the fixture `bench`, see `kubedevices.testing`.

bench        `Bench`
faults       the calls of `Bench` that refuse or delay Register, or end streams
claims       the calls of `Bench` for DRA drivers
node         the device manager of a bench, which can refuse or delay Register
plugins      handles of running plugins: a scanner, or any program
dra_node     the DRA side: an API server and a kubelet, both stand-ins; the handle of a driver
loop_thread  an event loop in a thread, whose clock can be moved
"""

from kubedevices.testing.workbench.bench import Allocated, Bench, Numbers
from kubedevices.testing.workbench.plugins import ProcessPlugin, RunningPlugin, ScannerPlugin

__all__ = ["Allocated", "Bench", "Numbers", "ProcessPlugin", "RunningPlugin", "ScannerPlugin"]
