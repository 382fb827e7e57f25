"""Asks a `kubedevices proxy` what is behind it; for `kubedevices devices` and `explain`.

The proxy answers on `proxy.sock` in its state directory, for its owner only.
"""

import asyncio
from pathlib import Path

from kubedevices.errors import WireError
from kubedevices.kubelet_api.clients import JsonClient
from kubedevices.proxied_plugin import ProxiedPlugin
from kubedevices.wire.unix_grpc import GrpcChannel

SERVICE = "kubedevices.proxy.v1.Control"
METHOD = "Plugins"
DEADLINE = 5.0
"""Seconds for the whole question: a proxy that does not answer must not delay what others say."""

_ANSWER_LIMIT = 4 * 1024 * 1024


async def ask_proxy(socket: Path) -> tuple[ProxiedPlugin, ...]:
    """Return the plugins behind the proxy at `socket`.

    There are none where no proxy listens, where it does not answer within `DEADLINE`, where the
    caller may not ask, and where the answer makes no sense.
    """
    try:
        async with (
            asyncio.timeout(DEADLINE),
            await GrpcChannel.dial(
                socket, timeout=DEADLINE, max_receive=_ANSWER_LIMIT, follow_links=False
            ) as channel,
        ):
            answer = await JsonClient(channel, SERVICE).call(METHOD, timeout=DEADLINE)
        plugins = answer.get("plugins")
        return tuple(map(ProxiedPlugin.from_dict, plugins if isinstance(plugins, list) else ()))
    except (WireError, TimeoutError):
        return ()
