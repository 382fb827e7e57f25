"""The file of the devices that pods of the device plugin hold while DRA waits."""

import errno
import os
from collections.abc import Collection

import pytest

from kubedevices.dra.names import DeviceKey
from kubedevices.serving.held_devices_file import FILE_NAME, HeldDevicesFile
from tests.serving.node_rig import BOTH, DOMAIN, NodeRig
from tests.serving.test_switch import choose_dra_beside_a_pod, offered
from tests.waiting import until


async def test_a_full_disk_delays_the_file_of_held_devices(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written when there is room, also if nothing else changes; the log has one line."""
    is_full, tries, write = True, list[bool](), HeldDevicesFile.write

    def try_to_write(file: HeldDevicesFile, keys: Collection[DeviceKey]) -> None:
        tries.append(is_full)
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, keys)

    note = rig.directory / "k" / "plugins" / DOMAIN / FILE_NAME
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
        await until(note.exists)
        monkeypatch.setattr(HeldDevicesFile, "write", try_to_write)
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == BOTH)
        failed = len(tries)
        await until(lambda: len(tries) > failed + 5)
        is_full = False
        await until(lambda: not note.exists())
    assert caplog.text.count("cannot write the file of devices that pods hold: ") == 1
