"""kubedevices.host.memory_limit, on files as the kernel shows them."""

import resource
from pathlib import Path

import pytest

from kubedevices.host.memory_limit import memory_limit

MIB = 2**20


@pytest.fixture(autouse=True)
def no_soft_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No user has set a limit."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)


@pytest.mark.parametrize(
    ("group", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "134217728\n"}, 128 * MIB),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a/b\n", {"memory.max": "max", "a/memory.max": "300000000"}, 300_000_000),
        ("0::/a/b\n", {"a/memory.max": "300000000", "a/b/memory.max": "200000000"}, 200_000_000),
        ("4:memory:/x\n0::/\n", {"memory/memory.limit_in_bytes": "134217728"}, 128 * MIB),
        ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:cpu,memory:/x\n", {"memory/x/memory.limit_in_bytes": "200000000"}, 200_000_000),
        ("1:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "200000000"}, None),
        ("0::/\n", {"memory.max": "0"}, None),
        ("what is this", {}, None),
    ],
)
def test_the_smallest_limit_on_the_way_counts(
    tmp_path: Path, group: str, files: dict[str, str], limit: int | None
) -> None:
    """In both versions of control groups; a limit that is none or unreadable does not count."""
    (tmp_path / "cgroup").write_text(group)
    for name, content in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert memory_limit(tmp_path / "cgroup", tmp_path / "fs") == limit


def test_a_soft_limit_counts_where_no_group_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ulimit -m` says how much memory a process outside of a container may use."""
    assert memory_limit(tmp_path / "none", tmp_path) is None
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128 * MIB, resource.RLIM_INFINITY))
    assert memory_limit(tmp_path / "none", tmp_path) == 128 * MIB
