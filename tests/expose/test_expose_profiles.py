"""Every profile of expose on a tree of files as its hardware makes it, with neighbours beside."""

from pathlib import Path
from typing import NamedTuple

import pytest

from kubedevices.expose.read_profiles import PROFILES, combine, profile_names, read_profile
from kubedevices.expose.scanner import ExposeScanner
from tests.host.sysfs_trees import add_pci, add_usb, write


class Case(NamedTuple):
    """A host, and what a profile makes of it.

    `dev`: files below /dev; `A -> B` is a link. `buses`: `pci ADDRESS VENDOR CLASS [DRIVER]: FILE
    …` and `usb PORT VENDOR PRODUCT [CLASS]: FILE …`. `devices`: `RESOURCE ID: FILE …` of a
    container, the name on the host before `>` if it is another; of replicas only the first is
    listed.
    """

    dev: str
    devices: str
    buses: str = ""


CASES = {
    "fuse": Case("fuse cuse", "fuse fuse: fuse"),
    "kvm": Case("kvm vhost-net", "kvm kvm: kvm"),
    "tun": Case("net/tun vhost-net", "tun net-tun: net/tun"),
    "vhost": Case(
        "kvm vhost-net vhost-vsock vsock",
        """
        vhost-net vhost-net: vhost-net
        vhost-vsock vhost-vsock: vhost-vsock
        """,
    ),
    "tpm": Case("tpm0 tpmrm0 vtpmx", "tpm tpmrm0: tpmrm0"),
    "serial": Case(
        """
        ttyS0 ttyUSB0 ttyACM0
        serial/by-id/usb-FTDI_FT232R_USB_UART_A10-if00-port0 -> ../../ttyUSB0
        serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0 -> ../../ttyUSB0
        ttyUSB1 ttyUSB2
        serial/by-id/usb-1a86_USB_Serial-if00-port0 -> ../../ttyUSB2
        serial/by-path/pci-0000:00:14.0-usb-0:3:1.0-port0 -> ../../ttyUSB1
        serial/by-path/pci-0000:00:14.0-usb-0:4:1.0-port0 -> ../../ttyUSB2
        """,
        """
        serial usb-1a86_USB_Serial-if00-port0: ttyUSB2>ttyUSB0
        serial usb-FTDI_FT232R_USB_UART_A10-if00-port0: ttyUSB0>ttyUSB1
        serial serial-by-path-pci-0000:00:14.0-usb-0:3:1.0-port0: ttyUSB1>ttyUSB2
        serial ttyACM0: ttyACM0>ttyUSB3
        """,
    ),
    "zigbee": Case(
        """
        ttyUSB0 ttyUSB1 ttyUSB2 ttyACM0 ttyACM1
        serial/by-id/usb-dresden_elektronik_ingenieurtechnik_GmbH_ConBee_II_1-if00 -> ../../ttyACM0
        serial/by-id/usb-ITEAD_SONOFF_Zigbee_3.0_USB_Dongle_Plus_V2_2024-if00 -> ../../ttyACM1
        serial/by-id/usb-Silicon_Labs_Sonoff_Zigbee_3.0_USB_Dongle_Plus_0-if0 -> ../../ttyUSB0
        serial/by-id/usb-Nabu_Casa_SkyConnect_v1.0_3abe-if00-port0 -> ../../ttyUSB1
        serial/by-id/usb-FTDI_FT232R_USB_UART_A10-if00-port0 -> ../../ttyUSB2
        """,
        """
        zigbee usb-ITEAD_SONOFF_Zigbee_3.0_USB_Dongle_Plus_V2_2024-if00: ttyACM1>zigbee
        zigbee usb-Nabu_Casa_SkyConnect_v1.0_3abe-if00-port0: ttyUSB1>zigbee
        zigbee usb-Silicon_Labs_Sonoff_Zigbee_3.0_USB_Dongle_Plus_0-if0: ttyUSB0>zigbee
        zigbee usb-dresden_elektronik_ingenieurtechnik_GmbH_ConBee_II_1-if00: ttyACM0>zigbee
        """,
    ),
    "video": Case(
        """
        video0 video1 video2 video10 media0
        v4l/by-id/usb-046d_HD_Pro_Webcam_C920_AF1-video-index0 -> ../../video1
        v4l/by-id/usb-046d_HD_Pro_Webcam_C920_AF1-video-index1 -> ../../video2
        v4l/by-path/pci-0000:00:14.0-usb-0:1:1.0-video-index0 -> ../../video1
        v4l/by-path/platform-fe801000.csi-video-index0 -> ../../video0
        v4l/by-path/platform-bcm2835-codec-video-index0 -> ../../video10
        """,
        """
        camera usb-046d_HD_Pro_Webcam_C920_AF1-video-index0: video1>video0
        camera v4l-by-path-platform-fe801000.csi-video-index0: video0>video1
        """,
    ),
    "sound": Case(
        """
        snd/controlC0 snd/pcmC0D0p snd/pcmC0D0c snd/pcmC0D3p snd/controlC1
        snd/pcmC1D0p snd/hwC0D0 snd/midiC1D0 snd/seq snd/timer snd/controlC10 snd/pcmC10D0p
        """,
        """
        sound snd-controlC0: snd/controlC0 snd/pcmC0D0c snd/pcmC0D0p snd/pcmC0D3p snd/timer snd/seq
        sound snd-controlC1: snd/controlC1 snd/pcmC1D0p snd/midiC1D0 snd/timer snd/seq
        sound snd-controlC10: snd/controlC10 snd/pcmC10D0p snd/timer snd/seq
        """,
    ),
    "intel-gpu": Case(
        "kfd",
        "intel-gpu 0000:00:02.0: dri/renderD128",
        """
        pci 0000:00:02.0 0x8086 0x030000: i2c-3 drm_dp_aux0 dri/card0 dri/renderD128
        pci 0000:03:00.0 0x1002 0x030000: dri/card1 dri/renderD129
        pci 0000:04:00.0 0x8086 0x010802: nvme0n1
        pci 0000:05:00.0 0x8086 0x038000: dri/card2 i2c-4
        """,
    ),
    "amd-gpu": Case(
        "kfd",
        """
        amd-gpu 0000:03:00.0: dri/renderD129 kfd
        amd-gpu 0000:83:00.0: dri/renderD130 kfd
        """,
        """
        pci 0000:00:02.0 0x8086 0x030000: dri/card0 dri/renderD128
        pci 0000:03:00.0 0x1002 0x030000: dri/card1 dri/renderD129
        pci 0000:83:00.0 0x1002 0x120000: dri/card2 dri/renderD130
        """,
    ),
    "coral": Case(
        "apex_0",
        """
        coral-pcie apex_0: apex_0
        coral-usb usb-18d1-9302-2-1: bus/usb/002/003
        coral-usb usb-1a6e-089a-2-2: bus/usb/002/004
        """,
        """
        usb 2-1 18d1 9302: bus/usb/002/003
        usb 2-2 1a6e 089a: bus/usb/002/004
        usb 2-3 18d1 4ee7: bus/usb/002/005
        """,
    ),
    "zwave": Case(
        """
        ttyACM0 ttyACM1 ttyACM2 ttyUSB0 ttyUSB1 ttyUSB2
        serial/by-id/usb-0658_0200-if00 -> ../../ttyACM0
        serial/by-id/usb-Zooz_800_Z-Wave_Stick_533D004242-if00 -> ../../ttyACM1
        serial/by-id/usb-Nabu_Casa_ZWA-2_80B54EE5D988-if00 -> ../../ttyACM2
        serial/by-id/usb-Silicon_Labs_HubZ_Smart_Home_Controller_6130-if00-port0 -> ../../ttyUSB0
        serial/by-id/usb-Silicon_Labs_HubZ_Smart_Home_Controller_6130-if01-port0 -> ../../ttyUSB1
        serial/by-id/usb-Nabu_Casa_SkyConnect_v1.0_3abe-if00-port0 -> ../../ttyUSB2
        """,
        """
        zwave usb-0658_0200-if00: ttyACM0>zwave
        zwave usb-Nabu_Casa_ZWA-2_80B54EE5D988-if00: ttyACM2>zwave
        zwave usb-Silicon_Labs_HubZ_Smart_Home_Controller_6130-if00-port0: ttyUSB0>zwave
        zwave usb-Zooz_800_Z-Wave_Stick_533D004242-if00: ttyACM1>zwave
        """,
    ),
    "ups": Case(
        "",
        """
        ups usb-051d-0002-1-1: bus/usb/001/002
        ups usb-0665-5161-1-3: bus/usb/001/004
        """,
        """
        usb 1-1 051d 0002 030000: bus/usb/001/002
        usb 1-2 046d c31c 030101: bus/usb/001/003
        usb 1-3 0665 5161 030000: bus/usb/001/004
        usb 1-4 0665 0001 030000: bus/usb/001/005
        """,
    ),
    "bluetooth": Case(
        "rfkill vhci",
        "bluetooth usb-0a12-0001-1-1: bus/usb/001/002",
        """
        usb 1-1 0a12 0001 e00101: bus/usb/001/002
        usb 1-2 0bda 8153 e00102: bus/usb/001/003
        usb 1-3 046d 0825 0e0100: bus/usb/001/004
        """,
    ),
    "iommufd": Case(
        "vfio/vfio iommu",
        "iommufd 0000:41:00.0: vfio/devices/vfio0 iommu",
        """
        pci 0000:41:00.0 0x10de 0x030200 vfio-pci: vfio/devices/vfio0
        pci 0000:61:00.0 0x10de 0x030200 nvidia: nvidia0
        """,
    ),
    "hailo": Case("hailo0 hailo1", "hailo hailo0: hailo0\nhailo hailo1: hailo1"),
    "raspberry-pi": Case(
        "gpiochip0 gpiochip1 gpiomem spidev0.0 spidev0.1 i2c-1 i2c-20 vchiq",
        """
        gpio gpiochip0: gpiochip0 gpiomem
        spi-0.0 spidev0.0: spidev0.0
        spi-0.1 spidev0.1: spidev0.1
        i2c i2c-1: i2c-1
        """,
    ),
    "rtl-sdr": Case(
        "",
        "rtl-sdr usb-0bda-2838-1-4: bus/usb/001/004",
        "usb 1-4 0bda 2838: bus/usb/001/004\nusb 1-5 0bda 8153: bus/usb/001/005",
    ),
    "nvme": Case(
        "nvme0 nvme0n1 nvme0n1p1 nvme1 nvme1n1 nvme1n1p2 nvme1n2 ng1n1",
        "nvme nvme1n1: nvme1n1\nnvme nvme1n2: nvme1n2",
    ),
    "sgx": Case(
        "sgx_enclave sgx_provision sgx_vepc",
        "sgx-enclave sgx_enclave: sgx_enclave\nsgx-provision sgx_provision: sgx_provision",
    ),
    "hwrng": Case("hwrng random", "hwrng hwrng: hwrng"),
    "loop": Case(
        "loop-control loop0 loop1",
        "loop loop0: loop0 loop-control\nloop loop1: loop1 loop-control",
    ),
}


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def make_host(root: Path, case: Case) -> tuple[Path, Path]:
    """Write `case` below `root`; return where its /dev and its /sys are."""
    dev, sys = root / "dev", root / "sys"
    dev.mkdir()
    for line in lines_of(case.dev):
        name, arrow, target = line.partition(" -> ")
        for each in [name] if arrow else name.split():
            (dev / each).parent.mkdir(parents=True, exist_ok=True)
            if arrow:
                (dev / each).symlink_to(target)
            else:
                (dev / each).touch()
    for line in lines_of(case.buses):
        words, _, files = line.rpartition(": ")
        bus, place, vendor, kind, *last = words.split()
        of, subsystem = (last or ["some"])[0], "some"
        if bus == "pci":
            group = ""
            if of == "vfio-pci":
                subsystem, group = "vfio-dev/vfio", "7"
            function = add_pci(sys, place, vendor=vendor, device_class=kind, driver=of, group=group)
        else:
            function = add_usb(
                sys, place, vendor=vendor, product_id=kind, interface_class=(last or ["ff0000"])[0]
            )
        for number, name in enumerate(files.split()):
            write(
                function / f"{subsystem}{number}",
                {"dev": f"1:{number}", "uevent": f"DEVNAME={name}"},
            )
            (dev / name).parent.mkdir(parents=True, exist_ok=True)
            (dev / name).touch()
    return dev, sys


