"""How an exposed resource answers Allocate and GetPreferredAllocation."""

from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import SharesRefused, StatusCode
from kubedevices.expose.config import load_expose_config
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.plugin.capabilities import USE_DEFAULT, PreferredAllocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    PreferredAllocationRequest,
)


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
async def test_policies_count_replicas_as_their_device(
    tmp_path: Path, policy: str, available: list[str], chosen: list[str]
) -> None:
    """A `-` in an ID separates nothing."""
    scanner = make_scanner(tmp_path, f"  replicas: 3\n  allocation: {policy}\n")
    ids = tuple(f"card-{name}" for name in available)
    abilities = scanner.abilities_of("card")
    assert isinstance(abilities, PreferredAllocator)
    answer: Any = await abilities.get_preferred_allocation(  # type: ignore[misc]
        PreferredAllocationRequest((ContainerPreferredRequest(ids, (), 2),))
    )
    assert answer.containers == ([f"card-{name}" for name in chosen],)


@pytest.mark.parametrize(
    ("rule", "offered"),
    [
        ("", False),
        ("  allocation: none\n", False),
        ("  replicas: 2\n", True),
        ("  allocation: packed\n", True),
        ("  replicas: 2\n  allocation: none\n", True),
    ],
)
def test_a_preference_is_offered_only_with_a_policy(
    tmp_path: Path, rule: str, offered: bool
) -> None:
    """A kubelet asks for it before each Allocate, which would be two calls instead of one."""
    options = Hooks(make_scanner(tmp_path, rule).abilities_of("card")).options
    assert options.get_preferred_allocation_available is offered


def test_a_preference_that_comes_later_says_when_it_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubelet knows what a plugin can do from its registration."""
    scanner = make_scanner(tmp_path, "")
    make_scanner(tmp_path, "  allocation: packed\n")
    for _ in range(2):
        config, report = load_expose_config(tmp_path / "host.yaml")
        scanner.use(config, report)
    assert caplog.text.count("only after a restart of this plugin") == 1


async def test_a_request_for_two_replicas_can_be_refused(tmp_path: Path) -> None:
    """With replicas, two of them may be the same device."""
    one = AllocateRequest((ContainerAllocateRequest(("card-a::0",)),))
    two = AllocateRequest((ContainerAllocateRequest(("card-a::0", "card-a::1")),))
    rule = "  replicas: 2\n  renameShared: true\n"
    abilities = make_scanner(tmp_path, rule).abilities_of("card.shared")
    assert await abilities.allocate(two) is USE_DEFAULT
    rule += "  failRequestsGreaterThanOne: true\n"
    abilities = make_scanner(tmp_path, rule).abilities_of("card.shared")
    assert await abilities.allocate(one) is USE_DEFAULT
    with pytest.raises(SharesRefused, match=r"one card\.shared, not 2") as caught:
        await abilities.allocate(two)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
