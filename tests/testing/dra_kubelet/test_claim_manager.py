"""`ClaimManager`: which pod may use a claim."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import DynamicResourcesFailed
from kubedevices.testing.dra_kubelet.claim_manager import ClaimManager, DraPod
from kubedevices.values.allocation import ClaimReference

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-uid"}
POD = {"resource": "pods", "name": "p", "uid": "p-uid"}


class Api:
    """Has one claim of an unregistered driver, with the reservations `reserved`."""

    def __init__(self, *reserved: Mapping[str, str]) -> None:
        self._reserved = reserved

    async def get_claim(self, claim: ClaimReference) -> Mapping[str, Any]:
        results = [{"driver": "x.com", "pool": "n", "device": "d", "request": "r"}]
        allocation = {"devices": {"results": results}}
        status = {"reservedFor": [*self._reserved], "allocation": allocation}
        return {"metadata": {"uid": "uid-1"}, "status": status}

    async def delete_slices(self, node_name: str, driver: str) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("reserved", "pod", "may_use"),
    [
        ((POD,), DraPod("p-uid", "p", ("c",)), True),
        ((POD,), DraPod("other", "p", ("c",)), False),
        ((), DraPod("p-uid", "p", ("c",)), False),
        ((GROUP,), DraPod("p-uid", "p", ("c",), group="g"), True),
        ((GROUP, POD), DraPod("other", "o", ("c",), group="g"), True),
        ((GROUP,), DraPod("p-uid", "p", ("c",), group="other"), False),
        ((GROUP,), DraPod("p-uid", "p", ("c",)), False),
        ((GROUP | {"name": ""},), DraPod("p-uid", "p", ("c",)), False),
        ((GROUP | {"resource": "workloads"},), DraPod("p-uid", "p", ("c",), group="g"), False),
        ((GROUP | {"apiGroup": "x.com"},), DraPod("p-uid", "p", ("c",), group="g"), False),
    ],
)
async def test_a_claim_is_for_the_pods_and_pod_groups_that_reserved_it(
    tmp_path: Path, reserved: tuple[Mapping[str, str], ...], pod: DraPod, may_use: bool
) -> None:
    """A kubelet knows the UID of a pod, but only the name of its PodGroup."""
    kubelet = ClaimManager(tmp_path, "n", Api(*reserved))
    reason = "x.com is not registered" if may_use else "is not allowed to use ResourceClaim c"
    with pytest.raises(DynamicResourcesFailed, match=reason):
        await kubelet.prepare(pod)
