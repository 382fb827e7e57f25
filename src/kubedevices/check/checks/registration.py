"""Checks the first Register call of the plugin."""

from kubedevices.check.answers import options_text
from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, NotTried, Phase, Theme
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.errors import UnsupportedVersion
from kubedevices.errors.words import counted
from kubedevices.testing.kubelet.arrival import GAVE_UP
from kubedevices.values.allocation import API_VERSION
from kubedevices.values.resource_name import explain_resource_name

arrival = Theme("registration", phase=Phase.ARRIVAL, harm=Harm.ALL_DEVICES)


@arrival.check(
    "registers",
    FAIL,
    suffers="The resource never appears on the node; pods that ask for it stay Pending.",
    source="Kubernetes documentation, Device Plugins: device plugin registration",
    mend="Call v1beta1.Registration/Register on kubelet.sock in the plugin directory.",
    seen="GCE accelerators (if kubelet.sock appears after the plugin started)",
)
async def registers(harness: Harness) -> str:
    """The plugin registers with a running kubelet."""
    if not harness.target.command:
        return ", ".join(harness.resources)
    first = min(each.at for each in harness.probe.arrivals if each.resource in harness.resources)
    return f"{', '.join(harness.resources)}: {first - harness.launched_at:.2f} s after its start"


@arrival.check(
    "serves-first",
    FAIL,
    needs=("registration.registers",),
    suffers="The kubelet dials the plugin before it answers Register. A refused dial costs at "
    "least a second of back-off; after ten seconds the registration fails.",
    source="kubelet 1.32: Register dials the endpoint, for 10 s, before it replies",
    mend="Bind the socket, serve, and only then call Register.",
)
async def serves_first(plugin: Plugin) -> str:
    """The plugin serves on its socket before it calls Register."""
    found = plugin.arrival
    if found.session is None:
        raise Broken(
            f"could not be dialled ({found.dial_problem}) in {counted(found.dials, 'attempt')} "
            f"within {plugin.timing.dial:g} s"
        )
    if found.dials > 1:
        raise Fragile(f"could be dialled only at try {found.dials} ({found.dial_problem})")
    took = plugin.harness.spent(found.at, found.at + found.dial_took)
    if took > plugin.timing.first_list:
        raise Fragile(f"served only {took:.1f} s after it had called Register")
    return "answered the first dial"


@arrival.check(
    "version",
    FAIL,
    needs=("registration.registers",),
    suffers="The kubelet refuses the registration, so the resource never appears on the node.",
    source="kubelet 1.32: validation in Register; v1beta1 is the only version served",
    mend=f'Register with version "{API_VERSION}".',
    seen="k8s-dummy-device-plugin (v1alpha)",
)
async def version(plugin: Plugin) -> str:
    """The plugin registers with API version v1beta1."""
    _by_register(plugin)
    said = plugin.arrival.request.version
    if said != API_VERSION:
        raise Broken(f'version "{said}"', str(UnsupportedVersion(said, API_VERSION)))
    return said


@arrival.check(
    "endpoint",
    FAIL,
    needs=("registration.registers",),
    suffers="The kubelet appends the endpoint to its plugin directory, so it does not find the "
    "socket of an absolute path.",
    source="kubelet 1.32: socket path = plugin directory + endpoint",
    mend="Create the socket in the plugin directory; send only its file name as endpoint.",
)
async def endpoint(plugin: Plugin) -> str:
    """The endpoint is the file name of a socket in the plugin directory."""
    _by_register(plugin)
    said = plugin.arrival.request.endpoint
    if not said or "/" in said or said in (".", ".."):
        raise Broken(f"endpoint {said!r}")
    return said


@arrival.check(
    "resource-name",
    FAIL,
    needs=("registration.registers",),
    suffers="The kubelet refuses the registration: the ResourceName is invalid.",
    source="kubelet 1.32: extended resource names (a domain, one slash, a qualified name)",
    mend="Use a name such as example.com/widget; domains in kubernetes.io are not allowed.",
)
async def resource_name(plugin: Plugin) -> str:
    """The resource name is a valid name of an extended resource."""
    problem = explain_resource_name(plugin.resource)
    if problem:
        raise Broken(f"{plugin.resource!r}: {problem}")
    return plugin.resource


@arrival.check(
    "options",
    FAIL,
    needs=("registration.registers", "registration.serves-first", "grpc.authority"),
    suffers="The kubelet calls GetDevicePluginOptions during Register; an error there fails the "
    "registration.",
    source="kubelet 1.32: after the dial, the kubelet calls GetDevicePluginOptions",
    mend="Implement GetDevicePluginOptions; without options, return an empty message.",
    seen="kubevirt kvm and bridge plugins (nil answer, panic)",
)
async def options(plugin: Plugin) -> str:
    """The plugin answers GetDevicePluginOptions."""
    if problem := plugin.arrival.options_problem:
        harness = plugin.harness
        await harness.pause(plugin.timing.hold)  # the end of a process is seen after its last call
        if ended := harness.how_ended():
            when = f"{ended} during GetDevicePluginOptions"
            harness.record_end(when)
            text = when if problem == GAVE_UP else f"{when}: {problem}"
            raise Broken(text, harness.last_words())
        raise Broken(problem)
    return options_text(plugin.session.options)


@arrival.check(
    "options-equal",
    WARN,
    needs=("registration.options",),
    suffers="Kubelets ignore the options in Register; an older kubelet or a tool that reads them "
    "gets wrong options.",
    source="device plugin API: RegisterRequest.options and GetDevicePluginOptions are equal",
    mend="Fill both messages from the same variable.",
)
async def options_equal(plugin: Plugin) -> str:
    """The options in Register and in GetDevicePluginOptions are equal."""
    _by_register(plugin)
    registered, answered = plugin.arrival.request.options, plugin.session.options
    if registered != answered:
        raise Broken(
            f"Register: {options_text(registered)}; "
            f"GetDevicePluginOptions: {options_text(answered)}"
        )
    return "the same"


def _by_register(plugin: Plugin) -> None:
    if plugin.arrival.info is not None:
        raise NotTried("it registers through the plugin watcher")


quiet = Theme("registration", phase=Phase.QUIET, needs=("registration.options",), slow=True)


@quiet.check(
    "once",
    WARN,
    suffers="Every registration adds a stream; the kubelet then applies each update once per "
    "stream and writes its checkpoint as often.",
    source="kubelet 1.32: a plugin that registers n times has n streams",
    mend="Register again only if a socket was replaced or the stream has ended.",
)
async def once(plugin: Plugin) -> str:
    """The plugin registers only once with the same kubelet."""
    await plugin.watch_quietly()
    count = plugin.times_registered()
    if count > 1:
        raise Broken(f"registered {count} times within {plugin.timing.quiet:g} s")
    return "once"
