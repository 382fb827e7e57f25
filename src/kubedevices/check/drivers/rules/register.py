"""How a driver registers, and what it does when the kubelet or its sockets go and come back."""

import asyncio
import re
import signal
from collections.abc import Callable
from functools import partial

from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.drivers.claims import TestClaim, cdi_ids, in_words
from kubedevices.check.drivers.cluster import on_claims
from kubedevices.check.drivers.node import DriverNode
from kubedevices.kubelet_api.dra import HEALTH_SERVICES, PACKAGES
from kubedevices.node.arrival.plugin_directory import accepts_connections
from kubedevices.testing.api_server.faults import ApiFault

arrival = Theme("register", harm=Harm.ALL_DEVICES)
theme = Theme("register", track=None, harm=Harm.ALL_DEVICES)
_LONGEST_NAME = 63
_LONGEST_PATH, _TOO_LONG = 107, 100
"""Bytes of a socket path, and of a root directory below which every path is longer."""

_PAUSE = 0.1
_BUSY = 2.0
"""Seconds for which a Prepare reads its claim when the driver is told to end."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@arrival.check(
    "info",
    FAIL,
    suffers="The kubelet refuses the driver, so no pod with a claim starts on the node.",
    source="kubelet pluginregistration v1; k8s.io/dynamic-resource-allocation/kubeletplugin",
    mend="Answer GetInfo with the type DRAPlugin, the driver's name, the absolute path of the"
    " socket and the versions v1.DRAPlugin and v1beta1.DRAPlugin. Listen before you create the"
    " registration socket.",
)
async def info(node: DriverNode) -> str:
    """GetInfo names the type DRAPlugin, a DNS subdomain of at most 63 characters, an absolute path
    that accepts connections, and known versions.
    """
    found = node.registry.arrivals[0]
    said = found.info
    if not _SUBDOMAIN.fullmatch(said.name) or len(said.name) > _LONGEST_NAME:
        raise Broken(f"the name {said.name!r} is no DNS subdomain of at most 63 characters")
    if not said.endpoint.startswith("/"):
        raise Broken(f"the endpoint {said.endpoint!r} is no absolute path")
    if not found.accepts:
        raise Broken(f"nobody listened at {said.endpoint} when it registered")
    unknown = [
        each for each in said.supported_versions if each not in {*PACKAGES, *HEALTH_SERVICES}
    ]
    if unknown:
        raise Broken(f"unknown version {unknown[0]!r}")
    return f"{said.name}: {', '.join(said.supported_versions)}"


@theme.check(
    "status-refused",
    WARN,
    starts=True,
    suffers="Nobody sees why the node has no devices: neither the log nor the pod says it.",
    source="kubelet pluginregistration v1, NotifyRegistrationStatus",
    mend="Log the error of NotifyRegistrationStatus. Keep serving, or end with an exit code that is"
    " not 0.",
)
async def status_refused(node: DriverNode) -> str:
    """After a refused registration the driver logs the kubelet's text; it does not end with 0."""
    text = "refused-by-the-check"
    await node.start_fresh(kubelet=False)
    await node.start_kubelet(refusal=text)
    assert node.process is not None
    process = node.process

    def told() -> bool:
        return text in process.output()

    await node.until(lambda: node.registry.arrivals, node.timing.start)
    if not node.registry.arrivals:
        raise NotTried("no registration socket appeared")
    await node.until(told, node.timing.again)
    await node.pause(node.timing.hold)  # it may end after these words
    if process.code == 0:
        raise Broken("it ended with exit code 0")
    if not told():
        raise Broken("the kubelet's text is not in its output", process.last_words())
    return "the text is in its log"


