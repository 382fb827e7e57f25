"""Which worker runs which test, and what goes on when a worker dies."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

_TOGETHER = {
    "tests/deploy/test_image": "image",
    "tests/kubernetes/": "cluster",
    "tests/conformance/test_matrix": "matrix",
}
"""Groups are started before single tests, so what takes longest is not begun last."""


class WorkerSchedule(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each test to any worker, but all that need our image, or a cluster, to the same worker.

    That worker builds the image, or starts the cluster, once. The groups mostly wait, so the
    Makefile has more workers than groups. A test in which a worker dies is reported by name and is
    not tried again; all others run on the workers that are left. (The scheduler of pytest-xdist 3.8
    ends with an internal error there, or tries the test for ever.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((name for path, name in _TOGETHER.items() if nodeid.startswith(path)), nodeid)

    def remove_node(self, node: Any) -> Any:
        """Take a worker out; return the test in which it died."""
        units = self.assigned_work[node]
        left = [(unit, test) for unit in units.values() for test, done in unit.items() if not done]
        self.assigned_work[node] = {}
        super().remove_node(node)
        if not left:
            return None
        unit, crashed = left[0]
        unit[crashed] = True
        self.workqueue.update(
            {scope: unit for scope, unit in units.items() if not all(unit.values())}
        )
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: Any) -> None:
        """Leave out a new worker that does not know the tests yet: it asks again when it does."""
        if node in self.registered_collections:
            super()._reschedule(node)
