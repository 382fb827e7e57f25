"""A log with a wrong byte: each acknowledged pod keeps its devices, and the damage is told."""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.text import checkpoint_of, format_checkpoint
from kubedevices.node.ledger.ledger import LEDGER_NAME, Ledger
from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.ledger.log_frames import problem_of, with_new_sums
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod, StoredState
from tests.ledger_rows import BOOT, admitted, crashed

Held = dict[tuple[str, str, str], set[str]]
PAGE = 4096


class Crash(NamedTuple):
    """What a killed node leaves: `now` are the acknowledged pods, `stale` those of a second ago.

    `new_from` is the first byte of the log that was written after `stale`; 0 if that is not known.
    """

    main: bytes
    log: bytes
    new_from: int
    now: list[AdmittedPod]
    stale: list[AdmittedPod]


@pytest.fixture(scope="module", params=[False, True], ids=["first log", "second log"])
def crash(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """Admit and release pods; the second log overwrites frames of the first."""
    directory = tmp_path_factory.mktemp("crash")
    path = directory / LEDGER_NAME
    ledger = LedgerFile.create(path, (), (), BOOT)
    dice, present, states, sizes = random.Random(7), dict[int, AdmittedPod](), [], []
    for number in range(60):
        if request.param and number == 40:
            ledger.shorten_log()
        if present and dice.random() < 0.3:
            ledger.release([present.pop(dice.choice([*present])).pod.uid])
        else:
            present[number] = admitted(str(number), number * 10)
            ledger.commit(*present[number][:2], BOOT)
        states.append([*present.values()])
        sizes.append(Path(f"{path}-wal").stat().st_size)
    copy = crashed(path, directory / "copy")
    ledger.close()
    log = Path(f"{copy}-wal").read_bytes()
    new_from = 0 if request.param else sizes[-6]  # a log that begins anew keeps its size
    return Crash(copy.read_bytes(), log, new_from, states[-1], states[-6])


async def loaded(crash: Crash, log: bytes, directory: Path) -> StoredState:
    """Start the ledger with this log and the checkpoint of a second ago."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()
    (directory / LEDGER_NAME).write_bytes(crash.main)
    (directory / f"{LEDGER_NAME}-wal").write_bytes(log)
    (directory / "boot_id").write_text(BOOT)
    stale = [holding for each in crash.stale for holding in each.holdings]
    text = format_checkpoint(checkpoint_of(stale, {}, CONTAINER_RESPONSE.to_wire))
    (directory / "checkpoint").write_bytes(text)
    ledger = Ledger(directory, directory / "checkpoint", directory / "boot_id")
    try:
        return await ledger.load()
    finally:
        await ledger.close()


def held_by(pods: list[AdmittedPod]) -> Held:
    def key(each: Holding) -> tuple[str, str, str]:
        return each.pod_uid, each.container, each.resource

    return {key(each): set(each.held.device_ids) for pod in pods for each in pod.holdings}


def outcome(crash: Crash, found: StoredState) -> str:
    """Return what became of the acknowledged pods."""
    there, in_checkpoint = held_by([*found.pods]), held_by(crash.stale)
    lost = {key for key, ids in held_by(crash.now).items() if there.get(key) != ids}
    if lost:
        is_new = not lost & in_checkpoint.keys()
        return "told, a new pod is lost" if found.damage and is_new else "LOSS"
    return "told, all held" if found.damage else "nothing lost, nothing told"


sample_or_all = pytest.mark.parametrize(
    "part",
    [
        pytest.param(0.2, id="sample"),
        pytest.param(1.0, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)


def flipped(log: bytes, at: int, bits: int) -> bytes:
    return log[:at] + bytes([log[at] ^ bits]) + log[at + 1 :]


@sample_or_all
async def test_a_wrong_byte_anywhere_loses_no_pod(
    crash: Crash, tmp_path: Path, part: float
) -> None:
    """Of random bytes, each kind of field included: the devices of acknowledged pods stay held."""
    dice, outcomes = random.Random(16), Counter[str]()
    step = PAGE + 24
    fields = [32 + step * number + byte for number in (0, 1, 20, -1) for byte in range(0, 24, 3)]
    places = [*range(0, 32, 3), *(each % len(crash.log) for each in fields)]
    places += [dice.randrange(len(crash.log)) for _ in range(30)]
    for at in dice.sample(places, round(part * len(places))):
        damaged = flipped(crash.log, at, 1 << dice.randrange(8))
        became = outcome(crash, await loaded(crash, damaged, tmp_path / "state"))
        outcomes[became] += 1
        # The pages of the last second have the only copy of its pods: where the wrong byte is in
        # the list of a page's rows, nobody knows them. Anywhere else there is a witness.
        assert became != "told, a new pod is lost" or at >= crash.new_from
    assert not outcomes["LOSS"], outcomes
    assert outcomes["told, all held"] > outcomes.total() / 2, outcomes


@sample_or_all
async def test_a_damaged_sector_is_told(crash: Crash, tmp_path: Path, part: float) -> None:
    """With 512 wrong bytes the witnesses know most pods; whatever they do not know is told."""
    dice, outcomes = random.Random(5), Counter[str]()
    for _ in range(round(part * 30)):
        at = dice.randrange(len(crash.log) // 512) * 512
        damaged = crash.log[:at] + dice.randbytes(512) + crash.log[at + 512 :]
        outcomes[outcome(crash, await loaded(crash, damaged, tmp_path / "state"))] += 1
    assert not outcomes["LOSS"], outcomes
    assert outcomes["told, all held"] >= part * 15, outcomes


async def test_an_undamaged_log_is_no_news(crash: Crash, tmp_path: Path) -> None:
    """Nor is a last frame that a killed process wrote in part. A stale checkpoint is ignored."""
    for length in (len(crash.log), len(crash.log) - 1, 31, 0):
        found = await loaded(crash, crash.log[:length], tmp_path / "state")
        assert not found.damage
        if length == len(crash.log):
            assert held_by([*found.pods]) == held_by(crash.now)


async def test_the_damage_is_told_and_kept(
    crash: Crash, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the pods that only the witnesses know; the next start tells nothing."""
    directory = tmp_path / "state"
    damaged = flipped(crash.log, 32 + 24 + 100, 1)
    found = await loaded(crash, damaged, directory)
    (damage,) = found.damage
    assert damage.reason == "frame 1 of its log is damaged, so SQLite does not read the rest"
    assert Path(f"{damage.kept_as}-wal").read_bytes() == damaged
    assert damage.kept_as.read_bytes() == crash.main
    assert not [*directory.glob("*.rest*")]
    assert f"pod {crash.now[-1].pod.uid} was missing in the damaged ledger" in caplog.text
    assert outcome(crash, found) == "told, all held"
    ledger = Ledger(directory, directory / "checkpoint", directory / "boot_id")
    again = await ledger.load()
    await ledger.close()
    assert not again.damage
    assert held_by([*again.pods]) == held_by([*found.pods])


def test_new_sums_make_a_log_whole(crash: Crash) -> None:
    """Whatever byte is wrong, SQLite would read the result to its end."""
    dice = random.Random(3)
    assert problem_of(crash.log, PAGE) == ""
    for _ in range(20):
        damaged = flipped(crash.log, dice.randrange(len(crash.log)), 0xFF)
        assert problem_of(with_new_sums(damaged, PAGE), PAGE) == ""
