"""Reboots, crashes and damaged files."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial

from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.drivers.claims import (
    TestClaim,
    cdi_ids,
    in_words,
    needs_cdi_ids,
    needs_devices,
)
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.node_setup import another_boot
from kubedevices.check.process_figures import figures_of
from kubedevices.errors.words import counted

simple = Theme("state", harm=Harm.POD, needs=("prepare.answers",))
theme = Theme("state", track=None, harm=Harm.POD, needs=("prepare.answers",))
_CUTS = 20
_GARBAGE = "with garbage"
_WORDS = re.compile(
    r"state|checkpoint|json|corrupt|checksum|invalid|unexpected|cannot|could not|fail|lost|damage",
    re.IGNORECASE,
)
_KILLS, _LONG_KILLS = 20, 200
_LONGEST_CALL = 2.0
"""Seconds. Kills are spread over the time that a call takes, but over no longer time."""

_ROUNDS = 60
_MOST_MEMORY = 512
"""KiB for each claim: a heap grows by some MB in any case."""

_NEEDED = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"}
"""Devices that each program uses: they get no other numbers."""


@simple.check(
    "cdi-wiped",
    FAIL,
    suffers="After a reboot each pod stays in CreateContainerError for ever: /var/run is empty, the"
    " driver's checkpoint is not.",
    source="CDI: /var/run/cdi is on a tmpfs; kubelet prepares again after a reboot",
    mend="Write the CDI file in each Prepare, also for a claim that is in the checkpoint.",
    seen="drivers that answer from their checkpoint",
)
async def cdi_wiped(node: DriverNode) -> str:
    """Prepare of a prepared claim writes its CDI file again if that is gone."""
    async with TestClaim(node).allocate() as claim:
        edits = node.files.cdi_edits(needs_cdi_ids(await claim.prepare()))
        node.files.remove(node.files.cdi / name for name in node.files.cdi_files())
        names = needs_cdi_ids(await claim.prepare())
        node.files.must_resolve(names, "after /var/run/cdi was emptied: ")
        if node.files.cdi_edits(names) != edits:
            raise Broken("after /var/run/cdi was emptied a container gets something else")
    return "its CDI files are back"


@theme.check(
    "reboot",
    FAIL,
    suffers="After a reboot no pod with a claim comes back.",
    source="kubelet cm/dra: prepares the claims of its pods again",
    mend="At start look at the devices afresh, and set them up again in Prepare.",
)
async def reboot(node: DriverNode) -> str:
    """After a reboot, with another boot ID, /var/run/cdi empty and the sockets gone, a claim is
    prepared again; device numbers in its CDI file are those of now.
    """
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
        numbers = await _reboot(node, claim, ())
        changed = [
            path for path in await node.supervisor.numbers([*numbers]) if path not in _NEEDED
        ]
        if changed:
            # A driver that opens the other device in its place may fail: that is no finding.
            with contextlib.suppress(_NotAsBefore):
                await _reboot(node, claim, changed)
    how = "with another boot ID" if node.path_map.binds else "with the same boot ID"
    numbered = f" and other numbers of {', '.join(changed)}" if changed else ""
    return f"prepared again, {how}{numbered}"


class _NotAsBefore(Broken):
    """The driver does not come back, or does not prepare the claim."""


async def _reboot(
    node: DriverNode, claim: TestClaim, changed: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Play a reboot after which the devices `changed` have other numbers, and prepare the claim.

    Return the numbers of devices in its CDI files; raises `Broken`.
    """
    await node.end_processes()
    await node.stop_kubelet()
    node.files.remove(node.files.cdi / name for name in node.files.cdi_files())
    node.files.remove(node.files.sockets())
    async with another_boot(node, changed):
        node.process = await node.launch()
        await node.start_kubelet()
        if problem := await node.until_ready(node.timing.start):
            raise _NotAsBefore(f"after a reboot: {problem}", node.last_words())
        prepared = await claim.try_prepare()
        if isinstance(prepared, str):
            raise _NotAsBefore(f"after a reboot: {prepared}", node.last_words())
        names = cdi_ids(prepared)
        node.files.must_resolve(names, "after a reboot: ")
        numbers = node.files.device_numbers(names)
        for path, now in (await node.supervisor.numbers([*numbers])).items():
            if numbers[path] != now:
                what = f"{path} has the numbers {_colon(now)}"
                raise Broken(f"after a reboot {what}, its CDI file says {_colon(numbers[path])}")
        return numbers


