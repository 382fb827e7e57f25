"""The configuration changes while devices are served."""

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.host.cdi_specs import read_spec_file
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
)
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import QUICK

HEAD = "version: 1\nnamespace: example.com\nscanInterval: 1h\ngoneGrace: 0s\nresources:\n"
SERIAL = "- {name: serial, match: [{path: /dev/ttyUSB*}]}\n"
CAMERA = "- {name: camera, match: [{path: /dev/video*}]}\n"

USB0 = {"ttyUSB0": "Healthy"}
VIDEO0 = {"video0": "Healthy"}


@pytest.fixture
def directory(short_dir: Path) -> Path:
    for name in ("dev", "s"):
        (short_dir / name).mkdir()
    for name in ("ttyUSB0", "video0"):
        (short_dir / "dev" / name).touch()
    return short_dir


@pytest.fixture
def file(directory: Path) -> Path:
    """Give a configuration with the serial ports."""
    file = directory / "host.yaml"
    file.write_text(HEAD + SERIAL)
    return file


@contextlib.asynccontextmanager
async def exposed(directory: Path, file: Path) -> AsyncIterator[tuple[ExposeScanner, FakeKubelet]]:
    scanner = ExposeScanner.from_file(file, dev_root=directory / "dev")
    sockets = directory / "s"
    async with (
        FakeKubelet(sockets) as kubelet,
        kd.serve(scanner, domain="example.com", socket_dir=sockets, timing=QUICK),
    ):
        yield scanner, kubelet


async def test_unchanged_resources_keep_socket_and_stream(directory: Path, file: Path) -> None:
    """One resource comes, one changes, one goes; the other hears nothing of it."""
    async with exposed(directory, file) as (scanner, kubelet):
        serial = await kubelet.wait_for("example.com/serial", USB0)
        file.write_text(HEAD + SERIAL + CAMERA)
        camera = await kubelet.wait_for("example.com/camera", VIDEO0)
        file.write_text(HEAD + SERIAL + CAMERA.replace("]}", "], replicas: 2}"))
        assert await kubelet.wait_for("example.com/camera", 2) is camera
        file.write_text(HEAD + SERIAL)
        await until(lambda: not kubelet.connected("example.com/camera"))
        assert kubelet.connected("example.com/serial") == [serial]
        assert len(serial.lists) == 1
        assert len(kubelet.requests) == 2
        assert (scanner.follower and scanner.follower.reloads) == 3


