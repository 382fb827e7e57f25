"""Our own plugins pass every check that can be tried on them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from socket import socket

import pytest

from kubedevices.check.checks import ALL
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from tests.check import our_program
from tests.check.our_program import KUBEDEVICES
from tests.check.preloaded_supervisor import Forked, forking_supervisors
from tests.check.rig import FAST, found, hot_plug, skipped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("preloaded"),
]

OURS = replace(FAST, noticed_soon=15, registered_at_all=20, change=8)
"""Our registrar waits 10 s after the end of its stream before it registers again."""


WATCHER = {"registration.watcher", "registration.watcher-refused"}
CDI = {f"allocate.cdi-{name}" for name in ("names", "files", "resolvable", "version")}
PREFERRED = {f"preferred.{name}" for name in ("answers", "must-include", "size", "too-large")}
PRE_START = {"prestart.answers", "prestart.unknown-id"}

EXPOSE = """\
version: 1
namespace: devices.example.com
scanInterval: 200ms
resources:
- name: widget
  match:
  - path: {directory}/*
  container: {{path: "/dev/widget{{index}}"}}
  env: {{"WIDGET_{{index}}": "{{container_path}}"}}
  replicas: 2
- name: gadget
  match:
  - path: {directory}/*
"""


@pytest.fixture(scope="module")
def fork_supervisor() -> Iterator[Callable[[socket], Forked]]:
    """Give what forks a supervisor that has our own programs loaded, too."""
    with forking_supervisors(our_program.__name__) as fork:
        yield fork


async def test_expose_passes_everything(short_dir: Path) -> None:
    """`kubedevices expose`, two resources, with hot plug as trigger."""
    devices = short_dir / "devices"
    devices.mkdir()
    for name in ("w0", "w1"):
        (devices / name).touch()
    config = short_dir / "expose.yaml"
    config.write_text(EXPOSE.format(directory=devices))
    command = (*KUBEDEVICES, "expose", "--config", str(config), "--socket-dir", "{socket_dir}")
    target = Target(command, trigger=hot_plug(devices))
    results = (await run_all(target, ALL, OURS)).results
    assert {each.resource for each in results} >= {
        "devices.example.com/widget",
        "devices.example.com/gadget",
    }
    assert not found(results)
    untried = {each.check.id for each in results} - {
        each.check.id for each in results if each.check.id not in skipped(results)
    }
    assert untried <= WATCHER | CDI | PREFERRED | PRE_START | {
        "allocate.unhealthy-id",
        "allocate.annotations",
        "allocate.env-names",
        "list.replicas",
        "life.all-wiped",
        "preferred.not-offered",
    }, [each.verdict for each in results if each.check.id in untried]


async def test_simulate_passes_everything() -> None:
    """`kubedevices simulate` with annotations."""
    options = ("--number-devices", "4", "--annotation-prefix", "gpu")
    command = (*KUBEDEVICES, "simulate", "--socket-dir", "{socket_dir}", *options)
    results = (await run_all(Target(command), ALL, OURS)).results
    assert not found(results)
    files = {f"allocate.{name}" for name in ("paths", "permissions", "container-paths")}
    files |= {"allocate.host-paths", "allocate.env-names"}
    assert skipped(results) <= WATCHER | CDI | PREFERRED | PRE_START | files | {
        "allocate.unhealthy-id",
        "list.change",
        "list.replicas",
        "list.recovers",
        "life.lost-updates",
        "life.all-wiped",
        "registration.unopened-stream",
    }


async def test_simulate_passes_when_it_is_watched() -> None:
    """`kubedevices simulate --registration watch`, found by the plugin watcher; with CDI."""
    options = ("--registration", "watch", "--socket-dir", "{registry_dir}")
    cdi = ("--cdi", "--cdi-dir", "{cdi_dir}")
    results = (await run_all(Target((*KUBEDEVICES, "simulate", *options, *cdi)), ALL, OURS)).results
    assert not found(results)
    assert not (WATCHER | CDI) & skipped(results)
