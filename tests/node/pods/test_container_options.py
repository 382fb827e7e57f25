"""The answers of several plugins are merged into the options of one container."""

from kubedevices.node.pods.container_options import container_options, merge_responses
from kubedevices.node.pods.pod_devices import HeldDevices
from kubedevices.values.allocation import ContainerAllocateResponse, ContainerOptions
from kubedevices.values.device import DeviceSpec, Mount


def test_a_container_without_devices_has_no_options() -> None:
    """DeviceRunContainerOptions: without held devices the result is None, not empty options."""
    assert container_options({}) is None


def test_options_have_every_field_of_an_answer() -> None:
    """DeviceRunContainerOptions: env, device files, mounts, annotations and CDI devices."""
    response = ContainerAllocateResponse(
        env={"A": "1"},
        mounts=[Mount("/h", "/m", read_only=True)],
        devices=[DeviceSpec("/dev/h", "/dev/c", "r")],
        annotations={"k": "v"},
        cdi_devices=["v.example/gpu=0"],
    )
    merged = container_options({"v.example/gpu": HeldDevices({}, response)})
    assert merged is not None
    assert not merged.conflicts
    assert merged.options == ContainerOptions(
        env={"A": "1"},
        devices=(DeviceSpec("/dev/h", "/dev/c", "r"),),
        mounts=(Mount("/h", "/m", read_only=True),),
        annotations={"k": "v"},
        cdi_devices=("v.example/gpu=0",),
    )


def test_cdi_devices_of_two_resources_are_named_once() -> None:
    """DeviceRunContainerOptions: a CDI device of both resources is in the options once."""
    merged = merge_responses(
        [
            ("r/a", ContainerAllocateResponse(cdi_devices=["v/c=1", "v/c=2", "v/c=1", ""])),
            ("r/b", ContainerAllocateResponse(cdi_devices=["v/c=2", "v/c=3"])),
        ]
    )
    assert merged.options.cdi_devices == ("v/c=1", "v/c=2", "", "v/c=3")
    assert not merged.conflicts


def test_the_first_resource_wins_and_conflicts_are_reported() -> None:
    """An existing key keeps its value. A different value is a conflict, an equal value is not."""
    first = ContainerAllocateResponse(
        env={"A": "1", "B": "2"},
        mounts=[Mount("/a", "/m")],
        devices=[DeviceSpec("/dev/a", "/dev/x")],
        annotations={"k": "1"},
    )
    second = ContainerAllocateResponse(
        env={"A": "9", "B": "2"},
        mounts=[Mount("/b", "/m"), Mount("/b", "/m/")],
        devices=[DeviceSpec("/dev/b", "/dev/x", "r")],
        annotations={"k": "9"},
    )
    options, conflicts = merge_responses([("r/a", first), ("r/b", second)])
    assert [*options.env.items()] == [("A", "1"), ("B", "2")]
    assert options.mounts == (Mount("/a", "/m"), Mount("/b", "/m/")), "/m is not /m/"
    assert options.devices == (DeviceSpec("/dev/a", "/dev/x"),)
    assert options.annotations == {"k": "1"}
    assert [str(conflict) for conflict in conflicts] == [
        "environment variable 'A': '1' of r/a is kept, '9' of r/b is skipped",
        "device file '/dev/x': /dev/a (rw) of r/a is kept, /dev/b (r) of r/b is skipped",
        "mount '/m': /a (rw) of r/a is kept, /b (rw) of r/b is skipped",
        "annotation 'k': '1' of r/a is kept, '9' of r/b is skipped",
    ]


def test_resources_are_merged_by_name() -> None:
    """The order in which the answers are stored does not matter."""
    one = HeldDevices({}, ContainerAllocateResponse(env={"A": "1"}))
    two = HeldDevices({}, ContainerAllocateResponse(env={"A": "2"}))
    for held in ({"r/a": one, "r/b": two}, {"r/b": two, "r/a": one}):
        merged = container_options(held)
        assert merged is not None
        assert merged.options.env == {"A": "1"}


def test_conflicts_within_one_answer_are_resolved() -> None:
    """Of two device files for one path in one answer, the first counts."""
    response = ContainerAllocateResponse(
        devices=[DeviceSpec("/dev/a", "/dev/x"), DeviceSpec("/dev/b", "/dev/x")]
    )
    options, conflicts = merge_responses([("r/a", response)])
    assert options.devices == (DeviceSpec("/dev/a", "/dev/x"),)
    assert len(conflicts) == 1