def _colon(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}:{numbers[1]}"


@theme.check(
    "killed",
    FAIL,
    needs=("register.stale-socket", "unprepare.cleans"),
    slow=True,
    suffers="After a crash a device is lost, or a pod can never end.",
    source="SIGKILL by the OOM killer, a node that loses power",
    mend="Write the checkpoint before the effects, and make both calls idempotent.",
)
async def killed(node: DriverNode) -> str:
    """After SIGKILL in the middle of Prepare or Unprepare both succeed when they are repeated."""
    began = asyncio.get_running_loop().time()
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
    longest = min(asyncio.get_running_loop().time() - began, _LONGEST_CALL)
    kills = _LONG_KILLS if node.target.long else _KILLS
    for number in range(kills):
        async with TestClaim(node).allocate() as claim:
            is_end = number % 2 == 1
            if is_end:
                await claim.prepare()
            call = asyncio.create_task(
                claim.unprepare() if is_end else claim.try_prepare(), name="killed call"
            )
            await asyncio.sleep(longest * number / kills)
            await node.relaunch(kill=True)
            if not await node.until(node.is_connected, node.timing.start):
                raise Broken(f"kill {number + 1}: it does not come back", node.last_words())
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError, Broken):
                await call
            await claim.prepare()
            await claim.unprepare()
            if left := node.files.cdi_files_of(claim.uid):
                raise Broken(f"kill {number + 1}: the CDI file {left[0]} is left over")
    return f"killed {kills} times"


@theme.check(
    "checkpoint-cut",
    FAIL,
    needs=("register.stale-socket",),
    slow=True,
    suffers="After a full disk or a lost node the driver ends, once or in a crash loop: meanwhile"
    " no pod starts, and no pod ends.",
    source="a write that was not synced before power was lost",
    mend="Start with an empty state if the file cannot be read, say so, and keep the file aside.",
    seen="drivers whose crash loop needs a person on the node",
)
async def checkpoint_cut(node: DriverNode) -> str:
    """With state files that are cut, empty, garbage or of a newer version the driver starts,
    registers and unprepares, and says that it cannot read them.
    """
    claim = TestClaim(node).allocate()
    await claim.prepare()
    files = node.files.state_texts()
    if not any(files.values()):
        raise NotTried("it keeps no state in its plugin directory")
    damages = _damages()
    silent = False
    for what, damaged in damages.items():
        await node.end_processes()
        node.files.write((path, damaged(text)) for path, text in files.items())
        if problem := await node.start_again():
            raise Broken(f"state files {what}: {problem}", node.last_words())
        if problem := await node.unprepare([claim.reference]):
            raise Broken(f"state files {what}: Unprepare failed: {problem}", node.last_words())
        silent |= what == _GARBAGE and not _WORDS.search(node.outputs()[-1])
    claim.delete()
    if silent:
        raise Fragile("it does not say in its output that its state files cannot be read")
    return f"starts with {len(damages)} kinds of damage in {counted(len(files), 'file')}"


def _damages() -> dict[str, Callable[[bytes], bytes]]:
    """Return what may have happened to a state file, in words, and what is left of its text."""
    found: dict[str, Callable[[bytes], bytes]] = {
        "empty": lambda _: b"",
        "{}": lambda _: b"{}",
        _GARBAGE: lambda _: b"\0garbage\xff",
        "of a newer version": _newer,
    }
    for number in range(1, _CUTS + 1):
        part = number / (_CUTS + 1)
        found[f"cut after {part:.0%}"] = partial(_cut, part)
    return found


def _cut(part: float, text: bytes) -> bytes:
    return text[: int(len(text) * part)]


def _newer(text: bytes) -> bytes:
    """Return a state as a later version of the driver may write it, which this one cannot read."""
    text = re.sub(rb'("\w*version":\s*"?v?)\d+', rb"\g<1>99", text, flags=re.IGNORECASE)
    return re.sub(rb'"v\d+":', b'"v99":', text)


