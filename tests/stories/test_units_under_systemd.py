"""The units of `kubedevices manifests --systemd`, under a real systemd."""

import base64
import json
import re
import sys
from pathlib import Path

import pytest

from kubedevices.manifests.units import plugin_unit
from kubedevices.testing.api_server import ApiServer
from tests.command_line import CommandLine
from tests.systemd_host import systemd
from tests.waiting import until_sync

PLUGINS = "/var/lib/kubelet/device-plugins"
HARD = "a $HOME ${HOME} $$ %n 100% \"q\" 'a' \\\\ back \\t ä \t tab ;"
"""A text with everything that systemd expands, removes or replaces."""
KUBELET = f"""\
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'ls {PLUGINS} > /run/test/found && mv /run/test/found /run/test/kubelet'
"""
HOME = "ProtectHome=yes"


def unit(cli: CommandLine, *arguments: str) -> str:
    """Return a unit for the program of these tests, which may be installed below /home or /tmp."""
    program = str(Path(sys.executable).parent / "kubedevices")
    text = cli("manifests", *arguments, "--systemd", "--program", program).out
    assert HOME in text
    if program.startswith("/tmp/"):
        text = text.replace("PrivateTmp=yes", "PrivateTmp=no")
    return text.replace(HOME, "ProtectHome=no\nStandardError=append:/run/test/log")


def log(directory: Path) -> str:
    file = directory / "log"
    return file.read_text() if file.exists() else ""


def test_the_plugin_serves_when_the_kubelet_starts(cli: CommandLine) -> None:
    """Its socket exists then, although both units are started at the same time."""
    units = {"kubelet.service": KUBELET, "kd.service": unit(cli, "simulate")}
    with systemd(units) as directory:
        until_sync((directory / "kubelet").exists, timeout=60, what="the kubelet's start")
        assert "simple-device" in (directory / "kubelet").read_text(), log(directory)
        assert '"level": "error"' not in log(directory)


def test_a_plugin_that_cannot_start_does_not_block_the_kubelet(cli: CommandLine) -> None:
    """An error in its configuration ends it; the node starts without its devices."""
    text = unit(cli, "simulate").replace(" simulate ", " simulate --number-devices many ")
    with systemd({"kubelet.service": KUBELET, "kd.service": text}) as directory:
        until_sync((directory / "kubelet").exists, timeout=60, what="the kubelet's start")
        assert (directory / "kubelet").read_text() == ""
        assert "number-devices" in log(directory)


def test_systemd_reads_each_word_as_it_was_given() -> None:
    """Variables and arguments: no expansion, no specifier, no escape changes them."""
    script = (
        "import json, os, sys; v = {**os.environ}; json.dump([v['HARD'], v['PLAIN'], sys.argv[1:]]"
    )
    script += ", open('/run/test/new', 'w')); os.rename('/run/test/new', '/run/test/words')"
    arguments = ["-IS", "-c", script, HARD, "$HOME", "plain", ""]
    env = {"HARD": HARD, "PLAIN": "$HOME%n"}
    kept = [
        line
        for line in plugin_unit(sys.executable, arguments, env).splitlines()
        if line.startswith(("Environment=", "ExecStart="))
    ]
    text = "[Service]\nType=oneshot\n" + "\n".join(kept) + "\n"
    with systemd({"words.service": text}) as directory:
        until_sync((directory / "words").exists, timeout=60, what="the unit's end")
        found = json.loads((directory / "words").read_text())
    assert found == [HARD, "$HOME%n", [HARD, "$HOME", "plain", ""]]


def test_a_plugin_that_ends_often_is_started_again(cli: CommandLine) -> None:
    """systemd gives up a service after five quick ends, unless its unit says otherwise."""
    text = unit(cli, "simulate")
    count = "/bin/sh -c 'echo x >> /run/test/starts; exit 1'"
    text = re.sub("^ExecStart=.*$", f"ExecStart={count}", text, flags=re.MULTILINE)
    text = text.replace("RestartSec=1", "RestartSec=10ms").replace("Nice=-10", "")
    with systemd({"kd.service": text}) as directory:
        starts = directory / "starts"
        until_sync(
            lambda: starts.exists() and starts.read_text().count("x") > 7, timeout=60, what="starts"
        )


@pytest.mark.parametrize("mode", ["dra", "split"])
def test_a_driver_has_its_sockets_when_the_kubelet_starts(cli: CommandLine, mode: str) -> None:
    """The limits of the unit let it, and it waits neither for a kubelet nor for the API server."""
    more = ["--dra-devices", "simple-device"] if mode == "split" else []
    text = unit(cli, "simulate", "--mode", mode, *more, "--kubeconfig", "/run/test/kubeconfig")
    registry = "/var/lib/kubelet/plugins_registry"
    # Nobody listens at this address.
    access = base64.b64encode(ApiServer().kubeconfig().replace(":0", ":1").encode()).decode()
    before = f"mkdir -p {registry}; echo {access} | base64 -d > /run/test/kubeconfig"
    text = text.replace("[Service]\n", f"[Service]\nExecStartPre=/bin/sh -c '{before}'\n")
    units = {"kubelet.service": KUBELET.replace(PLUGINS, registry), "kd.service": text}
    with systemd(units) as directory:
        until_sync((directory / "kubelet").exists, timeout=60, what="the kubelet's start")
        assert "example.com-reg." in (directory / "kubelet").read_text(), log(directory)
        assert "cannot be reached" in log(directory)
