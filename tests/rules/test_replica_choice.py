"""Which replicas a container may have, and which it gets."""

from typing import Any

import pytest

from kubedevices.errors import SharesRefused, StatusCode
from kubedevices.rules.replica_choice import check_shares, prefer
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest


@pytest.mark.parametrize(
    ("per_container", "distinct", "ids", "refusal"),
    [
        (1, False, "a::0", ""),
        (1, False, "a::0 b::0", "one card, not 2"),
        (2, False, "a::0 a::1 b::0", "only 2 card, not 3"),
        (None, True, "a::0 b::0 c::0", ""),
        (None, True, "b::0 a::0 a::1 a::0", "a::0, a::1 are shares of one device"),
        (None, False, "a::0 a::1 a::2", ""),
    ],
)
def test_which_replicas_a_container_may_have(
    per_container: int | None, distinct: bool, ids: str, refusal: str
) -> None:
    """A rule for each container: one each for two containers is something else."""
    asked = ContainerAllocateRequest((*ids.split(),))
    request = AllocateRequest((ContainerAllocateRequest(("a::0",)), asked))
    rule: Any = {"per_container": per_container, "distinct": distinct}
    if not refusal:
        check_shares(request, "card", **rule)
        return
    with pytest.raises(SharesRefused, match=refusal) as caught:
        check_shares(request, "card", **rule)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


def preferred(available: str, size: int, *, must: str = "", of: str = "", **rule: Any) -> str:
    """Answer every tie with the last of its devices; `of` is like `a4 b2`: replicas per device."""
    total = {each[0]: int(each[1:]) for each in of.split()}
    choosing = prefer(available.split(), must.split(), size, total, **rule)
    try:
        tie = next(choosing)
        while True:
            tie = choosing.send(tie.devices[-tie.size :])
    except StopIteration as end:
        return " ".join(end.value)


@pytest.mark.parametrize(
    ("available", "size", "rule", "chosen"),
    [
        # nothing in use: a tie
        ("a::0 a::1 b::0 b::1 c::0 c::1", 1, {"of": "a2 b2 c2"}, "c::0"),
        ("a::0 a::1 b::0 b::1 c::0 c::1", 2, {"of": "a2 b2 c2"}, "b::0 c::0"),
        ("a::0 a::1 b::0 b::1 c::0 c::1", 3, {"of": "a2 b2 c2"}, "a::0 b::0 c::0"),
        ("a::0 a::1 b::0 b::1 c::0 c::1", 4, {"of": "a2 b2 c2"}, "a::0 b::0 c::0 c::1"),
        # a is used twice, b once: different devices first, then the less used
        ("a::2 a::3 b::1 b::2 b::3", 1, {"of": "a4 b4"}, "b::1"),
        ("a::2 a::3 b::1 b::2 b::3", 2, {"of": "a4 b4"}, "b::1 a::2"),
        ("a::2 a::3 b::1 b::2 b::3", 3, {"of": "a4 b4"}, "b::1 a::2 b::2"),
        # whole and shared devices: what counts is how many have them
        ("a::0 b::1 b::2", 1, {"of": "a1 b8"}, "a::0"),
        # must_include counts
        ("a::0 a::1 b::0 b::1", 2, {"of": "a2 b2", "must": "b::1"}, "b::1 a::0"),
        ("a::0 a::1 b::0 b::1", 2, {"of": "a2 b2", "must": "b::1 b::0"}, "b::0 b::1"),
        # fill the most used
        ("a::0 a::1 a::2 b::1 b::2", 1, {"of": "a3 b3", "spreading": "pack"}, "b::1"),
        ("a::0 a::1 a::2 b::1 b::2", 3, {"of": "a3 b3", "spreading": "pack"}, "b::1 b::2 a::0"),
        ("a::0 a::1 b::0 b::1", 2, {"of": "a2 b2", "spreading": "pack"}, "b::0 b::1"),
        # never two of one device
        ("a::0 a::1 b::0 b::1", 3, {"of": "a2 b2", "distinct": True}, ""),
        ("a::0 a::1 b::1", 2, {"of": "a2 b2", "distinct": True, "spreading": "pack"}, "b::1 a::0"),
        ("a::0 a::1 b::1", 2, {"of": "a2 b2", "distinct": True, "must": "a::1"}, "a::1 b::1"),
        # what is not known to the rule
        ("a::9 z::0", 1, {}, "z::0"),
        ("", 1, {"of": "a1"}, ""),
    ],
)  # fmt: skip
def test_which_replicas_are_preferred(
    available: str, size: int, rule: dict[str, Any], chosen: str
) -> None:
    """By what the kubelet calls available; the plugin is asked where that leaves a choice."""
    assert preferred(available, size, **rule) == chosen
