"""The stand-in for an API server with a big cluster, as a process: `big_cluster NODES KUBECONFIG`.

Each node has a pool of ten slices of eight GPUs, an extended resource, and two pods with a claim
each. The pods are as large as those of a cluster: with managed fields, volumes and variables. On
every tenth node the GPUs are H100, and all of them are held. Three pods are pending: `held` asks
for an H100, `free` for two A100 on one PCIe root, `fpga` for more of the extended resource than a
node has left.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubedevices.testing.api_server import ApiServer

Object = dict[str, Any]

DRIVER = "gpu.example.com"
SLICES, DEVICES, PODS = 10, 8, 2
PENDING = ("held", "free", "fpga")


def fill(server: ApiServer, nodes: int) -> None:
    """Write all objects."""
    server.put(
        "deviceclasses",
        {
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        },
    )
    for number in range(nodes):
        for plural, made in _node(number):
            server.put(plural, made)
    root = {"matchAttribute": f"{DRIVER}/pcieRoot", "requests": ["gpu"]}
    server.put("resourceclaims", _claim("held", []))
    server.put("resourceclaims", _claim("free", [], "A100", count=2, constraints=[root]))
    server.put("pods", _pod("held", claim="held"))
    server.put("pods", _pod("free", claim="free"))
    server.put("pods", _pod("fpga", number=3))


def _node(number: int) -> Iterator[tuple[str, Object]]:
    name, is_wanted = f"node-{number:03}", number % 10 == 0
    numbers = {"example.com/fpga": "4", "cpu": "64", "memory": "256Gi", "pods": "110"}
    metadata = {"name": name, "labels": {f"example.com/label-{i}": "x" * 20 for i in range(30)}}
    images = [{"names": [f"registry.example.com/image-{i}@sha256:{'0' * 64}"]} for i in range(50)]
    status = {"capacity": numbers, "allocatable": numbers, "images": images}
    yield "nodes", {"metadata": metadata, "spec": {}, "status": status}
    for at in range(SLICES):
        pool = {"name": name, "generation": 1, "resourceSliceCount": SLICES}
        devices = [_gpu(name, at * DEVICES + i, is_wanted=is_wanted) for i in range(DEVICES)]
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        yield "resourceslices", {"metadata": {"name": f"{name}-{at}"}, "spec": spec}
    held = [f"gpu-{i}" for i in range(SLICES * DEVICES if is_wanted else PODS)]
    for at in range(PODS):
        pod = f"train-{number:03}-{at}"
        for start in range(at, len(held), 32 * PODS):  # a claim has at most 32 devices
            claim = f"{pod}-{start}"
            results = [
                {"request": "gpu", "driver": DRIVER, "pool": name, "device": each}
                for each in held[start : start + 32 * PODS : PODS]
            ]
            yield "resourceclaims", _claim(claim, results, pod=pod)
        yield "pods", _pod(pod, name)


def _gpu(node: str, number: int, *, is_wanted: bool) -> Object:
    texts = {
        "model": "H100" if is_wanted else "A100",
        "uuid": f"GPU-{node}-{number:04}-4a1b-9c3d-0123456789ab",
        "pcieRoot": f"pci0000:{number // 4:02x}",
        "productName": "Example Accelerator 80GB",
    }
    attributes: Object = {key: {"string": value} for key, value in texts.items()}
    attributes |= {"numaNode": {"int": number // 40}, "driverVersion": {"version": "550.54.15"}}
    return {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _claim(
    name: str,
    results: list[Object],
    model: str = "H100",
    *,
    pod: str = "",
    count: int = 1,
    constraints: list[Object] | None = None,
) -> Object:
    expression = f'device.attributes["{DRIVER}"].model == "{model}"'
    exactly = {
        "deviceClassName": DRIVER,
        "selectors": [{"cel": {"expression": expression}}],
        "count": count,
    }
    devices: Object = {
        "requests": [{"name": "gpu", "exactly": exactly}],
        "constraints": constraints or [],
    }
    status: Object = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": f"{pod}-uid"}],
    }
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": devices},
        **({"status": status} if results else {}),
    }


def _pod(name: str, node: str = "", *, claim: str = "", number: int = 1) -> Object:
    managed = {"manager": "kubelet", "fieldsV1": {f"f:{i}": {"f:x": {}} for i in range(100)}}
    variables = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(40)]
    mounts = [{"name": f"volume-{i}", "mountPath": f"/volumes/{i}"} for i in range(10)]
    container: Object = {"name": "main", "image": "registry.example.com/train:1", "env": variables}
    limits = {"example.com/fpga": str(number)}
    container |= {"volumeMounts": mounts, "resources": {"limits": limits}}
    spec: Object = {"containers": [container], **({"nodeName": node} if node else {})}
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    status: Object = {"phase": "Running" if node else "Pending", "conditions": []}
    metadata: Object = {
        "name": name,
        "namespace": "ml",
        "uid": f"{name}-uid",
        "managedFields": [managed],
    }
    return {"metadata": metadata, "spec": spec, "status": status}


async def main(nodes: int, kubeconfig: Path) -> None:
    """Serve until stdin ends; write the kubeconfig when everything is there."""
    server = ApiServer()
    fill(server, nodes)
    async with server.running():
        kubeconfig.write_text(server.kubeconfig())
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
