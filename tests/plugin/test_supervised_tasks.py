"""Long-lived tasks: no error is lost, and no part of a process stays dead."""

import asyncio

import pytest

from kubedevices.errors import UsageError
from kubedevices.plugin import supervised_tasks
from kubedevices.plugin.supervised_tasks import SupervisedTasks
from tests.waiting import until


class Failing:
    """Raises its errors one after the other, then runs until it is cancelled."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.begun = [*errors], 0

    async def run(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_tasks, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervised_tasks, "STEADY", 0.05)


async def test_a_failed_task_begins_again_and_its_traceback_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A task counts as failed from its error until it has run steadily again."""
    work, tasks = Failing(ZeroDivisionError("by zero"), KeyError("x")), SupervisedTasks()
    tasks.start("part", work.run)
    await until(lambda: "part" in tasks.failed)
    await until(lambda: work.begun == 3)
    assert tasks.failed == {"part": "internal error: KeyError('x')"}
    await until(lambda: not tasks.failed)
    assert caplog.text.count("Traceback") == 2
    assert "part failed" in caplog.text
    await tasks.stop()


async def test_a_mistake_of_the_user_is_logged_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error of ours says what to do; a traceback would hide that."""
    work, tasks = Failing(UsageError("use another name")), SupervisedTasks()
    tasks.start("part", work.run)
    await until(lambda: work.begun == 2)
    assert "part: use another name (again in 0.01 s)" in caplog.text
    assert "Traceback" not in caplog.text
    await tasks.stop()


async def test_an_event_ends_the_pause_of_a_failed_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the rules need not wait for the end of a long pause."""
    monkeypatch.setattr(supervised_tasks, "FIRST_PAUSE", 3600.0)
    work, tasks, hurry = Failing(UsageError("x")), SupervisedTasks(), asyncio.Event()
    tasks.start("part", work.run, hurry=hurry)
    await until(lambda: "part" in tasks.failed)
    hurry.set()
    await until(lambda: work.begun == 2)
    await tasks.stop()


async def test_a_task_that_returns_is_over_and_did_not_fail() -> None:
    """Work that is done is not repeated."""
    begun = []

    async def work() -> None:
        begun.append(1)

    tasks = SupervisedTasks()
    tasks.start("part", work)
    await until(lambda: begun == [1])
    await tasks.stop()
    assert (begun, tasks.failed) == ([1], {})


async def test_stop_cancels_tasks_that_run_and_tasks_that_pause() -> None:
    """After `stop` nothing of the owner runs."""
    running, failing, tasks = Failing(), Failing(UsageError("x")), SupervisedTasks()
    tasks.start("running", running.run)
    tasks.start("failing", failing.run)
    await until(lambda: running.begun == 1 and "failing" in tasks.failed)
    await tasks.stop()
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not names & {"running", "failing"}
