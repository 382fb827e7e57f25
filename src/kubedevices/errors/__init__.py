"""Every exception of kubedevices. Each has fields, not only a text.

The tree of all classes is in docs/reference.md, made of the classes and their docstrings. A class
that is written into a module here is exported at once: no list names it.

shared     root, usage, sockets and files, the wire
container  what a container is to get: CDI, device files, runtimes
plugin     a plugin process
dra        a DRA driver
node       the device manager
watcher    a plugin found in the plugin registry directory
proxy      a plugin behind the proxy
check      a plugin under check
"""

from kubedevices.errors.check import *
from kubedevices.errors.container import *
from kubedevices.errors.dra import *
from kubedevices.errors.node import *
from kubedevices.errors.plugin import *
from kubedevices.errors.proxy import *
from kubedevices.errors.shared import *
from kubedevices.errors.watcher import *
