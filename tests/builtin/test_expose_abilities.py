"""How an exposed resource answers Allocate and GetPreferredAllocation."""

from pathlib import Path

import pytest

from kubedevices.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    PreferredAllocationRequest,
)
from kubedevices.builtin.expose import ExposeScanner
from kubedevices.errors import RpcError, StatusCode
from kubedevices.plugin.capabilities import USE_DEFAULT


def make_scanner(root: Path, resource: str) -> ExposeScanner:
    (root / "dev").mkdir(exist_ok=True)
    for name in ("card-a", "card-b"):
        (root / "dev" / name).touch()
    (root / "host.yaml").write_text(
        "version: 1\nnamespace: example.com\nresources:\n- name: card\n"
        f"  match: [{{path: /dev/card-*}}]\n{resource}"
    )
    scanner = ExposeScanner.from_file(root / "host.yaml", dev_root=root / "dev")
    scanner.list_devices()
    return scanner


@pytest.mark.parametrize(
    ("policy", "available", "chosen"),
    [
        ("none", ["a::0", "a::1", "a::2", "b::0", "b::1"], ["a::0", "b::0"]),
        ("packed", ["a::0", "a::1", "b::0", "b::1", "b::2"], ["a::0", "a::1"]),
        ("balanced", ["a::1", "b::0", "b::1", "b::2"], ["b::0", "b::1"]),
        ("distributed", ["a::1", "b::0", "b::1", "b::2"], ["b::0", "b::1"]),
        ("distributed", ["a::0", "a::1", "b::1", "b::2"], ["a::0", "b::1"]),
    ],
)
async def test_each_policy_sees_replicas_of_one_device_as_one(
    tmp_path: Path, policy: str, available: list[str], chosen: list[str]
) -> None:
    """A `-` in an ID separates nothing."""
    scanner = make_scanner(tmp_path, f"  replicas: 3\n  allocation: {policy}\n")
    ids = tuple(f"card-{name}" for name in available)
    answer = await scanner.abilities_of("card").get_preferred_allocation(
        PreferredAllocationRequest((ContainerPreferredRequest(ids, (), 2),))
    )
    assert answer.containers == (tuple(f"card-{name}" for name in chosen),)


async def test_more_than_one_can_be_refused(tmp_path: Path) -> None:
    """With replicas, two of them may be the same device."""
    one = AllocateRequest((ContainerAllocateRequest(("card-a::0",)),))
    two = AllocateRequest((ContainerAllocateRequest(("card-a::0", "card-a::1")),))
    rule = "  replicas: 2\n  renameShared: true\n"
    abilities = make_scanner(tmp_path, rule).abilities_of("card.shared")
    assert await abilities.allocate(two) is USE_DEFAULT
    rule += "  failRequestsGreaterThanOne: true\n"
    abilities = make_scanner(tmp_path, rule).abilities_of("card.shared")
    assert await abilities.allocate(one) is USE_DEFAULT
    with pytest.raises(RpcError, match=r"one card\.shared only, not 2") as caught:
        await abilities.allocate(two)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
