"""The order of the tests is a function of their IDs and deadlines."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tests.worker_schedule import Planned, WorkerSchedule

IMAGE = [
    Planned("tests/deploy/test_image.py::a", 600),
    Planned("tests/deploy/test_image_check.py::b"),
]
FILES = st.sampled_from(["a.py", "b.py", "tests/kubernetes/c.py", "tests/deploy/test_image.py"])


def test_tests_that_share_an_image_run_in_one_worker() -> None:
    """Also when another worker has nothing else to do."""
    schedule = WorkerSchedule(IMAGE, 2)
    assert [schedule.next_for(worker) for worker in (1, 2, 1, 2, 1)] == [0, None, 1, None, None]


def test_the_longest_test_is_begun_first_and_half_of_the_workers_have_long_ones() -> None:
    """The others begin with the files."""
    tests = [Planned("a.py::short"), *(Planned(f"a.py::{n}", n) for n in (200, 900, 300, 150))]
    schedule = WorkerSchedule([*tests, Planned("b.py::short")], 4)
    assert [schedule.next_for(worker) for worker in (1, 2, 3, 4)] == [2, 3, 0, 5]
    assert schedule.next_for(3) == 1  # no file is left
    assert schedule.next_for(1) == 4


def test_a_worker_stays_in_its_file_and_helps_at_the_end() -> None:
    """The file with the most tests left gets help."""
    schedule = WorkerSchedule([Planned(f"{file}.py::{n}") for file in "ab" for n in range(4)], 2)
    assert [schedule.next_for(worker) for worker in (1, 2, 1, 1, 1)] == [0, 4, 1, 2, 3]
    assert [schedule.next_for(worker) for worker in (1, 2, 1, 2)] == [7, 5, 6, None]


def test_the_tests_of_a_worker_that_died_are_for_another() -> None:
    """Its group, too."""
    schedule = WorkerSchedule(IMAGE, 2)
    assert (schedule.next_for(1), schedule.next_for(2)) == (0, None)
    schedule.leave(1)
    assert schedule.next_for(3) == 1


@given(
    st.lists(st.tuples(FILES, st.sampled_from([0, 200, 600]))),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_each_test_is_given_once(made: list[tuple[str, int]], workers: int, chance: object) -> None:
    """Whichever worker asks next; one that gets nothing asks no more."""
    schedule = WorkerSchedule([Planned(f"{file}::t", limit) for file, limit in made], workers)
    given_to, asking = defaultdict(list), [*range(workers)]
    while asking:
        worker = chance.choice(asking)  # type: ignore[attr-defined]
        if (number := schedule.next_for(worker)) is None:
            asking.remove(worker)
        else:
            given_to[worker].append(number)
    assert sorted(n for numbers in given_to.values() for n in numbers) == [*range(len(made))]
