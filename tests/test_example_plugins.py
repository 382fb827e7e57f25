"""The plugins in examples/plugins, on sysfs trees as the kernel documents them."""

from pathlib import Path

import pytest

import kubedevices as kd
from examples.plugins import (
    crypto_cards,
    dlb,
    dsa,
    dsa_vfio,
    fpga,
    gpu,
    kvm,
    npu,
    nvidia,
    qat,
    sgx,
    shaped_gpu,
    solarflare,
    switched,
    vfio_groups,
)
from kubedevices.values.allocation import ClaimReference
from tests.host.sysfs_trees import add_pci, add_virtual_functions, link, write

PLUGINS = Path(__file__).parents[1] / "examples/plugins"
GPU = "0000:03:00.0"


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    (tmp_path / "sys").mkdir()
    return tmp_path / "sys"


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev"


def touch(dev: Path, *names: str) -> None:
    for name in names:
        (dev / name).parent.mkdir(parents=True, exist_ok=True)
        (dev / name).touch()


def paths(tree: kd.DeviceTree, device_type: str) -> dict[str, list[str]]:
    """Return the host paths of each device."""
    found = tree.devices(device_type)
    return {each: [spec.host_path for spec in found[each].all_specs] for each in found}


def answer(scanner: kd.PostAllocator, *devices: kd.Device) -> dict[str, str]:
    """Return the variables of a container that got `devices`."""
    env = {name: text for device in devices for name, text in device.env.items()}
    response = kd.AllocateResponse([kd.ContainerAllocateResponse(env=env)])
    scanner.post_allocate(response, kd.AllocateRequest(()))
    return dict(response.containers[0].env)


@pytest.mark.parametrize("file", sorted(PLUGINS.glob("[a-z]*.py")), ids=lambda file: file.stem)
def test_no_example_has_more_than_forty_lines(file: Path) -> None:
    """Including imports and blank lines."""
    assert len(file.read_text().splitlines()) <= 40


def test_gpu(sys: Path, dev: Path) -> None:
    """Each GPU is shared by two, and a monitor gets all. A GPU divided into VFs is left out."""
    card = add_pci(sys, GPU, device_class="0x030000", driver="i915")
    for name in ("card0", "renderD128"):
        write(card / "drm" / name, {"dev": "226:0", "uevent": f"DEVNAME=dri/{name}"})
    divided = add_pci(sys, "0000:04:00.0", device_class="0x030000", driver="xe")
    write(divided / "drm/card1", {"dev": "226:1", "uevent": "DEVNAME=dri/card1"})
    add_pci(sys, "0000:04:00.1")
    add_virtual_functions(sys, "0000:04:00.0", "0000:04:00.1")
    by_path = f"dri/by-path/pci-{GPU}-card"
    touch(dev, "dri/card0", "dri/renderD128", "dri/card1", by_path)
    scanner = gpu.Gpus(sys, dev)
    tree = scanner.list_devices()
    files = ["/dev/dri/card0", "/dev/dri/renderD128"]
    assert paths(tree, "i915") == {"card0::0": files, "card0::1": files}
    assert paths(tree, "monitoring") == {"all": files}
    assert tree.devices("i915")["card0::0"].mounts[0].host_path == f"/dev/{by_path}"
    assert list(tree) == ["i915", "monitoring"]
    assert scanner.physical_device("card0::1") == "card0"


def test_npu(sys: Path) -> None:
    """By vendor and device ID. Other accelerators are left out."""
    for number, device in enumerate(("0x7d1d", "0x1234")):
        write(sys / f"class/accel/accel{number}/device", {"vendor": "0x8086", "device": device})
    tree = npu.find(sys)
    assert list(tree.devices("accel")) == [f"accel0::{i}" for i in range(4)]
    assert paths(tree, "accel")["accel0::3"] == ["/dev/accel/accel0"]


def test_dlb(sys: Path, dev: Path) -> None:
    """Whole devices and virtual ones. A device with enabled VFs is left out."""
    touch(dev, "dlb0", "dlb1", "dlb2")
    write(sys / "class/dlb2/dlb0/device", {"sriov_numvfs": 0})
    write(sys / "class/dlb2/dlb1/device", {"sriov_numvfs": 4})
    tree = dlb.find(sys, dev)
    assert paths(tree, "pf") == {"dlb0": ["/dev/dlb0"]}
    assert paths(tree, "vf") == {"dlb2": ["/dev/dlb2"]}


def test_dsa(sys: Path, dev: Path) -> None:
    """Only enabled queues, shared queues ten times, each with its link in /dev/char."""
    for name, state, mode in (
        ("wq0.0", "enabled", "dedicated"),
        ("wq0.1", "enabled", "shared"),
        ("wq0.2", "disabled", "shared"),
    ):
        write(sys / "bus/dsa/devices" / name, {"state": state, "mode": mode, "type": "user"})
        touch(dev, "dsa/x")
        (dev / "dsa" / name).symlink_to("/dev/null")
    (dev / "char").mkdir()
    (dev / "char/1:3").symlink_to("/dev/null")
    tree = dsa.find(sys, dev)
    assert paths(tree, "wq-user-dedicated") == {"wq0.0::0": ["/dev/dsa/wq0.0", "/dev/char/1:3"]}
    assert list(tree.devices("wq-user-shared")) == [f"wq0.1::{i}" for i in range(10)]


