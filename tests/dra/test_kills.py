"""A driver is killed before and after each change of a file."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubedevices.host import cdi_specs
from kubedevices.host.shared_directory import SharedDirectory
from tests.dra.test_preparation import FIRST, ONE, SECOND, TWO, Rig


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Kills at the `at`-th change of a file: before it, or after it."""

    def __init__(self, at: int, *, before: bool) -> None:
        self.at, self.before = at, before
        self.changes = 0

    def around(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            self.changes += 1
            if self.changes == self.at and self.before:
                raise Killed
            done = change(*arguments, **options)
            if self.changes == self.at:
                raise Killed
            return done

        return changed


def steps(rig: Rig) -> list[Callable[[], object]]:
    """The kubelet's calls; each may be repeated."""
    return [
        lambda: rig.prepare(ONE, FIRST),
        lambda: rig.prepare(TWO, SECOND),
        lambda: rig.now.remove(ONE.uid),
        lambda: rig.prepare(ONE, FIRST),
        lambda: rig.now.remove(TWO.uid),
        lambda: rig.now.remove(ONE.uid),
        lambda: rig.prepare(TWO, FIRST),
    ]


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
@pytest.mark.parametrize("before", [True, False])
def test_the_next_process_finishes_the_work_of_a_killed_process(
    before: bool, boot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet repeats calls without an answer. At the end no file is missing or left over.

    After a reboot, the kubelet repeats Prepare for each claim of a pod.
    """
    replace, remove = SharedDirectory.replace, cdi_specs.remove_file
    for at in itertools.count(1):
        (directory := tmp_path / f"{at}").mkdir()
        rig, killer = Rig(directory), Killer(at, before=before)
        monkeypatch.setattr(SharedDirectory, "replace", killer.around(replace))
        monkeypatch.setattr(cdi_specs, "remove_file", killer.around(remove))
        asked: list[Callable[[], object]] = []
        for step in steps(rig):
            asked.append(step)
            try:
                step()
            except Killed:
                rig.start(boot)
                if boot != "boot-1":
                    for again in asked[:-1]:
                        again()
                step()
        monkeypatch.undo()
        assert [each.name for each in rig.files] == [
            cdi_specs.file_name("example.com/claim", TWO.uid)
        ]
        assert rig.resolves(rig.prepare(TWO, FIRST))
        rig.now.remove(TWO.uid)
        assert not rig.files
        if killer.changes < at:
            break
    assert at > 15, "there are as many moments as changes"
