"""The Container Device Interface (CDI): files that define container edits for named devices.

A plugin author creates `ContainerEdits`. A host has CDI files, each with one `CdiSpec`. A container
requests names. This package does not access files: `host.cdi_specs` reads and writes them,
`host.cdi_inventory` keeps our own files up to date.

names                  `vendor/class=name`: parse, validate; a CDI device name for any device ID
values                 the objects of a CDI file
parse                  JSON ⇄ values, with the JSON pointer of each error
validity               what is wrong with the content of a file
versions               the lowest sufficient version, and which runtimes can read a version
registry               all files together: which names resolve, and why a name does not
inject                 applies container edits to an OCI runtime configuration
container_annotations  names in container annotations, for old kubelets
"""

from kubedevices.values.cdi.container_annotations import *
from kubedevices.values.cdi.inject import *
from kubedevices.values.cdi.names import *
from kubedevices.values.cdi.parse import *
from kubedevices.values.cdi.registry import *
from kubedevices.values.cdi.validity import *
from kubedevices.values.cdi.values import *
from kubedevices.values.cdi.versions import *