def test_dsa_vfio(sys: Path, dev: Path) -> None:
    """By driver, with numbered environment variables."""
    for number, group in ((0, "7"), (1, "8")):
        add_pci(sys, f"0000:6a:0{number}.0", device="0x0b25", driver="vfio-pci", group=group)
    touch(dev, "vfio/7", "vfio/8")
    scanner = dsa_vfio.Vfio(sys, dev)
    tree = scanner.list_devices()
    assert paths(tree, "vfio")["0000:6a:01.0"] == ["/dev/vfio/8", "/dev/vfio/vfio"]
    assert answer(scanner, *tree.devices("vfio").values()) == {
        "VFIO_BDF0": "0000:6a:00.0",
        "VFIO_BDF1": "0000:6a:01.0",
    }


def test_qat(sys: Path, dev: Path) -> None:
    """By service.

    Without a heartbeat of the physical function its VFs are unhealthy until it is back.
    """
    physical = add_pci(sys, "0000:6b:00.0", device="0x4940", driver="4xxx")
    write(physical / "qat", {"cfg_services": "sym;asym"})
    beats = write(sys / "kernel/debug/qat_4xxx_0000:6b:00.0/heartbeat", {"status": 0})
    add_pci(sys, "0000:6b:00.1", driver="vfio-pci", group="9")
    add_pci(sys, "0000:6b:00.2", driver="4xxxvf")
    add_virtual_functions(sys, "0000:6b:00.0", "0000:6b:00.1", "0000:6b:00.2")
    touch(dev, "vfio/9")
    scanner = qat.Qat(sys, dev)
    (device,) = scanner.list_devices().devices("cy").values()
    assert (device.id, device.is_healthy) == ("0000:6b:00.1", True)
    assert answer(scanner, device) == {"QAT0": "0000:6b:00.1"}

    def looks(status: int, times: int) -> list[bool]:
        write(beats, {"status": status})
        return [scanner.list_devices().devices("cy")[device.id].is_healthy for _ in range(times)]

    assert looks(-1, 3) == [True, False, False]
    assert looks(0, 3) == [False, False, True]
    write(physical / "qat", {"cfg_services": "sym;dc"})
    assert list(scanner.list_devices()) == ["generic"]


def test_fpga(sys: Path) -> None:
    """By ID of the programmed function. An ID of only `f` is unhealthy."""
    for number, afu in enumerate(("d8424dc4a4a3c413f89e433683f9040b", "f" * 32)):
        write(sys / f"class/fpga_region/region{number}/dfl-port.{number}", {"afu_id": afu})
    tree = fpga.find(sys)
    works, broken = tree.devices("af-d8424dc4a4a3"), tree.devices("af-ffffffffffff")
    assert works["dfl-port.0"].is_healthy
    assert dict(works["dfl-port.0"].annotations) == {"fpga.intel.com/region": "region0"}
    assert not broken["dfl-port.1"].is_healthy


def test_sgx(dev: Path) -> None:
    """As many devices as pods; none without the device file."""
    touch(dev, "sgx_enclave")
    tree = sgx.find(dev)
    assert list(tree) == ["enclave"]
    assert tree.count("enclave") == 110
    assert paths(tree, "enclave")["sgx-enclave::109"] == ["/dev/sgx_enclave"]


def test_kvm(dev: Path) -> None:
    """A resource without a device file is declared with 0 devices, so that it exists before the
    file.
    """
    touch(dev, "kvm", "net/tun")
    tree = kvm.find(dev)
    assert {name: tree.count(name) for name in tree} == {"kvm": 100, "tun": 100, "vhost-net": 0}
    assert paths(tree, "tun")["tun::0"] == ["/dev/net/tun"]


def test_vfio_groups(sys: Path, dev: Path) -> None:
    """Two functions of a group are one device. An incomplete group is left out."""
    for address, group in (("0000:3b:00.0", "1"), ("0000:3b:00.1", "1"), ("0000:3c:00.0", "2")):
        add_pci(sys, address, driver="vfio-pci", group=group)
    touch(dev, "vfio/1")
    tree = vfio_groups.find(sys, dev)
    assert paths(tree, "vfio-8086-1563") == {"0000:3b:00.0": ["/dev/vfio/1", "/dev/vfio/vfio"]}
    (device,) = tree.devices("vfio-8086-1563").values()
    assert device.env["VFIO_ADDRESSES"] == "0000:3b:00.0,0000:3b:00.1"


