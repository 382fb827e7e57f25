"""Words for people: what was meant, how many there are, the first few."""

from kubedevices.errors.words import closest, counted, did_you_mean, some_of


def test_the_nearest_word_is_suggested() -> None:
    assert closest("simulat", ["scan", "simulate", "node"]) == "simulate"


def test_case_does_not_count() -> None:
    assert closest("PETNAME", ["petName"]) == "petName"


def test_a_different_word_has_no_suggestion() -> None:
    assert closest("xyz", ["petName"]) == ""
    assert did_you_mean("xyz", ["petName"]) == ""
    assert closest("anything", []) == ""


def test_the_caller_chooses_the_least_similarity() -> None:
    assert closest("limit", ["limits"], alike=0.8) == "limits"
    assert closest("lims", ["limits"], alike=0.9) == ""


def test_a_suggestion_ends_a_message() -> None:
    assert did_you_mean("scna", ["scan"]) == ", did you mean 'scan'?"


def test_a_count_of_one_is_singular() -> None:
    assert [counted(number, "device") for number in range(3)] == [
        "0 devices",
        "1 device",
        "2 devices",
    ]


def test_many_names_are_shortened() -> None:
    """The first of them, and how many more."""
    assert some_of("abc") == "a, b, c"
    assert some_of("abcdefg") == "a, b, c, d, e and 2 more"
