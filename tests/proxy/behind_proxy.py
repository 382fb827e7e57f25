"""A plugin of the checks behind a proxy: the checks start and end the plugin, and see the proxy.

    python behind_proxy.py --socket-dir DIR [--mutation NAME] [--watched] [--unrepaired] [--held]
                           [OTHER OPTIONS]

The first process of a run starts the proxy, which stays until the run ends it, as on a node. With
`--watched` the plugin comes by the plugin watcher; with `--unrepaired` the rule is `repair: off`;
with `--held` it is `hold: 5m`, and a plugin that ends is started again, as a kubelet does with its
pod.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from kubedevices.plugin.stop_signals import run_until_signal
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy import Proxy
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.testing.kubelet.linux import die_with_parent
from tests.check.listening import accepts
from tests.forking import may_fork
from tests.waiting import until_sync

AGAIN_AFTER = 0.3
"""Seconds between two lives of a plugin that is held."""

FLAGS = ("--watched", "--unrepaired", "--held")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin to its end; return its exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    is_watched, is_unrepaired, is_held = (name in words for name in FLAGS)
    words = [word for word in words if word not in FLAGS]
    at = words.index("--socket-dir")
    outside = Path(words[at + 1])
    place = outside.parent / "behind"  # removed with the run
    inside, registry = place / "in", place / "reg"
    mark = Path(words[words.index("--cdi-dir") + 1]) / "mark"
    if not mark.exists():  # the checks cleaned their directories: they begin anew
        shutil.rmtree(place, ignore_errors=True)
        mark.touch()
    registry.mkdir(parents=True, exist_ok=True)
    words[at + 1] = str(inside)
    words += ["--registry-dir", str(registry)] * is_watched
    may_fork()
    if not accepts(inside / "kubelet.sock") and os.fork() == 0:
        rule = ProxyRule(repair=not is_unrepaired, hold=300.0 if is_held else None)
        serve(
            Proxy(
                socket_dir=outside,
                plugin_dir=inside,
                state_dir=place / "state",
                registry_dir=registry if is_watched else None,
                rules=LiveRules(ProxyConfig(resources={"*/*": rule})),
            ),
            place / "proxy.log",
        )
    until_sync(lambda: accepts(inside / "kubelet.sock"))
    if is_held:
        live_again_and_again(words)
    return live(words)


def live(words: Sequence[str]) -> int:
    """Be the plugin, which loads grpcio; return its exit code."""
    from tests.check import good_plugin, mutant

    return mutant.main(words) if "--mutation" in words else good_plugin.main(words)


def live_again_and_again(words: Sequence[str]) -> NoReturn:
    """Start the plugin whenever it is not there, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the plugin dies with us
    while True:
        may_fork()
        if (pid := os.fork()) == 0:
            die_with_parent(signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = 1
            try:
                code = live(words)
            finally:
                os._exit(code)
        os.waitpid(pid, 0)
        time.sleep(AGAIN_AFTER)


def serve(proxy: Proxy, log: Path) -> NoReturn:
    """Be the proxy until the run is over."""
    try:
        os.setsid()
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(written, 1)
        os.dup2(written, 2)
        run_until_signal(proxy)
    finally:
        os._exit(1)


if __name__ == "__main__":
    os._exit(main())
