"""The restart gate: running containers keep their devices, others wait until they are verified."""

from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.admission.after_restart import RestartGate, Running
from kubedevices.node.pods.pod import Container, Pod

WIDGET, GADGET = "example.com/widget", "example.com/gadget"
POD = Pod(
    "p",
    init_containers=(Container("init", {WIDGET: 1}),),
    containers=(Container("main", {WIDGET: 1, GADGET: 1}), Container("side", {GADGET: 1})),
)
PARTS = (("init", WIDGET), ("main", WIDGET), ("main", GADGET), ("side", GADGET))


def gate(*, is_of_this_boot: bool = True) -> RestartGate:
    made = RestartGate()
    made.restore(POD.uid, PARTS, is_of_this_boot=is_of_this_boot)
    return made


def fixed(made: RestartGate, running: Running | None) -> set[tuple[str, str]]:
    return {
        (container.name, resource)
        for container in POD
        for resource in (WIDGET, GADGET)
        if made.is_fixed(POD, container.name, resource, running)
    }


def runs(*containers: str) -> Running:
    return {(POD.uid, container) for container in containers}


# ---------------------------------------------------------------- admission


def test_a_running_pod_keeps_all_its_devices() -> None:
    """One running container is enough: an init container that has finished does not run."""
    assert fixed(gate(), runs("side")) == {*PARTS, ("side", WIDGET)}


def test_a_running_container_keeps_the_devices_of_all_its_resources() -> None:
    """Also for a resource of which the container has no devices: it runs without devices."""
    assert gate().is_fixed(POD, "side", WIDGET, runs("side"))
    assert not gate().is_fixed(POD, "side", WIDGET, runs("main"))


def test_a_pod_without_a_running_container_is_planned_again() -> None:
    """Its plugin has to list the devices first."""
    assert fixed(gate(), runs()) == set()


def test_without_a_runtime_the_boot_decides() -> None:
    """After a reboot no container runs; within a boot a container may run."""
    assert fixed(gate(), None) == set(PARTS)
    assert fixed(gate(is_of_this_boot=False), None) == set()


def test_pods_admitted_since_the_start_are_ignored() -> None:
    """The admission has checked the devices of these pods."""
    assert fixed(RestartGate(), None) == set()
    assert RestartGate().to_verify(POD.uid, "main", None) == ()
    assert not RestartGate().verify(POD.uid, "main", WIDGET)


# ---------------------------------------------------------------- start


def test_the_start_of_a_container_that_does_not_run_is_verified() -> None:
    """Each resource is verified, also if the rest of the pod runs."""
    assert gate().to_verify(POD.uid, "main", runs("side")) == (GADGET, WIDGET)
    assert gate().to_verify(POD.uid, "main", runs("main")) == ()


def test_without_a_runtime_starts_are_verified_only_after_a_reboot() -> None:
    """A pod admitted in this boot counts as running."""
    assert gate().to_verify(POD.uid, "main", None) == ()
    assert gate(is_of_this_boot=False).to_verify(POD.uid, "side", None) == (GADGET,)


def test_a_verified_container_is_not_verified_again() -> None:
    """After the last verification the gate forgets the pod and returns True."""
    made = gate(is_of_this_boot=False)
    told = [made.verify(POD.uid, *part) for part in PARTS]
    assert told == [False, False, False, True]
    assert POD.uid not in made
    assert made.to_verify(POD.uid, "main", None) == ()


def test_a_released_pod_is_forgotten() -> None:
    """A later pod with the same UID is not affected."""
    made = gate()
    made.forget(POD.uid)
    made.forget(POD.uid)
    assert POD.uid not in made
    assert made.unverified(POD.uid) == frozenset()


def test_a_pod_without_devices_is_not_verified() -> None:
    """The gate does not store the pod."""
    made = RestartGate()
    made.restore(POD.uid, (), is_of_this_boot=False)
    assert POD.uid not in made
    assert repr(made) == "<RestartGate of 0 unverified pods>"


# ---------------------------------------------------------------- rules for every history

names = st.sampled_from(["init", "main", "side"])
views = st.none() | st.frozensets(names).map(lambda containers: runs(*containers))


@given(views, st.booleans(), st.lists(st.sampled_from(PARTS)))
def test_an_unverified_container_starts_only_if_it_already_runs(
    running: Running | None, is_of_this_boot: bool, verified: list[tuple[str, str]]
) -> None:
    """For every view of the runtime: all unverified resources, unless the container runs."""
    made = gate(is_of_this_boot=is_of_this_boot)
    for part in verified:
        made.verify(POD.uid, *part)
    for container in POD:
        runs_now = is_of_this_boot if running is None else (POD.uid, container.name) in running
        left = {resource for name, resource in {*PARTS} - {*verified} if name == container.name}
        expected = set() if runs_now else left
        assert set(made.to_verify(POD.uid, container.name, running)) == expected


@given(views, st.booleans())
def test_a_running_container_is_never_planned_again(
    running: Running | None, is_of_this_boot: bool
) -> None:
    """So that a plugin that is late cannot cause a refusal of the pod."""
    made = gate(is_of_this_boot=is_of_this_boot)
    for container in POD:
        if running is not None and (POD.uid, container.name) in running:
            held = {part for part in PARTS if part[0] == container.name}
            assert held <= fixed(made, running)
