"""Judges plugins behind a proxy: which plugin serves a resource, which rules change it. Pure."""

from collections.abc import Collection, Iterable, Iterator

from kubedevices.errors.words import counted, some_of
from kubedevices.explain.finding import Finding, Step
from kubedevices.values.proxied_plugin import DeviceReason, ProxiedPlugin


def judge_proxy(resource: str, proxied: Iterable[ProxiedPlugin]) -> list[Finding]:
    """Judge the plugins behind the proxy that serve `resource` or register it; often none."""
    findings: list[Finding] = []
    for plugin in proxied:
        if plugin.serves(resource):
            findings += _judge_served(resource, plugin)
        elif plugin.resource == resource:
            findings.append(_judge_elsewhere(plugin))
    return findings


def judge_behind(proxied: Iterable[ProxiedPlugin], known: Collection[str]) -> Iterator[Finding]:
    """Judge every plugin behind the proxy, in a line each.

    For a resource in `known` this says nothing about faults: `judge_proxy` does.
    """
    for plugin in proxied:
        at, names = f"proxy, {plugin.resource}", [each.resource for each in plugin.outside]
        if not names:
            if not plugin.is_hidden:
                yield _judge_elsewhere(plugin)
                continue
            yield Step.PROXY.ok(at, f"its plugin {_place(plugin)}; {_rules(plugin)}")
        elif known_names := [name for name in names if name in known]:
            served = f"the kubelet gets {some_of(known_names)}"
            if plugin.is_here:
                found = f"its plugin {_place(plugin)}; {_rules(plugin)}; {served}"
                yield Step.PROXY.ok(at, found)
        else:
            for name in names:
                yield from _judge_served(name, plugin)


def cordoned_of(
    resource: str, proxied: Iterable[ProxiedPlugin], listed: Iterable[DeviceReason]
) -> tuple[DeviceReason, ...]:
    """Return the cordoned devices of `resource`: what the proxy says, without a proxy the list."""
    serving = [each for each in proxied if each.serves(resource)]
    cordoned = [out for each in serving for out in each.cordoned] if serving else listed
    return tuple(each for each in cordoned if each.resource == resource)


def _place(plugin: ProxiedPlugin) -> str:
    if not plugin.is_here:
        return "is not connected to the proxy"
    listed = counted(plugin.healthy + plugin.unhealthy, "device")
    return f"at {plugin.socket} lists {listed}, {plugin.healthy} healthy"


def _judge_served(resource: str, plugin: ProxiedPlugin) -> Iterator[Finding]:
    at = f"proxy, {plugin.resource}"
    (outside,) = [each for each in plugin.outside if each.resource == resource]
    total = outside.healthy + outside.unhealthy
    served = f"the kubelet gets {counted(total, 'device')}, {outside.healthy} healthy"
    words = [_rules(plugin), served]
    if plugin.is_here:
        yield Step.PROXY.ok(at, "; ".join([f"its plugin {_place(plugin)}", *words]))
    else:
        # Also while `hold` keeps the list: new pods wait, and soon they stay Pending.
        yield Step.PROXY.problem(
            at,
            "; ".join(["its plugin is not connected to the proxy", *words]),
            "start the plugin: it registers in the proxy's --plugin-dir",
        )


def _judge_elsewhere(plugin: ProxiedPlugin) -> Finding:
    at = f"proxy, {plugin.resource}"
    names = [each.resource for each in plugin.outside]
    if not names:
        advice = "see the proxy's configuration file and its log"
        return Step.PROXY.problem(at, f"the proxy does not serve it: {_rules(plugin)}", advice)
    return Step.PROXY.problem(
        at,
        f"only the plugin uses this name; the kubelet gets the resource as {some_of(names)}",
        "use that name in pods",
        f"kubedevices explain {names[0]}",
    )


def _rules(plugin: ProxiedPlugin) -> str:
    return f"rules: {'; '.join(plugin.rules)}" if plugin.rules else "no rule changes it"
