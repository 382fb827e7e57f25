"""Who may have a device, by literal times."""

from kubedevices.two_apis.custody import Custody, CustodyTiming

KEY = ("gpu", "0")
TIMING = CustodyTiming(look=1, drain=2, withdrawn=1, allocated=3)


def decide(custody: Custody, now: float, *, dra: bool = False, kept: str = "") -> bool:
    custody.decide([KEY], lambda _key: dra, lambda _key: kept, now)
    return KEY in custody.offered


def test_a_device_plugin_waits_until_dra_is_done_and_a_moment_more() -> None:
    """A claim may have got the device just before the slices went."""
    custody = Custody(TIMING)
    assert not decide(custody, 10, kept="a slice has it")
    assert not decide(custody, 11)
    assert not decide(custody, 11.9)
    assert decide(custody, 12)


def test_the_plugin_offers_a_device_at_once_that_dra_never_had() -> None:
    """At the first start, whatever the clock says and however it rounds."""
    for now in (0.0, *(1671.0 + n / 7 for n in range(50))):
        assert decide(Custody(TIMING._replace(drain=0.05)), now)


def test_dra_waits_until_the_kubelet_was_asked_after_the_list_had_gone() -> None:
    """What it said before does not tell of allocations that were under way."""
    custody = Custody(TIMING)
    assert decide(custody, 10)
    assert custody.kept_by_plugin(KEY, 10, 10) == "the device plugin offers it"
    assert not decide(custody, 20, dra=True)
    for asked_at in (19, 20.9):
        assert custody.kept_by_plugin(KEY, 30, asked_at)
    assert not custody.kept_by_plugin(KEY, 30, 21)


def test_dra_waits_for_an_allocation_that_is_under_way() -> None:
    """And until the kubelet says whose the device is, which it does a moment after the answer."""
    custody = Custody(TIMING)
    decide(custody, 10)
    custody.allocation_begins([KEY])
    custody.allocation_begins([KEY])
    decide(custody, 11, dra=True)
    custody.allocation_ends([KEY], 50)
    assert custody.kept_by_plugin(KEY, 99, 99) == "the device plugin is allocating it"
    custody.allocation_ends([KEY], 100)
    assert custody.kept_by_plugin(KEY, 102.9, 102.9) == "the device plugin allocated it just now"
    assert not custody.kept_by_plugin(KEY, 103, 103)


def test_a_removed_device_is_not_offered() -> None:
    """It may come back to either."""
    custody = Custody(TIMING)
    decide(custody, 10)
    custody.decide([], lambda _key: False, lambda _key: "", 11)
    assert not custody.offered
    assert decide(custody, 12)
