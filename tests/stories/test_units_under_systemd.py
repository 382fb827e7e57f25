"""The units of `kubedevices manifests --systemd`, under a real systemd."""

import sys
from pathlib import Path

import pytest

from kubedevices.cli import main
from tests.systemd_host import systemd
from tests.waiting import until_sync

PLUGINS = "/var/lib/kubelet/device-plugins"
KUBELET = f"""\
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'ls {PLUGINS} > /run/test/found && mv /run/test/found /run/test/kubelet'
"""
HOME = "ProtectHome=yes"


def unit(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return a unit for the program of these tests, which may be installed below /home or /tmp."""
    program = str(Path(sys.executable).parent / "kubedevices")
    assert main(["manifests", *arguments, "--systemd", "--program", program]) == 0
    text = capsys.readouterr().out
    assert HOME in text
    if program.startswith("/tmp/"):
        text = text.replace("PrivateTmp=yes", "PrivateTmp=no")
    return text.replace(HOME, "ProtectHome=no\nStandardError=append:/run/test/log")


def log(directory: Path) -> str:
    file = directory / "log"
    return file.read_text() if file.exists() else ""


def test_the_plugin_serves_when_the_kubelet_starts(capsys: pytest.CaptureFixture[str]) -> None:
    """Its socket exists then, although both units are started at the same time."""
    units = {"kubelet.service": KUBELET, "kd.service": unit(capsys, "simulate")}
    with systemd(units) as directory:
        until_sync((directory / "kubelet").exists, timeout=60, what="the kubelet's start")
        assert "simple-device" in (directory / "kubelet").read_text(), log(directory)
        assert '"level": "error"' not in log(directory)


def test_a_plugin_that_cannot_start_does_not_block_the_kubelet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error in its configuration ends it; the node starts without its devices."""
    text = unit(capsys, "simulate").replace(" simulate ", " simulate --number-devices many ")
    with systemd({"kubelet.service": KUBELET, "kd.service": text}) as directory:
        until_sync((directory / "kubelet").exists, timeout=60, what="the kubelet's start")
        assert (directory / "kubelet").read_text() == ""
        assert "number-devices" in log(directory)
