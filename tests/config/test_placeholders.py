"""Texts with placeholders."""

import pytest

from kubedevices.config.placeholders import (
    PlaceholderProblem,
    fill,
    fill_argument,
    fill_path,
    fixed_directory,
    placeholders,
)


def test_placeholders_are_filled() -> None:
    """Braces that are doubled stand for themselves."""
    text = "{n}:{name}:{{n}}"
    assert placeholders(text) == ("n", "name")
    assert fill(text, {"n": "1", "name": "ttyS1"}) == "1:ttyS1:{n}"


@pytest.mark.parametrize("text", ["{n", "n}", "{{n}", "{a{b}"])
def test_a_single_brace_is_refused(text: str) -> None:
    """It is a placeholder somebody mistyped."""
    with pytest.raises(ValueError, match=r"a single '[{}]': write it twice"):
        placeholders(text)


IDS_OF_STRANGERS = [
    "../root-only", "..", ".", "", "a/b", "/etc/shadow", "../../../../dev/zero", "a\0b", "/",
]  # fmt: skip


@pytest.mark.parametrize("value", IDS_OF_STRANGERS)
def test_a_value_in_a_path_is_one_component(value: str) -> None:
    """It leads to no other directory, and it is no directory itself."""
    for template in ("/sys/class/net/{id}/state", "/run/state/{id}"):
        with pytest.raises(PlaceholderProblem):
            fill_path(template, {"id": value})


def test_two_values_together_are_no_way_up() -> None:
    """The component as a whole counts."""
    with pytest.raises(PlaceholderProblem):
        fill_path("/run/{id}{n}", {"id": ".", "n": "."})
    assert fill_path("/run/gpu-{id}.state", {"id": ".."}) == "/run/gpu-...state"


def test_a_path_that_we_found_ourselves_may_begin_a_path() -> None:
    """`{path}` of expose is the path of a match; it cannot stand in the middle."""
    values = {"path": "/dev/card0", "name": "card0"}
    assert fill_path("{path}/state", values) == "/dev/card0/state"
    assert fill_path("/sys/class/drm/{name}/status", values) == "/sys/class/drm/card0/status"
    with pytest.raises(PlaceholderProblem):
        fill_path("/run{path}", values)


@pytest.mark.parametrize(
    ("template", "directory"),
    [
        ("/sys/class/net/{id}/x", "/sys"),
        ("/run/state/gpu-{id}", "/run/state"),
        ("/{id}", "/"),
        ("{path}", ""),
        ("/run/state", ""),
    ],
)
def test_the_directory_before_the_first_value_is_fixed(template: str, directory: str) -> None:
    """Links may lead to other places in sysfs, and nowhere else."""
    assert fixed_directory(template) == directory


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{id}", "--delete-all"),
        ("{id}", "-"),
        ("{id}", ""),
        ("{id}", "a\0"),
        ("{id}x", "-r"),
        ("--file=/run/{id}", "../x"),
        ("--file=/run/{id}", ".."),
        ("test {id} = x", "$(reboot)"),
        ("test {id}", "x; reboot"),
        ("print('{id}')", "'+x+'"),
        ("{id} {id}", "a b"),
    ],
)
def test_a_value_does_not_become_an_option_a_path_or_code(template: str, value: str) -> None:
    """An empty value does not become an empty argument either."""
    with pytest.raises(PlaceholderProblem):
        fill_argument(template, {"id": value})


@pytest.mark.parametrize(
    ("template", "value", "argument"),
    [
        ("{id}", "GPU 0; $x", "GPU 0; $x"),
        ("--id={id}", "GPU-7::0", "--id=GPU-7::0"),
        ("--address={id}", "0000:3b:00.0", "--address=0000:3b:00.0"),
        ("--id={id}", "-1", "--id=-1"),
        ("{{}}", "x", "{}"),
        ("-L", "", "-L"),
    ],
)
def test_usual_values_fill_an_argument(template: str, value: str, argument: str) -> None:
    """A value that is a whole argument may have any other character."""
    assert fill_argument(template, {"id": value}) == argument