@theme.check(
    "checkpoint-write",
    FAIL,
    suffers="After its next restart the driver does not know what it prepared: the device is given"
    " away a second time, or is lost.",
    source="a full disk, or a disk that the kernel made read-only after an error",
    mend="Write the state before the effects, refuse what cannot be saved, and forget it in memory"
    " too.",
)
async def checkpoint_write(node: DriverNode) -> str:
    """While its state cannot be written Prepare is refused, also when it is repeated, and succeeds
    afterwards.
    """
    async with TestClaim(node).allocate() as claim:
        before = node.files.state_texts()
        await claim.prepare()
        if node.files.state_texts() == before:
            raise NotTried("it keeps no state in its plugin directory")
        await claim.unprepare()
        before = node.files.state_texts()
        async with node.unwritable_state():
            for what in ("Prepare", "the repeated Prepare"):
                answer = await claim.try_prepare()
                if node.files.state_texts() != before:
                    raise NotTried("it writes its state into a file that is open already")
                if not isinstance(answer, str):
                    raise Broken(f"{what} succeeded, but its state could not be written")
        await claim.prepare()
    return "refused twice, then prepared"


@theme.check(
    "leftovers",
    WARN,
    suffers="Files of claims that ended while the driver was away stay for ever, or files of other"
    " drivers vanish.",
    source="CDI: /var/run/cdi belongs to all drivers of a node",
    mend="Remove only files that you wrote.",
)
async def leftovers(node: DriverNode) -> str:
    """Files of others in the CDI directory are never touched."""
    foreign = node.files.cdi / "other.example.com-thing.json"
    text = '{"cdiVersion": "0.3.0", "kind": "other.example.com/thing", "devices": []}'
    node.files.write([(foreign, text.encode())])
    await node.restart_driver()
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
    if not foreign.exists() or foreign.read_text() != text:
        raise Broken(f"it changed {foreign.name} of another driver")
    return "files of others are as before"


@theme.check(
    "restart-held",
    FAIL,
    needs=("unprepare.cleans",),
    suffers="After an update of the driver a pod can not end, or its device is given away.",
    source="kubelet: claims outlive the process of the driver",
    mend="Keep prepared claims in a file.",
)
async def restart_held(node: DriverNode) -> str:
    """After a restart of the driver a held claim has the same answer and can be unprepared."""
    async with TestClaim(node).allocate() as claim:
        first = await claim.prepare()
        names = cdi_ids(first)
        edits = node.files.cdi_edits(names)
        await node.restart_driver()
        if (answer := await claim.prepare()) != first:
            raise Broken(
                f"the answer is {in_words(answer)}, before the restart it was {in_words(first)}"
            )
        node.files.must_resolve(names)
        if node.files.cdi_edits(names) != edits:
            raise Broken("after a restart of the driver a container gets something else")
        await node.restart_driver()
        await claim.unprepare()
        if left := node.files.cdi_files_of(claim.uid):
            raise Broken(f"the CDI file {left[0]} is left over")
    return "same answer, and unprepared"


@theme.check(
    "growth",
    WARN,
    slow=True,
    harm=Harm.OTHER,
    suffers="After weeks the driver has no descriptors left, or is killed for its memory.",
    source="a node starts thousands of pods",
    mend="Close what you open for each claim.",
)
async def growth(node: DriverNode) -> str:
    """Descriptors, threads, memory and state files do not grow with the number of claims."""
    needs_devices(node, 1)
    assert node.process is not None

    async def rounds(number: int) -> None:
        for _ in range(number):
            async with TestClaim(node).allocate() as claim:
                await claim.prepare()

    await rounds(_ROUNDS // 3)
    before, size = figures_of(node.process.pid), _size(node)
    await rounds(_ROUNDS)
    after = figures_of(node.process.pid)
    if before is None or after is None:
        raise NotTried("the figures of the process cannot be read")
    more = after.descriptors - before.descriptors
    if more > _ROUNDS // 4:
        raise Broken(f"{more} more descriptors after {_ROUNDS} claims")
    if after.threads - before.threads > _ROUNDS // 4:
        raise Broken(f"{after.threads - before.threads} more threads after {_ROUNDS} claims")
    if (more_memory := after.memory - before.memory) > _MOST_MEMORY * _ROUNDS:
        raise Broken(f"{more_memory // 1024} MB more memory after {_ROUNDS} claims")
    if _size(node) > size + 40 * _ROUNDS:
        raise Fragile(f"its state files grew from {size} to {_size(node)} bytes")
    return f"no growth in {_ROUNDS} claims"


def _size(node: DriverNode) -> int:
    return sum(each.stat().st_size for each in node.files.state())