@theme.check(
    "kubelet-absent",
    FAIL,
    starts=True,
    waits=True,
    suffers="After a reboot the driver starts before the kubelet, gives up, and the node has no"
    " devices until somebody starts it again.",
    source="systemd and static pods start in any order",
    mend="Do not end because the kubelet has not called yet.",
    seen="a driver that exits 30 s after its start",
)
async def kubelet_absent(node: DriverNode) -> str:
    """A driver that starts long before the kubelet is registered when the kubelet comes."""
    process = await node.start_fresh(kubelet=False)
    await node.pause(node.timing.before_kubelet)
    if not process.running:
        raise Broken(f"it ended without a kubelet ({process.end_text()})", process.last_words())
    await node.start_kubelet()
    # `slices.again` and `register.kubelet-restart` judge whether slices come back.
    if problem := await node.until_registered(node.timing.start):
        raise Broken(f"after {node.timing.before_kubelet:g} s without kubelet: {problem}")
    return f"there {node.timing.before_kubelet:g} s later"


@theme.check(
    "kubelet-restart",
    FAIL,
    needs=("prepare.answers",),
    waits=True,
    suffers="A kubelet deletes all slices of its node when it starts: without them the scheduler"
    " sends no pod to the node any more.",
    source="kubelet cm/dra: the wipe of slices at the start; KEP-3063",
    mend="Watch your own ResourceSlices, and create what is missing, as upstream's helper does.",
    seen="drivers that publish only at their start",
)
async def kubelet_restart(node: DriverNode) -> str:
    """After three restarts of the kubelet the same process serves, its slices are back, and a claim
    has the same answer.
    """
    process, devices = node.process, set(node.cluster.devices())
    assert process is not None

    def published() -> bool:
        return devices <= set(node.cluster.devices())

    async def wait(condition: Callable[[], bool], limit: float, missing: str, number: int) -> None:
        if not await node.until(condition, limit):
            if not process.running:
                raise Broken(f"its process ended ({process.end_text()})", process.last_words())
            problem = f"{missing} {limit:g} s after restart {number}"
            raise node.missing(problem) if condition is published else Broken(problem)

    async with TestClaim(node).allocate() as claim:
        first = await claim.prepare()
        for number in (1, 2, 3):
            await node.restart_kubelet()
            await wait(node.is_connected, node.timing.again, "it is not registered", number)
            # A driver on upstream's helper publishes 30 s after the last wipe: the last counts.
            await node.until(published, node.timing.settle)
        await wait(published, node.timing.published, "slices are not back", number)
        if (answer := await claim.prepare()) != first:
            raise Broken(f"the answer is {in_words(answer)}, it was {in_words(first)}")
    return "back three times, and Prepare gives the same answer"


@theme.check(
    "socket-wiped",
    FAIL,
    slow=True,
    waits=True,
    suffers="Cleaning /var/lib/kubelet, or a kubelet that is installed anew, removes the sockets:"
    " pods wait for ever in ContainerCreating.",
    source="kubelet: the plugin watcher forgets a driver whose registration socket is gone",
    mend="Watch both sockets and create them again, or end with an error so that the pod restarts."
    " With upstream's helper, which owns them: watch the files, and end.",
)
async def socket_wiped(node: DriverNode) -> str:
    """A driver whose sockets are removed registers again or ends with an error, within a minute."""
    process, before = node.process, len(node.registry.arrivals)
    assert process is not None
    node.files.remove(node.files.sockets())
    node.files.remove(each.endpoint for each in node.connections())
    await node.until(lambda: not node.connections(), node.timing.again)
    began = asyncio.get_running_loop().time()
    if await node.until(
        lambda: len(node.registry.arrivals) > before and node.is_connected(), node.timing.wiped
    ):
        return f"registered again after {node.lost_time.spent(began):.1f} s"
    if process.code:
        return f"it ends ({process.end_text()}), so its pod starts it again"
    if process.code == 0:
        raise Broken("it ended with exit code 0: a pod with restartPolicy OnFailure stays away")
    raise Broken(f"not registered within {node.timing.wiped:g} s", process.last_words())


