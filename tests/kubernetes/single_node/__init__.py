"""A Kubernetes with one node for tests, made of release binaries, in its own namespaces.

`python3 tests/kubernetes/single_node --dir DIR up` starts it, as root. Outside of `DIR` and of the
cgroups `kubedevices-test-*` it changes nothing of the machine: no mount, link, sysctl or device
file. docs/development/real-kubernetes.md lists the commands and the binaries. The package uses only
the standard library.

layout       the paths in DIR, the addresses, the programs
settings     arguments and configuration files of the services
credentials  the certificates, tokens and kubeconfig files
images       container images made of directories
processes    starts and finds processes in namespaces and cgroups
node_mounts  the file systems of the node
commands     the commands and their arguments
"""
