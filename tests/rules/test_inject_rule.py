"""What is added to an answer, and variables numbered within a container."""

from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import ConflictingDevices, UsageError
from kubedevices.rules.inject_rule import InjectRule, PlaceholderValues, add, additions, renumber
from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse


def test_each_container_counts_from_zero_in_the_order_of_the_values() -> None:
    """Other variables are left alone."""
    first = ContainerAllocateResponse(env={"QAT_b": "10", "PATH": "/", "QAT_a": "9"})
    second = ContainerAllocateResponse(env={"QAT_c": "7"})
    renumber(AllocateResponse([first, second, ContainerAllocateResponse()]), "QAT")
    assert first.env == {"PATH": "/", "QAT0": "9", "QAT1": "10"}
    assert second.env == {"QAT0": "7"}


def test_renumbering_twice_changes_nothing() -> None:
    """The numbers stay the same."""
    container = ContainerAllocateResponse(env={"BDF10": "a", "BDF2": "b"})
    for _ in range(2):
        renumber(AllocateResponse([container]), "BDF")
        assert container.env == {"BDF0": "a", "BDF1": "b"}


TWO = [PlaceholderValues("b10", "1"), PlaceholderValues("b9", "0,1")]


@pytest.mark.parametrize(
    ("keys", "added"),
    [
        ({}, {}),
        ({"env": {"MODE": "x"}}, {"env": {"MODE": "x"}}),
        ({"env": {"IDS": "{id}"}}, {"env": {"IDS": "b9,b10"}}),
        ({"env": {"QAT{index}": "{id}"}}, {"env": {"QAT0": "b9", "QAT1": "b10"}}),
        ({"env": {"NODES": "{numa}", "{{": "}}"}}, {"env": {"NODES": "0,1,1", "{": "}"}}),
        ({"annotations": {"a/{index}": "{id}"}}, {"annotations": {"a/0": "b9", "a/1": "b10"}}),
        (
            {"mounts": (kd.Mount("/run/{id}", "/run/{index}", True), kd.Mount("/x", "/x"))},
            {"mounts": [kd.Mount("/run/b9", "/run/0", True), kd.Mount("/x", "/x"),
                        kd.Mount("/run/b10", "/run/1", True)]},
        ),
        (
            {"devices": (kd.DeviceSpec("/dev/{id}", permissions="r"),)},
            {"devices": [kd.DeviceSpec("/dev/b9", permissions="r"),
                         kd.DeviceSpec("/dev/b10", permissions="r")]},
        ),
        (
            {"cdi_devices": ("v.com/c={id}", "v.com/c=all")},
            {"cdi_devices": ["v.com/c=b9", "v.com/c=all", "v.com/c=b10"]},
        ),
    ],
)  # fmt: skip
def test_a_rule_adds_to_the_answer(keys: dict[str, Any], added: dict[str, Any]) -> None:
    """Devices are numbered in natural order; what several say in different words is joined."""
    assert additions(InjectRule(**keys), [*TWO, TWO[0]]) == ContainerAllocateResponse(**added)


def test_two_devices_cannot_have_one_place() -> None:
    """Nor would a runtime know which of them is meant."""
    rule = InjectRule(mounts=(kd.Mount("/run/{id}", "/run/socket"),))
    assert additions(rule, TWO[:1]).mounts == [kd.Mount("/run/b10", "/run/socket")]
    with pytest.raises(ConflictingDevices, match="b10 puts /run/b10 at /run/socket, where"):
        additions(rule, TWO)


def test_the_rule_wins_against_the_plugin() -> None:
    """What it replaces is told; what both say alike is not."""
    container = ContainerAllocateResponse(
        env={"A": "1", "B": "2", "C": "3"},
        mounts=[kd.Mount("/x", "/x"), kd.Mount("/y", "/y")],
        devices=[kd.DeviceSpec("/dev/a"), kd.DeviceSpec("/dev/b")],
        cdi_devices=["v.com/c=a"],
    )
    added = ContainerAllocateResponse(
        env={"B": "2", "C": "4"},
        mounts=[kd.Mount("/z", "/y")],
        devices=[kd.DeviceSpec("/dev/b", permissions="rwm")],
        cdi_devices=["v.com/c=a", "v.com/c=b"],
    )
    assert add(container, added) == ["C", "/y"]
    assert container == ContainerAllocateResponse(
        env={"A": "1", "B": "2", "C": "4"},
        mounts=[kd.Mount("/x", "/x"), kd.Mount("/z", "/y")],
        devices=[kd.DeviceSpec("/dev/a"), kd.DeviceSpec("/dev/b", permissions="rwm")],
        cdi_devices=["v.com/c=a", "v.com/c=b"],
    )


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"env": {"A": "{path}"}}, r"unknown placeholder \{path\}, known: \{id\}, \{index\}"),
        ({"env": {"A": "{id"}}, "a single '{'"),
        ({"env": {"A=B": "1"}}, "'A=B' cannot be a name"),
        ({"mounts": (kd.Mount("run", "/run"),)}, "'run' must be absolute"),
        ({"devices": (kd.DeviceSpec("/dev/a", permissions="x"),)}, "permissions 'x'"),
        ({"mounts": (kd.Mount("/a", "/x"), kd.Mount("/b", "/x"))}, "where /a already is"),
    ],
)
def test_a_rule_that_cannot_be_is_an_error(keys: dict[str, Any], text: str) -> None:
    """When it is made."""
    with pytest.raises(UsageError, match=f"InjectRule.*: .*{text}"):
        InjectRule(**keys)
