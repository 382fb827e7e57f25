"""`--dist=loadgroup`: one worker runs all tests that share our image, a cluster, or worlds."""

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

GROUPS = {
    "tests/deploy/test_image": "image",
    "tests/kubernetes/": "cluster",
    "tests/proxy/test_every_rule": "every rule",
}
"""The groups of tests, by the start of their IDs."""


def group_of(nodeid: str) -> str:
    """Return the group of a test; a test without a group is its own."""
    return next((name for path, name in GROUPS.items() if nodeid.startswith(path)), nodeid)


class Groups(LoadGroupScheduling):  # type: ignore[misc]
    """Groups tests by their folder: pytest-xdist 3.8 loses its own groups with pytest 9.2.

    It neither repeats a test that ended its worker, nor waits for tests that are done.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove a worker; return the test that ended it, None if it had none."""
        work = self.assigned_work[node]
        waiting = (name for unit in work.values() for name, is_done in unit.items() if not is_done)
        ended_by = next(waiting, None)
        for scope, unit in [*work.items()]:
            if ended_by in unit:
                unit[ended_by] = True
            if all(unit.values()):
                del work[scope]
        super().remove_node(node)
        return ended_by


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups | None:
    """Let `Groups` schedule the tests of `--dist=loadgroup`."""
    return Groups(config, log) if config.getoption("dist") == "loadgroup" else None
