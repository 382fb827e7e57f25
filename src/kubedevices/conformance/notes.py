"""What the stages of one run tell each other, and what is written down for its report."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kubedevices.conformance.trigger import Changes

LOG_LIMIT = 100_000
"""Characters kept of the beginning and of the end of what one process printed."""


@dataclass(frozen=True)
class Death:
    """An end of the plugin that nobody asked for."""

    when: str
    words: str = ""
    process: object = None
    is_by_change: bool = False  # devices changed meanwhile, which is the matter of other checks


@dataclass(frozen=True)
class Log:
    """What one process of the plugin printed: during which check it was started, how it ended."""

    check: str
    ended: str
    text: str


@dataclass
class Notes:
    """Shared by all stages of a run."""

    changes: Changes
    resources: tuple[str, ...] = ()  # known when the plugin was met; more may come
    usual_start: float = 0.0  # seconds from launch to Register, seen at the first start
    work_of_start: float = 0.0  # seconds of a processor in that, 0 where nobody counts
    is_watched: bool = False  # found by the plugin watcher alone, it never calls Register
    stays_away: set[str] = field(default_factory=set)  # after these checks, for good
    deaths: list[Death] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)

    def died(self, process: object, when: str, words: str, *, first: bool = False) -> None:
        """Note an end that nobody asked for, once for each process, `first` before others."""
        if process is None or all(each.process is not process for each in self.deaths):
            self.deaths.insert(0 if first else len(self.deaths), Death(when, words, process))

    def blame_change(self, process: object) -> None:
        """Note of an end that it came while devices changed."""
        for number, each in enumerate(self.deaths):
            if each.process is process and not each.is_by_change:
                when = f"{each.when}, while the devices changed"
                self.deaths[number] = replace(each, when=when, is_by_change=True)

    def keep_log(self, check: str, ended: str, text: str) -> None:
        """Keep what a process printed, without the middle if it is long."""
        if len(text) > 2 * LOG_LIMIT:
            left_out = len(text) - 2 * LOG_LIMIT
            text = f"{text[:LOG_LIMIT]}\n… {left_out:,} characters …\n{text[-LOG_LIMIT:]}"
        if text.strip():
            self.logs.append(Log(check, ended, text))

    def clean(self, tidy: Callable[[str], str]) -> None:
        """Pass everything that was noted through `tidy`."""
        self.deaths = [
            replace(each, when=tidy(each.when), words=tidy(each.words)) for each in self.deaths
        ]
        self.logs = [Log(each.check, each.ended, tidy(each.text)) for each in self.logs]
