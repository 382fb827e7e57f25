"""How a plugin's ListAndWatch streams behave: beside each other and over time."""

from itertools import pairwise

from kubedevices.conformance.check import Broken, Phase, Severity, Theme
from kubedevices.conformance.plugin import Plugin, shorten
from kubedevices.kubelet_api.convert import EMPTY
from kubedevices.kubelet_api.services import LIST_AND_WATCH
from kubedevices.words import counted

FAIL, WARN = Severity.FAIL, Severity.WARN

DISTURBING = "disturbing"
"""The track of checks that end streams, hang up or misbehave; they share one plugin."""
OFTEN = 12
"""Lists or answers to compare: two devices at random have the same order in every other one."""

abandoned = Theme("list", needs=("registration.options",), track=None, disturbs=True)
theme = Theme(
    "list",
    needs=("registration.options", "list.abandoned-stream"),
    track=DISTURBING,
    disturbs=True,
)


@abandoned.check(
    "abandoned-stream",
    FAIL,
    suffers="Every kubelet restart abandons a stream; a plugin that stops serving then is lost.",
    source="kubelet 1.32: connections are dropped, streams cancelled",
    mend="End only the one call when its client cancels it; keep serving.",
    seen="ROCm (exits 1 when its stream ends)",
)
async def abandoned_stream(plugin: Plugin) -> str:
    """A client that cancels its stream does no harm to other clients."""
    await plugin.device_list()
    async with plugin.another_stream() as stream:
        await plugin.first(stream, plugin.timing.first_list)
        await stream.cancel()
        await plugin.stage.pause(plugin.timing.hold)
        took = await plugin.must_still_work("after a cancelled stream")
        if plugin.resource == plugin.stage.resources[-1]:  # once for all of them
            await plugin.stage.pause(plugin.timing.watch)  # some die of it only when they notice
    return f"others were served in {took}"


@theme.check(
    "second-stream",
    FAIL,
    suffers="After a kubelet restart the new stream stays without devices until something changes.",
    source="device plugin API: ListAndWatch returns the list, then every change",
    mend="Let every stream begin with the current list; do not share one queue among them.",
)
async def second_stream(plugin: Plugin) -> str:
    """A second stream gets the whole list at once, too."""
    await plugin.stage.steady()
    known = await plugin.device_list()
    async with plugin.another_stream() as stream:
        found = await plugin.first_of(stream, plugin.timing.first_list)
        if found is None:
            raise Broken(f"no list within {plugin.timing.first_list:g} s {stream.end}".rstrip())
    if plugin.stage.notes.changes.untouched({*found.healthy} ^ {*known.healthy}):
        raise Broken(f"{len(found.devices)} devices instead of {len(known.devices)}")
    took = 1000 * (found.at - stream.opened_at)
    return f"{counted(len(found.devices), 'device')} after {took:.0f} ms"


@theme.check(
    "slow-reader",
    FAIL,
    suffers="One stuck client, a busy kubelet for instance, stops updates and allocations of "
    "everybody.",
    source="HTTP/2 flow control; streams of former kubelets can linger",
    mend="Hold no lock while sending; give every stream its own task and its own state.",
)
async def slow_reader(plugin: Plugin) -> str:
    """A client that does not read its stream does no harm to other clients."""
    await plugin.device_list()
    connection = await plugin.raw_connection(window=1)
    try:
        connection.call(LIST_AND_WATCH, EMPTY)
        await plugin.stage.pause(plugin.timing.hold)
        took = await plugin.must_still_work("beside a client that reads nothing")
    finally:
        connection.hang_up()
    return f"others were served in {took}"


@theme.check(
    "order",
    WARN,
    suffers="A program that compares two lists sees changes that did not happen.",
    source="kubelet 1.32: every message is a change; plugins compare lists themselves",
    mend="Sort by ID before sending.",
)
async def order(plugin: Plugin) -> str:
    """Devices come in the same order every time."""
    known = [*plugin.session.lists]
    await plugin.device_list()
    for _ in range(OFTEN):
        async with plugin.another_stream() as stream:
            if found := await plugin.first(stream, plugin.timing.first_list):
                known.append(found)
    for one, other in pairwise(known):
        shared = {device.id for device in one.devices} & {device.id for device in other.devices}
        left = [device.id for device in one.devices if device.id in shared]
        right = [device.id for device in other.devices if device.id in shared]
        if left != right:
            raise Broken(f"{shorten(left)}; another time {shorten(right)}")
    return f"the same in {len(known)} lists"


# ---------------------------------------------------------------- looking back

quiet = Theme("list", phase=Phase.QUIET, needs=("registration.options",), slow=True)


@quiet.check(
    "stays-open",
    FAIL,
    suffers="The kubelet marks all devices unhealthy when the stream ends, and never opens it "
    "again.",
    source="kubelet 1.32: no reconnect, no second ListAndWatch per registration",
    mend="Keep the call running after the first message until the client ends it.",
)
async def stays_open(plugin: Plugin) -> str:
    """The stream stays open while the plugin lives."""
    stream = plugin.session.stream
    assert stream
    await plugin.watch_quietly()
    lived = plugin.stage.spent(stream.opened_at)
    if not stream.is_open:
        ended = f"after {stream.lists[-1].at - stream.opened_at:.1f} s or later"
        raise Broken(f"it ended {ended}: {stream.end}")
    return f"open for {lived:.0f} s"


@quiet.check(
    "identical",
    WARN,
    suffers="Each message is applied, and written to the kubelet's checkpoint, on every stream.",
    source="kubelet 1.32: no message is compared with the one before",
    mend="Send a list only when its content changed; compare by content.",
    seen="ROCm with -pulse (17 lists in 33 s), Intel npu and gpu with NUMA information (8)",
)
async def identical(plugin: Plugin) -> str:
    """The plugin does not repeat the same list."""
    await plugin.watch_quietly()
    lists = plugin.session.lists
    same = sum(one.content == other.content for one, other in pairwise(lists))
    span = f"{plugin.timing.quiet:g} s"
    if same > 1:
        raise Broken(f"{same} of {len(lists)} lists within {span} were the one before again")
    return f"{len(lists)} lists within {span}"


@quiet.check(
    "steady",
    WARN,
    suffers="Devices that come and go by themselves make pods fail at random.",
    source="device plugin API: a list replaces the one before",
    mend="Damp health that flaps; do not forget devices between two scans.",
    seen="Intel's notifier, given the same tree twice, forgets its types",
)
async def steady(plugin: Plugin) -> str:
    """Devices do not change while nothing happens to them."""
    await plugin.watch_quietly()
    lists = plugin.session.lists
    full = [each for each in lists if each.devices or each is not lists[0]]
    changes = [(one, other) for one, other in pairwise(full) if one.content != other.content]
    if changes:
        one, other = changes[0]
        raise Broken(
            f"{len(changes)} changes within {plugin.timing.quiet:g} s, first of "
            f"{shorten(sorted({each.id for each in one.content ^ other.content}))}"
        )
    return f"no change within {plugin.timing.quiet:g} s"
