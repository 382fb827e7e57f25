"""The bench for DRA drivers: from the devices of a scanner to the claim of a container."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import (
    ApiRefused,
    DynamicResourcesFailed,
    NotInTime,
    UnresolvableCdiDevices,
    UsageError,
)
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.testing.workbench import Bench
from tests.waiting import until_sync

DRIVER = "example.com"
WIDGET = f"{DRIVER}/widget"


class Widgets(kd.PolledScanner):
    interval = 3600

    def __init__(self, *devices: kd.Device) -> None:
        self.devices = list(devices)

    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree({"widget": self.devices})


@pytest.fixture
def scanner(tmp_path: Path) -> Widgets:
    return Widgets(
        *(kd.Device(f"w-{i}", env={f"W{i}": f"{i}"}, mounts=[kd.Mount(tmp_path, f"/w{i}")])
          for i in range(3))
    )  # fmt: skip


def test_a_pod_gets_the_devices_of_its_claim(
    bench: Bench, scanner: Widgets, tmp_path: Path
) -> None:
    """The options are those that a container engine reads from the driver's CDI files."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    first = bench.claim("pod-1", {WIDGET: 1})
    assert first.devices == ("w-0",)
    assert first.options.env == {"W0": "0"}
    assert first.options.mounts == (kd.Mount(tmp_path, "/w0"),)
    assert first.options.cdi_devices == (f"{DRIVER}/claim={first.uid}-w-0",)
    assert bench.claim("pod-2", {WIDGET: 2}).devices == ("w-1", "w-2")
    with pytest.raises(NotInTime, match="request widget: 1 wanted, 0 free of 3 selected"):
        bench.claim("pod-3", {WIDGET: 1}, timeout=0)
    bench.release("pod-1")
    assert bench.claim("pod-3", {WIDGET: 1}).devices == first.devices


def test_two_pods_share_a_claim(bench: Bench, scanner: Widgets) -> None:
    """The claim is freed after the last pod."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    shared = bench.claim("pod-1", {WIDGET: "all"})
    assert bench.claim("pod-2", shared.name) == shared
    bench.release("pod-1")
    assert [*bench.cdi_dir.iterdir()]
    bench.release("pod-2")
    assert not [*bench.cdi_dir.iterdir()]


def test_the_claim_of_a_pod_group_outlives_its_pods(bench: Bench, scanner: Widgets) -> None:
    """It is prepared while a pod of the group is here, and freed with the group."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    shared = bench.claim("pod-1", {WIDGET: "all"}, pod_group="g")
    assert bench.claim("pod-2", shared.name, pod_group="g") == shared
    with pytest.raises(UsageError, match="release pod-1, pod-2 first"):
        bench.release_pod_group("g")
    bench.release("pod-1")
    assert [*bench.cdi_dir.iterdir()]
    bench.restart()
    bench.wait_published(DRIVER, devices=3)
    assert [*bench.cdi_dir.iterdir()]
    bench.release("pod-2")
    assert not [*bench.cdi_dir.iterdir()]
    with pytest.raises(NotInTime, match="0 free of 3 selected"):
        bench.claim("pod-3", {WIDGET: 1}, timeout=0)
    again = bench.claim("pod-1", shared.name, pod_group="g")
    assert (again.uid, again.devices) == (shared.uid, shared.devices)
    bench.release("pod-1")
    bench.release_pod_group("g")
    assert bench.claim("pod-3", {WIDGET: 3}).devices == shared.devices


