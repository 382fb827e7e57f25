"""The log of the kubelet's calls: refused claims and failures."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from kubedevices.dra.claim_log import ClaimLog, read_refusals
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth
from kubedevices.values.allocation import ClaimReference

ONE, TWO = (ClaimReference("default", f"uid-{n}", f"claim-{n}") for n in (1, 2))


class Service:
    """Refuses the claims of `refused`."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        return {each.uid: self.refused.get(each.uid, ()) for each in claims}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        return {each.uid: self.refused.get(each.uid, "") for each in claims}

    async def watch_health(self) -> AsyncIterator[list[DeviceHealth]]:
        yield []


async def test_a_refused_claim_is_listed_until_it_is_prepared_or_unprepared(tmp_path: Path) -> None:
    """With the reason, in the process and in a file."""
    service, file = Service(), tmp_path / "p" / "refused.json"
    log = ClaimLog(service, file)
    service.refused = {ONE.uid: "no device", TWO.uid: "no luck"}
    await log.prepare((ONE, TWO))
    assert [(each.claim, each.reason) for each in read_refusals(file)] == [
        (ONE, "no device"),
        (TWO, "no luck"),
    ]
    service.refused = {}
    await log.prepare((ONE,))
    assert [each.claim for each in read_refusals(file)] == [TWO]
    await log.unprepare((TWO,))
    assert not log.refused
    assert not file.exists()
    assert log.failures == {"prepare": 2, "unprepare": 0}


async def test_the_file_is_written_only_if_a_reason_changes(tmp_path: Path) -> None:
    """The kubelet repeats its calls for hours."""
    service, file = Service(), tmp_path / "refused.json"
    log = ClaimLog(service, file)
    service.refused = {ONE.uid: "no device"}
    await log.prepare((ONE,))
    file.unlink()
    await log.prepare((ONE,))
    assert not file.exists()
    service.refused = {ONE.uid: "no luck"}
    await log.prepare((ONE,))
    assert [each.reason for each in read_refusals(file)] == ["no luck"]
    await ClaimLog(service, file).begin()
    assert not file.exists(), "what an earlier process noted is over"


async def test_only_the_last_hundred_refused_claims_are_stored(tmp_path: Path) -> None:
    """Claims that the kubelet no longer wants are removed."""
    service = Service()
    log = ClaimLog(service, tmp_path / "refused.json")
    for number in range(130):
        service.refused[f"u{number}"] = "no"
        await log.prepare((ClaimReference("default", f"u{number}", "c"),))
    assert [*log.refused] == [f"u{number}" for number in range(30, 130)]


def test_a_foreign_file_has_no_refused_claims(tmp_path: Path) -> None:
    """The file is only for people, so this is no error."""
    file = tmp_path / "refused.json"
    for text in ("", "{", "[1]", '[{"claim": {"uid": "x"}, "reason": "r", "at": 0}]', "{}"):
        file.write_text(text)
        assert read_refusals(file) == []
