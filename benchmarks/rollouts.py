"""Which devices are missing during updates of a DaemonSet, in the API and in the kubelet.

The updates run on a real Kubernetes, and pods with a device are created during each update.
`python -m benchmarks.rollouts` needs root and the program `cluster`; see
docs/development/real-kubernetes.md.
"""

import argparse

from benchmarks import measure
from tests.kubernetes.cluster import running_cluster
from tests.kubernetes.rollout import DEVICES, Rollouts

NAMESPACE = "rollouts"


def main() -> None:
    """Print the numbers that docs/upgrade.md quotes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollouts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only test that the benchmark works")
    count, pods = (1, 1) if parser.parse_args().quick else (10, 4)
    with running_cluster() as cluster, cluster.namespace(NAMESPACE) as namespace:
        rollouts = Rollouts(cluster, namespace)
        rollouts.deploy()
        found = rollouts.roll(count, pods)
    away = [seen for seen in found.api if seen != str(DEVICES)]
    rows = [
        ["updates", str(count)],
        ["allocatable in the API, below the number of devices", ", ".join(away) or "never"],
        ["requests to the kubelet", str(found.questions)],
        ["ms in which the kubelet lacked devices", _milliseconds(found.gaps)],
        ["pods created meanwhile", ", ".join(f"{n} {phase}" for phase, n in found.phases.items())],
        ["s for one update, median", f"{measure.median(found.turns):.1f}"],
    ]
    measure.table("Updates of a DaemonSet", ["", "measured"], rows)


def _milliseconds(gaps: list[float]) -> str:
    return ", ".join(f"{gap * 1000:.0f}" for gap in gaps) or "never"


if __name__ == "__main__":
    main()
