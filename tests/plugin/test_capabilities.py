"""Abilities: abstract classes that catch a misspelt method, and a word that stands for the rest."""

import copy
import pickle

import pytest

import kubedevices as kd
from kubedevices.plugin.capabilities import (
    USE_DEFAULT,
    Allocator,
    ContainerPreStarter,
    PostAllocator,
    PreferredAllocator,
    UseDefault,
)


@pytest.mark.parametrize(
    ("ability", "method"),
    [
        (Allocator, "allocate"),
        (PostAllocator, "post_allocate"),
        (PreferredAllocator, "get_preferred_allocation"),
        (ContainerPreStarter, "pre_start_container"),
        (kd.TypeStarter, "on_type_added"),
        (kd.TypeStopper, "on_type_removed"),
        (kd.PolledScanner, "list_devices"),
        (kd.Scanner, "scan"),
    ],
)
def test_a_misspelt_method_fails_when_the_object_is_created(ability: type, method: str) -> None:
    """The error names the class and the method that is missing."""
    misspelt = type("Widgets", (ability,), {method + "s": lambda self: None})
    with pytest.raises(TypeError, match=rf"abstract class Widgets .*abstract method '?{method}\b"):
        misspelt()


def test_an_ability_needs_only_its_method() -> None:
    """An ability with its method can be made."""

    class Widgets(ContainerPreStarter):
        def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
            pass

    assert isinstance(Widgets(), ContainerPreStarter)


def test_use_default_is_one_value() -> None:
    """`USE_DEFAULT` stays itself through copies and prints as its name."""
    assert copy.deepcopy(USE_DEFAULT) is USE_DEFAULT
    assert pickle.loads(pickle.dumps(USE_DEFAULT)) is USE_DEFAULT
    assert list(UseDefault) == [USE_DEFAULT]
    assert repr(USE_DEFAULT) == "USE_DEFAULT"
    assert kd.USE_DEFAULT is USE_DEFAULT