def test_nvidia(tmp_path: Path, sys: Path, dev: Path) -> None:
    """The devices of the driver's files, with the device files that all GPUs share."""
    for minor, address in enumerate(("0000:07:00.0", "0000:0f:00.0")):
        text = f"Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}"
        write(tmp_path / f"proc/driver/nvidia/gpus/{address}", {"information": text})
    add_pci(sys, "0000:07:00.0", vendor="0x10de", numa_node=1)
    touch(dev, "nvidia0", "nvidiactl", "nvidia-uvm")
    tree = nvidia.find(tmp_path / "proc", sys, dev)
    assert paths(tree, "gpu") == {"GPU-0": ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]}
    assert tree.devices("gpu")["GPU-0"].numa_nodes == (1,)


def test_crypto_cards(sys: Path, dev: Path) -> None:
    """Queues by the mode of their card. Offline queues are Unhealthy."""
    touch(dev, "z90crypt")
    cards = sys / "bus/ap/devices"
    write(cards / "card04", {"type": "CEX8P", "online": 1, "config": 1})
    write(cards / "card04/04.0006", {"online": 1})
    write(cards / "card04/04.0033", {"online": 0})
    write(cards / "card05", {"type": "CEX7A", "online": 1, "config": 0})
    write(cards / "card05/05.0006", {"online": 1})
    tree = crypto_cards.find(sys, dev)
    assert {each.id: str(each.health) for name in tree for each in tree.devices(name).values()} == {
        "04.0006": "Healthy",
        "04.0033": "Unhealthy",
        "05.0006": "Unhealthy",
    }
    assert set(tree) == {"ep11", "accel"}


def test_solarflare(sys: Path, dev: Path) -> None:
    """The health of a port is the state of its link."""
    port = add_pci(sys, "0000:5e:00.0", vendor="0x1924", driver="sfc", numa_node=0)
    state = write(port / "net/sfc0", {"operstate": "up"})
    link(sys / "class/net/sfc0", state)
    touch(dev, "onload", "sfc_char")
    (device,) = solarflare.find(sys, dev).devices("sfc").values()
    assert device == kd.Device(
        "0000:5e:00.0",
        paths=["/dev/onload", "/dev/sfc_char"],
        env={"SFC_INTERFACES": "sfc0"},
        numa_nodes=(0,),
    )
    write(state, {"operstate": "down"})
    found = [solarflare.find(sys, dev).devices("sfc")[device.id].is_healthy for _ in range(2)]
    assert found == [True, False]


def test_shaped_gpu(sys: Path) -> None:
    """The limit of a claim is set while the claim has the card.

    Afterwards the default is set again.
    """
    facts = {"power1_cap": 50, "power1_cap_default": 200_000_000}
    monitor = write(sys / "class/drm/card0/device/hwmon/hwmon3", facts)
    scanner = shaped_gpu.ShapedGpus(sys)
    assert paths(scanner.list_devices(), "gpu") == {"card0": ["/dev/dri/card0"]}
    claim = ClaimReference("default", "uid", "one")
    claimed = kd.ClaimedDevices(claim, "r", "gpu", ("card0",), shaped_gpu.GpuConfig(150))
    assert scanner.prepare_claim(claimed).env == ("POWER_WATTS=150",)
    assert (monitor / "power1_cap").read_text() == "150000000\n"
    scanner.unprepare_claim(claimed)
    assert (monitor / "power1_cap").read_text() == "200000000\n"


def add_accelerator(sys: Path, name: str, switch: str, port: int) -> Path:
    """Add an accelerator below a port of a switch, as the kernel nests their directories."""
    ports = sys / "devices/pci0000:00" / f"0000:0{switch}:00.0" / f"0000:0{switch}:0{port}.0"
    function = write(ports / f"0000:{switch}{port}:00.0", {"reset": ""})
    link(sys / "class/accel" / name, write(function / "accel" / name, {}))
    link(function / "accel" / name / "device", function)
    return function


def test_switched(sys: Path, dev: Path) -> None:
    """Two switches with two and three accelerators: neighbours come first, large groups
    stay whole.
    """
    places = [add_accelerator(sys, f"accel{n}", "1", n) for n in range(2)]
    places += [add_accelerator(sys, f"accel{n}", "2", n) for n in range(2, 5)]
    scanner = switched.SwitchedAccelerators(sys, dev)
    devices = scanner.list_devices().devices("accel")
    assert devices["accel0"].mounts[0].read_only

    def prefer(available: str, size: int, must: str = "") -> str:
        free, demanded = (tuple(f"accel{n}" for n in each) for each in (available, must))
        asked = kd.ContainerPreferredRequest(free, demanded, size)
        request = kd.PreferredAllocationRequest((asked,))
        answer: kd.PreferredAllocationResponse = scanner.get_preferred_allocation(request)  # type: ignore[no-untyped-call]
        (found,) = answer.containers
        return "".join(name[-1] for name in found)

    assert prefer("01234", 2) == "01"
    assert prefer("01234", 3) == "234"
    assert prefer("0234", 2) == "23"
    assert prefer("01234", 2, must="3") == "32"
    assert prefer("01234", 4) == "2340"
    assert prefer("01", 3) == "01"
    scanner.pre_start_container(kd.PreStartContainerRequest(("accel1", "accel2")))
    assert [(each / "reset").read_text() for each in places] == [*"\n11\n\n"]
