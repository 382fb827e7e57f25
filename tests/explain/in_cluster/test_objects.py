"""What a pod asks for, as the scheduler counts it."""

from typing import Any

import pytest

from kubedevices.explain.in_cluster.objects import requested

GPU = "example.com/gpu"


def asking(number: int, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: str(number)}}, **more}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [asking(1), asking(2)]}, 3),
        ({"containers": [asking(1)], "initContainers": [asking(2)]}, 2),
        ({"containers": [asking(2)], "initContainers": [asking(1), asking(1)]}, 2),
        ({"containers": [asking(2)], "initContainers": [asking(1, **SIDECAR)]}, 3),
        ({"containers": [asking(2)], "initContainers": [asking(1, **SIDECAR), asking(2)]}, 3),
        ({"containers": [asking(2)], **asking(5)}, 5),
    ],
    ids=["containers", "large init", "small init", "sidecar", "sidecar and init", "whole pod"],
)
def test_containers_that_run_at_once_count_together(spec: dict[str, Any], expected: int) -> None:
    """An init container has ended before the others start, a sidecar has not."""
    assert requested({"spec": spec}) == {GPU: expected}
