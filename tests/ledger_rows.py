"""Pods and holdings for tests of the ledger and of the checkpoint."""

import shutil
from pathlib import Path

from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import DeviceSpec, Mount

BOOT = "boot-1"
WIDGET, GADGET = "example.com/widget", "example.com/gadget"


def pod(name: str = "p", *, uid: str = "") -> Pod:
    """Return a pod with an init container, a sidecar and an app container."""
    return Pod(
        name,
        "space",
        uid,
        init_containers=(
            Container("setup", {WIDGET: 1}),
            Container("proxy", {GADGET: 1}, is_sidecar=True),
        ),
        containers=(Container("main", {WIDGET: 2}), Container("aside")),
    )


def held(*ids: str, numa: int = -1) -> HeldDevices:
    """Return held devices with an answer in which every field is set."""
    answer = ContainerAllocateResponse(
        env={"IDS": ",".join(ids)},
        devices=[DeviceSpec(f"/dev/{each}", "/dev/x", permissions="mrw") for each in ids],
        mounts=[Mount("/lib/vendor", "/opt/vendor", read_only=True)],
        annotations={"example.com/note": "é"},
        cdi_devices=[f"example.com/widget={each}" for each in ids],
    )
    return HeldDevices({numa: [*ids]}, answer)


def holdings(of: Pod, first: int = 0) -> list[Holding]:
    """Return the holdings of the containers of `of`; `first` is the number of the first device."""
    return [
        Holding(of.uid, "setup", WIDGET, held(f"w{first}")),
        Holding(of.uid, "proxy", GADGET, held(f"g{first}", numa=1)),
        Holding(of.uid, "main", WIDGET, held(f"w{first}", f"w{first + 1}", numa=0)),
    ]


def admitted(name: str = "p", first: int = 0, *, is_of_this_boot: bool = True) -> AdmittedPod:
    """Return a pod with its holdings."""
    made = pod(name)
    return AdmittedPod(made, holdings(made, first), is_of_this_boot)


def reopened(path: Path, boot_id: str = BOOT) -> list[AdmittedPod]:
    """Return the pods of a ledger, read by a new connection."""
    ledger = LedgerFile.open(path)
    assert ledger is not None
    try:
        return ledger.load(boot_id)[0]
    finally:
        ledger.close()


def crashed(path: Path, to: Path) -> Path:
    """Copy the files of an open ledger, as a crash leaves them; return the path of the copy."""
    to.mkdir(exist_ok=True)
    for ending in ("", "-wal"):
        if (file := Path(f"{path}{ending}")).exists():
            shutil.copyfile(file, to / f"{path.name}{ending}")
    return to / path.name
