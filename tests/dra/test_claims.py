"""Allocation and configuration of a claim, as the driver reads them."""

from typing import Any

import pytest

from kubedevices.dra.claims import ClaimHolder, Result, check_free, configuration_of, results_of
from kubedevices.errors import ClaimRefused
from kubedevices.values.allocation import ClaimReference

DRIVER = "example.com"
WANTED = ClaimReference("default", "uid-1", "one")


def result(request: str = "gpu", device: str = "gpu-0", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": "node1", "device": device, **more}


def claim(*results: dict[str, Any], uid: str = "uid-1", **devices: Any) -> dict[str, Any]:
    allocation = {"devices": {"results": list(results), **devices}}
    return {"metadata": {"uid": uid}, "status": {"allocation": allocation}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([result()], [Result("gpu", "node1", "gpu-0")], id="one"),
        pytest.param(
            [result(), result("nic", "nic-0")],
            [Result("gpu", "node1", "gpu-0"), Result("nic", "node1", "nic-0")],
            id="two requests",
        ),
        pytest.param([result("gpu/large")], [Result("gpu", "node1", "gpu-0")], id="firstAvailable"),
        pytest.param(
            [result(device="gpu-0"), result(device="gpu-1")],
            [Result("gpu", "node1", "gpu-0"), Result("gpu", "node1", "gpu-1")],
            id="All",
        ),
        pytest.param(
            [result(driver="other.com"), result(), result(driver="a.com")],
            [Result("gpu", "node1", "gpu-0")],
            id="other's",
        ),
        pytest.param(
            [result(adminAccess=True)],
            [Result("gpu", "node1", "gpu-0", admin_access=True)],
            id="admin",
        ),
        pytest.param(
            [result(shareID="s1")], [Result("gpu", "node1", "gpu-0", share_id="s1")], id="share"
        ),
    ],
)
def test_devices_of_our_driver_are_read(
    given: list[dict[str, Any]], expected: list[Result]
) -> None:
    """Devices of other drivers are left out."""
    assert results_of(claim(*given), WANTED, DRIVER) == tuple(expected)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (claim(result(), uid="uid-2"), "replaced: its UID is uid-2"),
        ({"metadata": {"uid": "uid-1"}}, "nothing is allocated"),
        ({"metadata": {"uid": "uid-1"}, "status": {"reservedFor": []}}, "nothing is allocated"),
        (claim(), "no device of the driver"),
        (claim(result(driver="other.com")), "no device of the driver"),
    ],
)
def test_a_refused_claim_has_a_reason(found: dict[str, Any], word: str) -> None:
    """The text goes into the pod's event, with the name of the claim."""
    with pytest.raises(ClaimRefused, match=word) as refused:
        results_of(found, WANTED, DRIVER)
    assert str(refused.value).startswith("claim default/one: ")


def config(source: str, *requests: str, driver: str = DRIVER, **parameters: Any) -> dict[str, Any]:
    made = {"source": source, "opaque": {"driver": driver, "parameters": parameters}}
    return made | ({"requests": list(requests)} if requests else {})


V1, V2 = "gpu.example.com/v1", "gpu.example.com/v2"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (
            {"apiVersion": V1, "kind": "Gpu", "a": 1},
            {"apiVersion": V1, "kind": "Gpu", "b": 2},
            {"apiVersion": V1, "kind": "Gpu", "a": 1, "b": 2},
        ),
        (
            {"apiVersion": V1, "kind": "Gpu", "a": 1},
            {"apiVersion": V1, "kind": "Mig", "b": 2},
            {"apiVersion": V1, "kind": "Mig", "b": 2},
        ),
        (
            {"apiVersion": V1, "kind": "Gpu", "a": 1},
            {"apiVersion": V2, "kind": "Gpu", "b": 2},
            {"apiVersion": V2, "kind": "Gpu", "b": 2},
        ),
        ({"kind": "Gpu", "a": 1}, {"kind": "Mig"}, {"kind": "Mig"}),
        ({"kind": "Gpu", "a": 1}, {"b": 2}, {"kind": "Gpu", "a": 1, "b": 2}),
        ({"a": 1}, {"kind": "Gpu", "b": 2}, {"kind": "Gpu", "a": 1, "b": 2}),
    ],
    ids=["same", "another kind", "another version", "no version", "kind first", "kind second"],
)
def test_configuration_of_another_kind_or_version_replaces(
    first: dict[str, Any], second: dict[str, Any], expected: dict[str, Any]
) -> None:
    """An entry without kind and version has that of the others."""
    found = claim(
        result("nic"), config=[config("FromClaim", **second), config("FromClass", **first)]
    )
    assert configuration_of(found, DRIVER) == {"nic": expected}


