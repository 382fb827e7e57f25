"""Intel SGX: sgx.intel.com/enclave for enclaves, provision for containers that attest."""

from pathlib import Path

import kubedevices as kd
from kubedevices.plugin.scanners import static
from kubedevices.rules.replicas import replicate

PODS = 110  # the default limit of pods on a node


def find(dev: Path = Path("/dev")) -> kd.DeviceTree:
    """Find the two device files; they belong to all CPUs, so they have no NUMA node."""
    tree = kd.DeviceTree()
    for name in ("enclave", "provision"):
        if (dev / f"sgx_{name}").exists():
            tree.add(name, kd.Device(f"sgx-{name}", paths=[f"/dev/sgx_{name}"], numa_nodes=()))
    return replicate(tree, PODS)


if __name__ == "__main__":
    kd.run(static(find()), domain="sgx.intel.com")