def test_a_pod_is_in_one_pod_group(bench: Bench, scanner: Widgets) -> None:
    """A second claim of the pod has a name of its own, also beside a claim that outlived a pod."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    first = bench.claim("pod-1", {WIDGET: 1}, pod_group="g")
    with pytest.raises(UsageError, match="is in the PodGroup g"):
        bench.claim("pod-1", {WIDGET: 1})
    bench.release("pod-1")
    second = bench.claim("pod-1", {WIDGET: 1})
    assert second.name != first.name
    assert second.devices != first.devices


def test_a_container_may_name_a_request(bench: Bench, scanner: Widgets) -> None:
    """The container gets only the devices of this request."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    both = bench.claim("pod-1", {WIDGET: 1})
    class_name = "widget.example.com"
    claimed = bench.claim(
        "pod-2",
        [
            {"name": "a", "exactly": {"deviceClassName": class_name}},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": class_name}]},
        ],
    )
    assert both.by_request == {"widget": ("w-0",)}
    assert claimed.by_request == {"a": ("w-1",), "b": ("w-2",)}
    assert claimed.options_of["b"].env == {"W2": "2"}
    assert claimed.options.env == {"W1": "1", "W2": "2"}


def test_a_device_class_needs_no_first_claim(bench: Bench, scanner: Widgets) -> None:
    """The class of a device type exists before any claim; `claim` uses the same class."""
    name = bench.device_class(WIDGET)
    bench.start(scanner, domain=DRIVER, mode="dra")
    claimed = bench.claim("pod-1", [{"name": "a", "exactly": {"deviceClassName": name}}])
    assert claimed.by_request == {"a": ("w-0",)}
    assert bench.claim("pod-2", {WIDGET: 1}).devices == ("w-1",)


def test_a_device_class_can_be_a_manifest(bench: Bench, scanner: Widgets) -> None:
    """Its selectors count, and a claim for the same device type does not replace it."""
    expression = f'device.attributes["{DRIVER}"].id == "w-2"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    made = {"kind": "DeviceClass", "metadata": {"name": f"widget.{DRIVER}"}, "spec": spec}
    assert bench.device_class(made) == f"widget.{DRIVER}"
    bench.start(scanner, domain=DRIVER, mode="dra")
    assert bench.claim("pod-1", {WIDGET: "all"}).devices == ("w-2",)


def test_what_is_no_device_class_is_refused(bench: Bench) -> None:
    """The error says what to write."""
    with pytest.raises(UsageError, match="needs a DeviceClass, this is a Pod"):
        bench.device_class({"kind": "Pod", "metadata": {"name": "p"}})
    with pytest.raises(UsageError, match="write 'domain/type', or give a manifest"):
        bench.device_class("widget")
    with pytest.raises(ApiRefused, match="at most 32 items"):
        bench.device_class({"metadata": {"name": "c"}, "spec": {"selectors": [{}] * 33}})


class Broken(Widgets, kd.Allocator):
    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        raise RuntimeError("the widget is on fire")


def test_the_first_available_alternative_is_allocated(bench: Bench, scanner: Widgets) -> None:
    """The driver gets the name of the request for each subrequest."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    bench.claim("other", {WIDGET: 1})
    choices = [
        {"name": name, "deviceClassName": f"widget.{DRIVER}", "count": count}
        for name, count in (("many", 3), ("some", 2))
    ]
    claim = bench.claim("pod", [{"name": "it", "firstAvailable": choices}])
    assert claim.by_request == {"it": ("w-1", "w-2")}
    assert claim.options_of["it"].env == {"W1": "1", "W2": "2"}


def test_a_driver_that_refuses_is_quoted(bench: Bench) -> None:
    """The error has the text of the pod's event."""
    bench.start(Broken(kd.Device("w")), domain=DRIVER, mode="dra")
    with pytest.raises(DynamicResourcesFailed, match=r"prepare .*the widget is on fire"):
        bench.claim("pod-1", {WIDGET: 1})
    bench.release("pod-1")


def test_a_cdi_name_without_a_file_is_an_error(bench: Bench) -> None:
    """A container engine would not start the container."""
    bench.start(Widgets(kd.Device("w", cdi="vendor.com/w=1")), domain=DRIVER, mode="dra")
    with pytest.raises(UnresolvableCdiDevices, match=r"vendor\.com/w=1"):
        bench.claim("pod-1", {WIDGET: 1})


