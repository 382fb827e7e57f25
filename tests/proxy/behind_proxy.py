"""A plugin and a proxy in front of it as one program, for the checks of a plugin.

    python behind_proxy.py --then SCRIPT --socket-dir DIR [OTHER OPTIONS]

starts `SCRIPT --socket-dir INSIDE OTHER OPTIONS`, and serves it in DIR by `kubedevices proxy`.
"""

import asyncio
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from kubedevices.proxy.proxy import Proxy
from tests.waiting import until


async def main(socket_dir: Path, script: str, options: list[str]) -> None:
    """Run until SIGTERM."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as directory:
        inside = Path(directory) / "in"
        proxy = Proxy(socket_dir=socket_dir, plugin_dir=inside, state_dir=Path(directory) / "state")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, proxy.stop)
        serving = asyncio.create_task(proxy.run(), name="proxy")
        await until(lambda: proxy.has_started or serving.done())
        plugin = await asyncio.create_subprocess_exec(
            sys.executable, script, "--socket-dir", str(inside), *options
        )
        ended = asyncio.create_task(plugin.wait(), name="plugin")
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        proxy.stop()
        await serving
        if plugin.returncode is None:
            plugin.terminate()
        await ended


def take(words: list[str], option: str) -> str:
    """Take an option with its value out of `words`."""
    at = words.index(option)
    _, value = words[at : at + 2]
    del words[at : at + 2]
    return value


if __name__ == "__main__":
    rest = sys.argv[1:]
    plugin_script, outside = take(rest, "--then"), Path(take(rest, "--socket-dir"))
    asyncio.run(main(outside, plugin_script, rest))