@theme.check(
    "stale-socket",
    FAIL,
    needs=("prepare.answers",),
    suffers="After a crash or a lost node the driver cannot start again: address already in use.",
    source="bind(2): a socket file stays when its process is killed",
    mend="Remove a socket that nobody listens on before you bind.",
)
async def stale_socket(node: DriverNode) -> str:
    """A driver starts beside the sockets of a killed predecessor."""
    await node.restart_driver(kill=True)
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
    return "starts and prepares"


@theme.check(
    "two-instances",
    WARN,
    starts=True,
    suffers="During an update of the DaemonSet with maxSurge, pods fail or the kubelet loses the"
    " driver.",
    source="kubelet cm/dra: several instances of a driver; kubeletplugin.RollingUpdate",
    mend="Put the UID of the pod into the names of both sockets, share the state by a lock, and"
    " remove only your own files when you stop.",
    seen="most drivers have no rolling update",
)
async def two_instances(node: DriverNode) -> str:
    """Beside a second instance, and after the first has stopped, claims can be prepared and
    unprepared.
    """
    if not node.target.has_pod_uid:
        raise NotTried("needs a driver that gets the UID of its pod: {pod_uid} in the command")
    await node.ready()
    first = node.process
    assert first is not None
    claim, other = TestClaim(node).allocate(), TestClaim(node)
    async with claim, other:
        names = cdi_ids(await claim.prepare())
        node.process = await node.launch()
        if not await node.until(lambda: len(node.connections()) > 1, node.timing.start):
            raise Broken("the second instance is not registered", node.last_words())
        await other.allocate().prepare()
        await first.send_signal(signal.SIGTERM)
        until = asyncio.create_task(first.wait(node.timing.stop), name="end of the first instance")
        while not until.done():  # a kubelet calls at any time
            await other.unprepare()
            await other.prepare()
            await asyncio.wait({until}, timeout=_PAUSE)
        await node.pause(node.timing.hold)  # a kubelet notices later that a socket is gone
        if not await node.until(node.is_connected, node.timing.again):
            raise Broken("when the first instance stopped, the second was not registered any more")
        node.files.must_resolve(names, "what the first instance had prepared: ")
        await claim.unprepare()
        await other.prepare()
        missing = not await node.until(node.cluster.devices, node.timing.again)
        if missing:
            raise Broken("when the first instance stopped, the slices were gone")
    return "the second prepares and unprepares"


@theme.check(
    "stop",
    FAIL,
    needs=("prepare.answers",),
    suffers="At an update a pod's Prepare is cut and tried again, the node loses its slices, or the"
    " driver is killed after its grace period.",
    source="kubelet: an instance is gone when its registration socket is; KEP-4381: slices stay",
    mend="At SIGTERM remove the registration socket, let running calls end, keep the slices, exit"
    " with 0. With upstream's helper: reject or finish running calls before Helper.Stop, which cuts"
    " them.",
)
async def stop(node: DriverNode) -> str:
    """SIGTERM, without calls and in the middle of a Prepare: the registration socket goes first, a
    running call ends, exit code 0, slices stay.
    """
    await _ends(node, "SIGTERM")
    await node.start_fresh()  # without slices: when they are there, its start is over
    if problem := await node.until_ready(node.timing.start):
        raise Broken(f"after SIGTERM: {problem}", node.last_words())
    async with TestClaim(node).allocate() as claim:
        since, late = len(node.cluster.api.requests), ApiFault(200, delay=_BUSY)
        with node.cluster.broken(on_claims(late)):
            call = asyncio.create_task(claim.try_prepare(), name="Prepare during SIGTERM")
            try:
                await node.until(
                    lambda: call.done() or node.cluster.claim_reads(since), node.timing.hold
                )
                was_busy = not call.done()
                await _ends(node, "SIGTERM in the middle of a Prepare")
                await asyncio.wait({call}, timeout=node.timing.hold)
                was_cut = not call.done() or call.exception() is not None
            finally:
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
        if problem := await node.start_again():
            raise Broken(f"after SIGTERM in the middle of a Prepare: {problem}", node.last_words())
        await claim.prepare()
    if was_busy and was_cut:
        raise Fragile("SIGTERM in the middle of a Prepare: the kubelet got no answer")
    return "exit code 0, slices stay, the running Prepare was answered"


