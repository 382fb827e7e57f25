"""The order of the tests depends only on their IDs and deadlines."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tests.worker_schedule import PlannedTest, WorkerSchedule

IMAGE = [
    PlannedTest("tests/deploy/test_image.py::a", 600),
    PlannedTest("tests/deploy/test_image_check.py::b"),
]
FILES = st.sampled_from(["a.py", "b.py", "tests/kubernetes/c.py", "tests/deploy/test_image.py"])


def test_tests_with_the_same_image_run_in_one_worker() -> None:
    """Also if another worker is idle."""
    schedule = WorkerSchedule(IMAGE, 2)
    assert [schedule.next_for(worker) for worker in (1, 2, 1, 2, 1)] == [0, None, 1, None, None]


def test_the_longest_test_starts_first_in_half_of_the_workers() -> None:
    """The other half starts with the files."""
    tests = [
        PlannedTest("a.py::short"),
        *(PlannedTest(f"a.py::{n}", n) for n in (200, 900, 300, 150)),
    ]
    schedule = WorkerSchedule([*tests, PlannedTest("b.py::short")], 4)
    assert [schedule.next_for(worker) for worker in (1, 2, 3, 4)] == [2, 3, 0, 5]
    assert schedule.next_for(3) == 1  # all files are taken
    assert schedule.next_for(1) == 4


def test_a_worker_stays_in_its_file_and_then_helps_another() -> None:
    """An idle worker takes tests of the file with the most tests left."""
    schedule = WorkerSchedule(
        [PlannedTest(f"{file}.py::{n}") for file in "ab" for n in range(4)], 2
    )
    assert [schedule.next_for(worker) for worker in (1, 2, 1, 1, 1)] == [0, 4, 1, 2, 3]
    assert [schedule.next_for(worker) for worker in (1, 2, 1, 2)] == [7, 5, 6, None]


def test_another_worker_takes_the_tests_of_a_worker_that_died() -> None:
    """The tests of a group, too."""
    schedule = WorkerSchedule(IMAGE, 2)
    assert (schedule.next_for(1), schedule.next_for(2)) == (0, None)
    schedule.remove_worker(1)
    assert schedule.next_for(3) == 1


@given(
    st.lists(st.tuples(FILES, st.sampled_from([0, 200, 600]))),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_each_test_runs_once(made: list[tuple[str, int]], workers: int, chance: object) -> None:
    """For any order of requests. A worker that got None requests no more."""
    schedule = WorkerSchedule([PlannedTest(f"{file}::t", limit) for file, limit in made], workers)
    given_to, asking = defaultdict(list), [*range(workers)]
    while asking:
        worker = chance.choice(asking)  # type: ignore[attr-defined]
        if (number := schedule.next_for(worker)) is None:
            asking.remove(worker)
        else:
            given_to[worker].append(number)
    assert sorted(n for numbers in given_to.values() for n in numbers) == [*range(len(made))]