async def test_an_invalid_file_changes_nothing(
    directory: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every mistake is logged with its place; the next valid one counts again."""
    caplog.set_level(logging.INFO)
    async with exposed(directory, file) as (scanner, kubelet):
        serial = await kubelet.wait_for("example.com/serial", USB0)
        follower = scanner.follower
        assert follower is not None
        file.write_text(HEAD + CAMERA + "- {name: x, mtach: []}\n- {name: y/z}\n")
        await until(lambda: follower.failed_reloads == 1)
        assert f"{file}:7:13: resources[1].mtach: unknown key (did you mean 'match'?)" in (
            caplog.messages
        )
        assert any(f"{file}:8:10: resources[2].name" in text for text in caplog.messages)
        file.write_text((HEAD + SERIAL).replace("example.com", "example.org"))
        await until(lambda: follower.failed_reloads == 2)
        change = "a change from example.com to example.org needs a restart"
        assert f"{file}:2:12: namespace: {change}" in caplog.messages
        file.unlink()
        await until(lambda: follower.failed_reloads == 3)
        assert f"cannot read {file}: No such file or directory" in caplog.messages
        assert caplog.messages.count("the configuration before stays in force") == 3
        assert kubelet.connected("example.com/serial") == [serial]
        file.write_text(HEAD + SERIAL + CAMERA)
        await kubelet.wait_for("example.com/camera", VIDEO0)
        assert kubelet.connected("example.com/serial") == [serial]


async def test_a_config_map_changes_by_a_link_above_the_file(directory: Path) -> None:
    """As the kubelet does it: a new directory, then one rename."""
    volume = directory / "config"
    for version, content in (("..1", HEAD + SERIAL), ("..2", HEAD + SERIAL + CAMERA)):
        (volume / version).mkdir(parents=True)
        (volume / version / "host.yaml").write_text(content)
    (volume / "..data").symlink_to("..1")
    (volume / "host.yaml").symlink_to("..data/host.yaml")
    async with exposed(directory, volume / "host.yaml") as (_, kubelet):
        serial = await kubelet.wait_for("example.com/serial", USB0)
        (volume / "..data_tmp").symlink_to("..2")
        (volume / "..data_tmp").rename(volume / "..data")
        await kubelet.wait_for("example.com/camera", VIDEO0)
        assert kubelet.connected("example.com/serial") == [serial]


async def test_reload_reads_the_file_again(directory: Path, file: Path) -> None:
    """Even though nothing changed; each time once."""
    async with exposed(directory, file) as (scanner, kubelet):
        await kubelet.wait_for("example.com/serial", USB0)
        follower = scanner.follower
        assert follower is not None
        scanner.reload()
        await until(lambda: follower.reloads == 1)
        assert len(kubelet.lists("example.com/serial")) == 1


async def test_a_change_before_the_first_scan_is_not_lost(directory: Path, file: Path) -> None:
    """The file is compared with what was read, whenever the watch begins."""
    scanner = ExposeScanner.from_file(file, dev_root=directory / "dev")
    file.write_text(HEAD + CAMERA)
    async with (
        FakeKubelet(directory / "s") as kubelet,
        kd.serve(scanner, domain="example.com", socket_dir=directory / "s", timing=QUICK),
    ):
        await kubelet.wait_for("example.com/camera", VIDEO0)
        await until(lambda: not kubelet.connected("example.com/serial"))


async def test_a_file_with_the_same_content_changes_nothing(file: Path) -> None:
    """A touch, or a ConfigMap that is written anew without a change."""
    follower = ExposeScanner.from_file(file).follower
    assert follower is not None
    file.write_text(HEAD + SERIAL)
    await follower._look()
    assert follower.reloads == 0
    file.write_text(HEAD + CAMERA)
    await follower._look()
    assert follower.reloads == 1


def defined(directory: Path, resource: str) -> list[str]:
    file = directory / f"cdi/kubedevices_example.com-{resource}.json"
    spec = read_spec_file(file).spec if file.exists() else None
    return [each.name for each in spec.devices] if spec else []


async def test_a_change_of_inject_concerns_one_resource(directory: Path) -> None:
    """It keeps its socket, and its names as long as their devices are there."""
    file, cdi = directory / "host.yaml", directory / "cdi"
    by_cdi = SERIAL.replace("}]}", "}], inject: cdi}")
    (directory / "dev/ttyUSB1").touch()
    file.write_text(HEAD + SERIAL + CAMERA)
    scanner = ExposeScanner.from_file(file, dev_root=directory / "dev")
    sockets = directory / "s"
    async with (
        FakeKubelet(sockets) as kubelet,
        kd.serve(
            scanner, domain="example.com", socket_dir=sockets, cdi_dir=cdi, timing=QUICK
        ) as runner,
    ):

        def gives_names() -> bool:
            return runner.servers["serial"].devices["ttyUSB0"].cdi is not None

        serial = await kubelet.wait_for("example.com/serial", USB0 | {"ttyUSB1": "Healthy"})
        camera = await kubelet.wait_for("example.com/camera", VIDEO0)
        assert not cdi.exists()
        file.write_text(HEAD + by_cdi + CAMERA)
        await until(gives_names)
        request = AllocateRequest((ContainerAllocateRequest(("ttyUSB0",)),))
        (answer,) = (await serial.client.allocate(request, timeout=5)).containers
        assert (answer.devices, answer.cdi_devices) == ([], ["example.com/serial=ttyUSB0"])
        assert defined(directory, "serial") == ["ttyUSB0", "ttyUSB1"]
        file.write_text(HEAD + SERIAL + CAMERA)
        await until(lambda: not gives_names())
        assert defined(directory, "serial") == ["ttyUSB0", "ttyUSB1"]
        (directory / "dev/ttyUSB1").unlink()
        scanner.trigger()
        await until(lambda: defined(directory, "serial") == ["ttyUSB0"])
        assert kubelet.connected("example.com/serial") == [serial]
        assert kubelet.connected("example.com/camera") == [camera]
        assert len(camera.lists) == 1
        file.write_text(HEAD + CAMERA)
        await until(lambda: defined(directory, "serial") == [])
        assert list(cdi.iterdir()) == []
        file.write_text(HEAD + by_cdi)
        await until(lambda: defined(directory, "serial") == ["ttyUSB0"])
    assert defined(directory, "serial") == ["ttyUSB0"]


async def test_a_reload_that_breaks_the_default_of_inject_is_refused(
    directory: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With `--inject cdi`, a resource that CDI has no name for changes nothing."""
    scanner = ExposeScanner.from_file(file, dev_root=directory / "dev", inject="cdi")
    follower = scanner.follower
    assert follower is not None
    file.write_text(HEAD + CAMERA.replace("camera", "3d"))
    await follower._look()
    assert follower.failed_reloads == 1
    assert "3d: no CDI device can have the name example.com/3d=" in caplog.text
    assert scanner.config.resources[0].name == "serial"


async def test_a_new_interval_counts_from_the_next_look(directory: Path, file: Path) -> None:
    """What comes is found without a restart, and without a word."""
    async with exposed(directory, file) as (scanner, kubelet):
        await kubelet.wait_for("example.com/serial", USB0)
        file.write_text(HEAD.replace("1h", "100ms") + SERIAL)
        await until(lambda: scanner.interval == 0.1)
        for i in range(1, 4):  # the first may be found by the look that follows a new file
            (directory / f"dev/ttyUSB{i}").touch()
            await kubelet.wait_for("example.com/serial", i + 1)