def found(name: str, dev: Path, sys: Path) -> list[str]:
    """Return what the profile makes of a host, written as in `Case.devices`."""
    tree = ExposeScanner(combine([name]), dev_root=dev, sysfs_root=sys).list_devices()
    lines = []
    for resource in tree:
        for device_id, device in tree.devices(resource).items():
            plain, _, replica = device_id.partition("::")
            files = [
                spec.host_path.removeprefix("/dev/")
                if spec.host_path == spec.container_path
                else f"{spec.host_path}>{spec.container_path}".replace("/dev/", "")
                for spec in device.specs
            ]
            if replica in {"", "0"}:
                lines.append(f"{resource} {plain}: {' '.join(files)}")
    return lines


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_finds_its_hardware_and_nothing_else(name: str, tmp_path: Path) -> None:
    """Each profile has a host in the table; a container gets all files, under the right names."""
    case = CASES[name]
    dev, sys = make_host(tmp_path, case)
    assert found(name, dev, sys) == lines_of(case.devices)


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_says_who_may_open_the_files_and_where_that_is_from(name: str) -> None:
    """Below its title: Access and Source, with the group if there is one."""
    profile = read_profile(name)
    assert profile.title
    comment = profile.text.partition("\nversion:")[0].replace("\n#  ", "")
    about = dict(line[2:].split(": ", 1) for line in comment.splitlines()[2:])
    assert about.keys() <= {"Access", "Container", "Note", "Source"}
    assert about["Source"]
    assert ("supplementalGroups" in about["Access"]) is ("root:" in about["Access"])


def test_all_profiles_fit_into_one_file() -> None:
    """Names of resources are unique, so that any profiles can be combined."""
    config = combine(profile_names())
    names = [rule.device_type for rule in config.resources]
    assert len({*names}) == len(names)
    assert {file.stem for file in PROFILES.iterdir()} == CASES.keys()
