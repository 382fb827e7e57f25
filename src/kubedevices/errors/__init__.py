"""All exceptions of kubedevices. Each has attributes with the facts, not only a text.

`python -m tests.test_errors` writes the tree of all classes and their docstrings into
docs/reference.md. This package exports every class of its modules automatically.

shared     the root, wrong usage, sockets and files, gRPC calls
container  CDI, device files, runtimes
plugin     a plugin process
dra        a DRA driver
node       the kubelet's side (device manager), with the kubelet's texts
watcher    a plugin in the plugin registry directory, with the kubelet's texts
proxy      a plugin behind the proxy
check      a plugin under `kubedevices check`
words      parts of messages: "did you mean", "2 devices"
safe_text  escapes in texts of strangers, for each format that we print
"""

from kubedevices.errors.check import *
from kubedevices.errors.container import *
from kubedevices.errors.dra import *
from kubedevices.errors.node import *
from kubedevices.errors.plugin import *
from kubedevices.errors.proxy import *
from kubedevices.errors.shared import *
from kubedevices.errors.watcher import *
