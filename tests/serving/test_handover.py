"""Which API may have a device at which time."""

from kubedevices.serving.handover import Handover, HandoverTiming

KEY = ("gpu", "0")
TIMING = HandoverTiming(look=1, drain=2, withdrawn=1, allocated=3)


def decide(
    handover: Handover, now: float, *, dra: bool = False, kept: str = "", allocated: str = ""
) -> bool:
    handover.decide([KEY], lambda _key: dra, lambda _key: kept, lambda *_: allocated, now)
    return KEY in handover.offered


def test_the_device_plugin_waits_for_the_drain_time_after_dra() -> None:
    """A claim may have got the device just before the slices were deleted."""
    handover = Handover(TIMING)
    assert not decide(handover, 10, kept="a slice has it")
    assert not decide(handover, 11)
    assert not decide(handover, 11.9)
    assert decide(handover, 12)


def test_the_device_plugin_waits_for_claims_that_are_not_prepared_yet() -> None:
    """Only for a device that was in DRA; it is asked for the time after the drain."""
    handover = Handover(TIMING)
    assert decide(handover, 9, allocated="to a claim"), "the device was never in DRA"
    decide(handover, 10, kept="a slice has it")
    asked: list[float] = []

    def allocated(_key: object, since: float) -> str:
        asked.append(since)
        return "a claim has it"

    handover.decide([KEY], lambda _: False, lambda _: "", allocated, 20)
    assert not handover.offered
    assert asked == [12]
    assert decide(handover, 30)
    assert decide(handover, 31, allocated="asked no more")


def test_a_device_that_dra_never_had_is_offered_at_once() -> None:
    """At the first start, for any time and any rounding."""
    for now in (0.0, *(1671.0 + n / 7 for n in range(50))):
        assert decide(Handover(TIMING._replace(drain=0.05)), now)


def test_dra_waits_for_a_kubelet_answer_after_the_new_list() -> None:
    """An older answer may miss running allocations."""
    handover = Handover(TIMING)
    assert decide(handover, 10)
    assert handover.kept_by_plugin(KEY, 10, 10) == "the device plugin offers it"
    assert not decide(handover, 20, dra=True)
    for asked_at in (19, 20.9):
        assert handover.kept_by_plugin(KEY, 30, asked_at)
    assert not handover.kept_by_plugin(KEY, 30, 21)


def test_dra_waits_for_a_running_allocation() -> None:
    """And until the kubelet reports the pod of the device, shortly after the answer."""
    handover = Handover(TIMING)
    decide(handover, 10)
    handover.allocation_begins([KEY])
    handover.allocation_begins([KEY])
    decide(handover, 11, dra=True)
    handover.allocation_ends([KEY], 50)
    assert handover.kept_by_plugin(KEY, 99, 99) == "the device plugin is allocating it"
    handover.allocation_ends([KEY], 100)
    assert handover.kept_by_plugin(KEY, 102.9, 102.9) == "the device plugin allocated it just now"
    assert not handover.kept_by_plugin(KEY, 103, 103)


def test_a_removed_device_is_not_offered() -> None:
    """The device may come back in either API."""
    handover = Handover(TIMING)
    decide(handover, 10)
    handover.decide([], lambda _key: False, lambda _key: "", lambda *_: "", 11)
    assert not handover.offered
    assert decide(handover, 12)


def test_each_default_time_is_a_pause() -> None:
    """Without a pause between two decisions, a device that waits would take all of a CPU."""
    assert all(each > 0 for each in HandoverTiming())