def test_a_third_entry_adds_to_the_entry_that_replaced_the_first() -> None:
    """Nothing of the first entry comes back."""
    entries = [
        config("FromClass", kind="Gpu", a=1),
        config("FromClaim", kind="Mig", b=1),
        config("FromClaim", kind="Mig", c=1),
    ]
    found = claim(result("nic"), config=entries)
    assert configuration_of(found, DRIVER) == {"nic": {"kind": "Mig", "b": 1, "c": 1}}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], {}),
        ([config("FromClaim", a=1)], {"gpu": {"a": 1}, "nic": {"a": 1}}),
        (
            [config("FromClaim", a=2), config("FromClass", a=1, b=1)],
            {"gpu": {"a": 2, "b": 1}, "nic": {"a": 2, "b": 1}},
        ),
        (
            [config("FromClaim", a=1), config("FromClaim", a=2)],
            {"gpu": {"a": 2}, "nic": {"a": 2}},
        ),
        (
            [config("FromElsewhere", a=2), config("FromClass", a=1)],
            {"gpu": {"a": 2}, "nic": {"a": 2}},
        ),
        ([config("FromClass", "nic", a=1)], {"nic": {"a": 1}}),
        ([config("FromClaim", "gpu", a=1)], {"gpu": {"a": 1}}),
        ([config("FromClaim", "gpu/large", a=1)], {"gpu": {"a": 1}}),
        ([config("FromClaim", "gpu/small", a=1)], {}),
        ([config("FromClaim", driver="other.com", a=1)], {}),
        ([config("FromClaim", driver="a.com", a=1)], {}),
        ([{"source": "FromClaim"}], {}),
    ],
    ids=str,
)
def test_later_configuration_overrides_earlier(
    entries: list[dict[str, Any]], expected: dict[str, dict[str, Any]]
) -> None:
    """The claim overrides the class, later entries earlier ones, for all or some requests."""
    found = claim(
        result("gpu/large"),
        result("nic"),
        result("x", driver="other.com"),
        result("y", driver="a.com"),
        config=entries,
    )
    assert configuration_of(found, DRIVER) == expected


PLAIN = Result("gpu", "node1", "gpu-0")
ADMIN, SHARED = PLAIN._replace(admin_access=True), PLAIN._replace(share_id="s1")


@pytest.mark.parametrize(
    ("asked", "held", "is_free"),
    [
        (PLAIN, PLAIN, False),
        (PLAIN, PLAIN._replace(request="other"), False),
        (PLAIN, PLAIN._replace(device="gpu-1"), True),
        (ADMIN, PLAIN, True),
        (PLAIN, ADMIN, True),
        (SHARED, SHARED._replace(share_id="s2"), True),
    ],
)
def test_a_held_device_is_refused_to_another_claim(
    asked: Result, held: Result, is_free: bool
) -> None:
    """Except with administrator access, and for a shared device."""
    holders = [ClaimHolder(ClaimReference("default", "another-uid", "other"), (held,))]
    if is_free:
        check_free(WANTED, [asked], holders)
    else:
        with pytest.raises(ClaimRefused, match="claim default/other still holds device gpu-0"):
            check_free(WANTED, [asked], holders)
