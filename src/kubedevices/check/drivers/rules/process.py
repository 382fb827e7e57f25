"""The process of the driver: when it ends, what it prints, and what it leaves open."""

import signal

from kubedevices.check.check import FAIL, WARN, Broken, Harm, NotTried, Theme
from kubedevices.check.drivers.claims import TestClaim
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.target import AFTERWARDS, TOKEN
from kubedevices.check.process_figures import figures_of
from kubedevices.errors.words import counted

afterwards = Theme("process", track=AFTERWARDS, harm=Harm.ALL_DEVICES)
theme = Theme("process", track=None, harm=Harm.OTHER)
_RESTARTS = 8


@afterwards.check(
    "dies",
    FAIL,
    suffers="While the driver is away no pod with a claim starts, and none ends.",
    source="each call of a kubelet",
    mend="Answer with an error instead of a crash.",
)
async def dies(node: DriverNode) -> str:
    """The process ends only when it is told to."""
    if ends := node.shared.unexpected_ends:
        raise Broken(ends[0].when, ends[0].words)
    return "never in this run"


@afterwards.check(
    "stderr-secrets",
    FAIL,
    harm=Harm.OTHER,
    suffers="Everybody who may read logs can call the API server as this driver.",
    source="Kubernetes: logs are not protected as Secrets are",
    mend="Do not log requests, kubeconfig files or the environment.",
)
async def stderr_secrets(node: DriverNode) -> str:
    """The output of no process has the token of the API server."""
    if node.is_connected():
        async with TestClaim(node) as claim:
            await claim.try_prepare()  # refused: a driver may print more then
    texts = [*(each.text for each in node.shared.logs), *node.outputs()]
    if any(TOKEN in each for each in texts):
        raise Broken("the token of its kubeconfig is in its output")
    return f"no token in the output of {counted(len(texts), 'run')}"


@theme.check(
    "exit-code",
    WARN,
    suffers="Who starts the driver takes a failed start for a finished one, or an update for a"
    " crash: `systemctl` with Restart=on-failure leaves it stopped.",
    source="exit(3): 0 is success; the status of a container has its exit code",
    mend="End with 0 after SIGTERM, and with another code after each error.",
)
async def exit_code(node: DriverNode) -> str:
    """The exit code is 0 after SIGTERM, and not 0 if the driver ends without a kubeconfig file."""
    process = node.process
    assert process is not None
    await process.send_signal(signal.SIGTERM)
    await node.lost_time.wait(process.wait, node.timing.stop)
    if process.code not in (None, 0):
        raise Broken(f"SIGTERM: {process.end_text()}", process.last_words())
    with node.files.missing(node.files.kubeconfig):
        process = await node.start_fresh()
        await node.until(lambda: not process.running, node.timing.again)
    if process.code == 0:
        words = process.last_words()
        raise Broken("without its kubeconfig file: exit code 0, which means success", words)
    return f"SIGTERM: exit code 0; without kubeconfig: {process.end_text()}"


@theme.check(
    "open-files",
    WARN,
    suffers="After weeks the driver has no descriptors left, and does not register any more.",
    source="each restart of a kubelet ends its connections; their descriptors must be closed",
    mend="Close connections and files that belong to an earlier kubelet.",
)
async def open_files(node: DriverNode) -> str:
    """The number of open files does not grow with restarts of the kubelet."""
    assert node.process is not None
    pid, counts = node.process.pid, list[int]()
    for number in range(_RESTARTS + 1):
        if number:
            await node.stop_kubelet()
            await node.start_kubelet()
            if not await node.until(node.is_connected, node.timing.start):
                raise NotTried(f"it is not connected after restart {number}")
            # What belongs to the last kubelet may end a moment later.
            await node.until(lambda: _descriptors(pid) <= counts[0], node.timing.hold)
        counts.append(_descriptors(pid))
    more, later = counts[-1] - counts[0], counts[-1] - counts[_RESTARTS // 2]
    if more > _RESTARTS / 2 and later > _RESTARTS / 4:  # a pool grows only at first
        raise Broken(f"{more} more descriptors after {_RESTARTS} restarts of the kubelet")
    return f"{counts[0]} → {counts[-1]} over {_RESTARTS} restarts of the kubelet"


def _descriptors(pid: int) -> int:
    if (found := figures_of(pid)) is None:
        raise NotTried("the figures of the process cannot be read")
    return found.descriptors