def test_a_kubelet_restart_changes_nothing(bench: Bench, scanner: Widgets) -> None:
    """The slices are deleted and published again; claims of pods are prepared again."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    held = bench.claim("pod-1", {WIDGET: 1})
    (file,) = bench.cdi_dir.iterdir()
    file.unlink()
    bench.restart()
    bench.wait_published(DRIVER, devices=3)
    assert bench.claim("pod-1", held.name) == held
    assert file.exists()


def test_after_a_reboot_the_cdi_files_are_there_again(bench: Bench, scanner: Widgets) -> None:
    """`/var/run/cdi` is empty then, and the kubelet prepares the claims of its pods again."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    held = bench.claim("pod", {WIDGET: 1})
    bench.restart(reboot=True)
    assert [*bench.cdi_dir.iterdir()]
    assert bench.claim("second", held.name).options == held.options


def test_a_killed_driver_is_followed_by_another(bench: Bench, scanner: Widgets) -> None:
    """Prepared claims stay prepared, and can be freed."""
    first = bench.start(scanner, domain=DRIVER, mode="dra")
    bench.claim("pod-1", {WIDGET: 1})
    bench.kill_plugin(first)
    bench.start(scanner, domain=DRIVER, mode="dra")
    assert bench.claim("pod-2", {WIDGET: 1}).devices == ("w-1",)
    until_sync(lambda: not _raises(bench, "pod-1"))
    assert len([*bench.cdi_dir.iterdir()]) == 1


def _raises(bench: Bench, pod: str) -> bool:
    try:
        bench.release(pod)
    except DynamicResourcesFailed:
        return True
    return False


def test_health_is_that_of_the_pods_status(bench: Bench, scanner: Widgets) -> None:
    """An unhealthy device is not allocated to a claim."""
    bench.start(scanner, domain=DRIVER, mode="dra")
    held = bench.claim("pod-1", {WIDGET: 1})
    until_sync(lambda: bench.health(held) == {"w-0": "Healthy"})
    scanner.devices[:2] = [kd.Device(f"w-{i}", health=kd.Health.UNHEALTHY) for i in range(2)]
    scanner.trigger()
    until_sync(lambda: bench.health(held) == {"w-0": "Unhealthy"})
    until_sync(lambda: "taints" in bench.published(DRIVER)[1])
    assert bench.claim("pod-2", {WIDGET: 1}).devices == ("w-2",)


def test_a_rolling_update_disturbs_no_pod(bench: Bench, scanner: Widgets) -> None:
    """Pods start and end while the new instance starts and the old instance ends."""
    old = bench.start(scanner, domain=DRIVER, mode="dra")
    held = bench.claim("held", {WIDGET: 1})
    new = bench.start(scanner, domain=DRIVER, mode="dra")

    def has_come_and_gone() -> bool:
        bench.claim("pod", {WIDGET: 2})
        bench.release("pod")
        return new.runner.is_registered and not old.runner.sockets.registration.exists()

    until_sync(has_come_and_gone, 60)
    old.stop()
    has_come_and_gone()
    assert new.runner.has_started
    bench.release("held")
    assert bench.claim("next", {WIDGET: 1}).devices == held.devices


def test_replicas_of_expose_are_shares_of_one_device(bench: Bench, tmp_path: Path) -> None:
    """Two pods share a stick, a third gets nothing until one of them ends."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/null0").touch()
    file = tmp_path / "host.yaml"
    resource = '{name: stick, match: [{path: "/dev/null*"}], replicas: 2, env: {STICK: "{name}"}}'
    file.write_text(f"version: 1\nnamespace: {DRIVER}\nresources:\n- {resource}\n")
    scanner = ExposeScanner.from_file(file, dev_root=tmp_path / "dev")
    bench.start(scanner, domain=DRIVER, mode="dra", dev_root=tmp_path / "dev")
    wanted = {f"{DRIVER}/stick": 1}
    claims = [bench.claim(pod, wanted) for pod in ("pod-1", "pod-2")]
    assert {each.options.env["STICK"] for each in claims} == {"null0"}
    assert len(bench.published(DRIVER)) == 1
    with pytest.raises(NotInTime):
        bench.claim("pod-3", wanted, timeout=0)
    bench.release("pod-1")
    assert bench.claim("pod-3", wanted).options.env["STICK"] == "null0"