async def _ends(node: DriverNode, when: str) -> None:
    """Send SIGTERM, and wait for the end as a driver should end; raises `Broken`."""
    process, slices = node.process, len(node.cluster.slices())
    assert process is not None
    endpoints = [each.endpoint for each in node.connections()]
    lost = list[float]()  # since when nobody serves what is still announced

    def is_announced_in_vain() -> bool:
        if any(map(accepts_connections, endpoints)) or not node.files.sockets():
            lost.clear()
        elif not lost:
            lost.append(asyncio.get_running_loop().time())
        return bool(lost) and node.lost_time.spent(lost[0]) > node.timing.hold

    await process.send_signal(signal.SIGTERM)
    if await node.until(is_announced_in_vain, node.timing.stop) and process.running:
        raise Broken(f"{when}: its registration socket was there longer than its service")
    if process.running:
        raise Broken(f"{when}: still running after {node.timing.stop:g} s")
    if process.code != 0:
        raise Broken(f"{when}: {process.end_text()}", process.last_words())
    if left := node.files.sockets():
        raise Broken(f"{when}: its registration socket {left[0].name} stays")
    if len(node.cluster.slices()) < slices:
        raise Broken(f"{when}: it deleted its slices")


@theme.check(
    "long-path",
    WARN,
    starts=True,
    suffers="On a node with a long --root-dir the driver is in a crash loop, and nobody sees why.",
    source="unix(7): a socket path has at most 107 bytes",
    mend="Check the length of the path and name it in the error.",
)
async def long_path(node: DriverNode) -> str:
    """With a socket path of 107 bytes, or more, the driver serves or ends with one clear error."""
    if node.target.needs_private_view:
        raise NotTried("needs a driver with {kubelet_dir} in its command")
    seen = []
    usual = len(f"/plugins_registry/{node.driver}-reg.sock")
    for length in sorted({_LONGEST_PATH - usual, _TOO_LONG}):
        if length < len(str(node.files.kubelet)) + 2:
            continue  # the directory of the check is longer
        deep = node.files.deep_kubelet(length)
        process = node.process = await node.launch(deep)
        if await node.until(partial(node.files.sockets, deep), node.timing.start):
            seen.append("it serves")
        else:
            how = "still running" if process.running else process.end_text()
            words = r"too long|path|bind|invalid argument"
            if process.code == 0 or not re.search(words, process.output(), re.IGNORECASE):
                raise Fragile(f"{how}, without a word about the path", process.last_words())
            seen.append("one clear error")
        await node.end_processes()
    return ", then ".join(seen)


@theme.check(
    "idle",
    WARN,
    starts=True,
    suffers="On a quiet night, without a call for half an hour, the node loses its devices.",
    source="gRPC: idle connections end after 30 minutes by default; kubelet keeps one open",
    mend="Set no limit for idle connections, and keep serving without calls.",
)
async def idle(node: DriverNode) -> str:
    """After 35 minutes without a call the driver is still registered, and Prepare works."""
    if not node.target.long:
        raise NotTried("needs --long: it waits 35 minutes")
    await node.ready()
    process, known = node.process, len(node.registry.arrivals)
    assert process is not None
    await node.pause(node.timing.idle)
    if not process.running:
        raise Broken(f"its process ended ({process.end_text()})", process.last_words())
    if not node.is_connected():
        raise Broken("it is not connected any more", process.last_words())
    if len(node.registry.arrivals) > known:
        raise Fragile("it registered again meanwhile")
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
    return "still there"
