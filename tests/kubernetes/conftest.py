"""The cluster, started once for all tests."""

from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Give a real Kubernetes with one node."""
    with running_cluster() as started:
        yield started
