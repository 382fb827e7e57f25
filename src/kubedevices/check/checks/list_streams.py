"""Checks ListAndWatch streams: several at the same time, and over time."""

from itertools import pairwise

from kubedevices.check.answers import shorten
from kubedevices.check.check import FAIL, WARN, Broken, Harm, Phase, Theme
from kubedevices.check.plugin import Plugin
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.convert import EMPTY
from kubedevices.kubelet_api.services import LIST_AND_WATCH

DISTURBING = "disturbing"
"""The track of checks that end streams, close connections or break the protocol."""
OFTEN = 12
"""How many lists or answers to compare: two devices in random order have the same order in half of
the lists.
"""

abandoned = Theme(
    "list",
    needs=("registration.options",),
    track=None,
    disturbs=True,
    harm=Harm.ALL_DEVICES,
)
theme = Theme(
    "list",
    needs=("registration.options", "list.abandoned-stream"),
    track=DISTURBING,
    disturbs=True,
    harm=Harm.ALL_DEVICES,
)


@abandoned.check(
    "abandoned-stream",
    FAIL,
    suffers="Every kubelet restart cancels a stream. If the plugin then stops serving, the node "
    "loses it.",
    source="kubelet 1.32: it drops connections and cancels streams",
    mend="When a client cancels a call, end only this call and continue to serve.",
    seen="ROCm (exits 1 when a stream ends)",
)
async def abandoned_stream(plugin: Plugin) -> str:
    """A client that cancels its stream does no harm to other clients."""
    await plugin.device_list()
    async with plugin.another_stream() as stream:
        await plugin.first(stream, plugin.timing.first_list)
        await stream.cancel()
        await plugin.harness.pause(plugin.timing.hold)
        took = await plugin.must_still_work("after a cancelled stream")
        if plugin.resource == plugin.harness.resources[-1]:  # once for all resources
            await plugin.harness.pause(plugin.timing.watch)  # some notice late, and end then
    return f"other clients were served in {took}"


@theme.check(
    "second-stream",
    FAIL,
    suffers="After a kubelet restart, the new stream has no devices until a device changes.",
    source="device plugin API: ListAndWatch returns the list, then every change",
    mend="Begin every stream with the current list; do not share one queue between streams.",
)
async def second_stream(plugin: Plugin) -> str:
    """A second stream also gets the whole list within 2 s."""
    await plugin.harness.steady()
    known = await plugin.device_list()
    async with plugin.another_stream() as stream:
        found = await plugin.first_of(stream, plugin.timing.first_list)
        if found is None:
            raise Broken(f"no list within {plugin.timing.first_list:g} s {stream.end}".rstrip())
    if plugin.harness.shared.changes.untouched({*found.healthy} ^ {*known.healthy}):
        raise Broken(f"{counted(len(found.devices), 'device')} instead of {len(known.devices)}")
    took = 1000 * (found.at - stream.opened_at)
    return f"{counted(len(found.devices), 'device')} after {took:.0f} ms"


@theme.check(
    "slow-reader",
    FAIL,
    suffers="One client that does not read, for example a busy kubelet, blocks updates and "
    "allocations of all clients.",
    source="HTTP/2 flow control; streams of former kubelets can stay open",
    mend="Hold no lock while you send; give every stream its own task and its own state.",
)
async def slow_reader(plugin: Plugin) -> str:
    """A client that does not read its stream does no harm to other clients."""
    await plugin.device_list()
    connection = await plugin.raw_connection(window=1)
    try:
        connection.call(LIST_AND_WATCH, EMPTY)
        await plugin.harness.pause(plugin.timing.hold)
        took = await plugin.must_still_work("beside a client that reads nothing")
    finally:
        connection.hang_up()
    return f"other clients were served in {took}"


@theme.check(
    "order",
    WARN,
    suffers="A program that compares two lists sees changes that did not happen.",
    source="kubelet 1.32: every message counts as a change; plugins must compare lists themselves",
    mend="Sort the devices by ID before you send them.",
)
async def order(plugin: Plugin) -> str:
    """Every list has the devices in the same order."""
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
            raise Broken(f"{shorten(left)} in one list, {shorten(right)} in another")
    return f"the same order in {counted(len(known), 'list')}"


# ---------------------------------------------------------------- without any call

quiet = Theme(
    "list",
    phase=Phase.QUIET,
    needs=("registration.options",),
    slow=True,
    harm=Harm.ALL_DEVICES,
)


@quiet.check(
    "stays-open",
    FAIL,
    suffers="When the stream ends, the kubelet marks all devices unhealthy. It never opens another "
    "stream.",
    source="kubelet 1.32: no reconnect, no second ListAndWatch per registration",
    mend="After the first message, do not return from the call until the client ends it.",
)
async def stays_open(plugin: Plugin) -> str:
    """The stream stays open while the plugin lives."""
    stream = plugin.session.stream
    assert stream
    await plugin.watch_quietly()
    lived = plugin.harness.spent(stream.opened_at)
    if not stream.is_open:
        ended = f"after {stream.lists[-1].at - stream.opened_at:.1f} s or later"
        raise Broken(f"the stream ended {ended}: {stream.end}")
    return f"open for {lived:.0f} s"


@quiet.check(
    "identical",
    WARN,
    suffers="The kubelet applies each message and writes its checkpoint, once for every stream.",
    source="kubelet 1.32: it does not compare a message with the one before",
    mend="Compare each list with the last list that you sent; send it only if it differs.",
    seen="ROCm with -pulse (17 lists in 33 s), Intel npu and gpu with NUMA information (8)",
)
async def identical(plugin: Plugin) -> str:
    """The plugin does not repeat the same list."""
    await plugin.watch_quietly()
    lists = plugin.session.lists
    same = sum(one.content == other.content for one, other in pairwise(lists))
    span = f"{plugin.timing.quiet:g} s"
    if same > 1:
        raise Broken(
            f"{same} of {counted(len(lists), 'list')} within {span} repeated the list before"
        )
    return f"{counted(len(lists), 'list')} within {span}"


@quiet.check(
    "steady",
    WARN,
    suffers="If devices come and go without a reason, pods fail at random.",
    source="device plugin API: a list replaces the one before",
    mend="Report a change of health only when it lasts; do not lose devices between two scans.",
    seen="Intel (the notifier loses the device types if it gets the same tree twice)",
)
async def steady(plugin: Plugin) -> str:
    """The list does not change while nothing happens to the devices."""
    await plugin.watch_quietly()
    lists = plugin.session.lists
    full = [each for each in lists if each.devices or each is not lists[0]]
    changes = [(one, other) for one, other in pairwise(full) if one.content != other.content]
    if changes:
        one, other = changes[0]
        raise Broken(
            f"{counted(len(changes), 'change')} within {plugin.timing.quiet:g} s, the first of "
            f"{shorten(sorted({each.id for each in one.content ^ other.content}))}"
        )
    return f"no change within {plugin.timing.quiet:g} s"
