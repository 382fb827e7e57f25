"""Asks a `kubedevices proxy` for the plugins behind it; for `kubedevices devices` and `explain`.

The proxy listens on `proxy.sock` in its state directory. Only its own user may connect.
"""

from pathlib import Path

from kubedevices.errors import WireError
from kubedevices.kubelet_api.clients import call_once
from kubedevices.values.proxied_plugin import ProxiedPlugin

SERVICE = "kubedevices.proxy.v1.Control"
METHOD = "Plugins"
DEADLINE = 5.0
"""Seconds for connection and answer: a stuck proxy must not delay the rest of the output."""

_ANSWER_LIMIT = 4 * 1024 * 1024


async def ask_proxy(socket: Path) -> tuple[ProxiedPlugin, ...]:
    """Return the plugins behind the proxy at `socket`; empty if none answers us in time."""
    try:
        answer = await call_once(socket, SERVICE, METHOD, deadline=DEADLINE, limit=_ANSWER_LIMIT)
        plugins = answer.get("plugins")
        return tuple(map(ProxiedPlugin.from_dict, plugins if isinstance(plugins, list) else ()))
    except (WireError, TimeoutError):
        return ()
