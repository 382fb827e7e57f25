"""Every waiting time of a plugin process, as one value; tests use shorter times. Pure.

Also the two rules that use such times: `back_off` for pauses, `Reminder` for repeated log lines.
"""

from typing import NamedTuple


class Timing(NamedTuple):
    """All in seconds. The defaults fit the kubelet."""

    look_interval: float = 1.0
    """Interval of the look at socket files that also finds changes without a file event."""

    register_deadline: float = 30.0
    """For one Register call. The kubelet dials back for up to 10 s before it answers."""

    dial_deadline: float = 10.0
    """Until kubelet.sock must have answered a connection with HTTP/2 SETTINGS."""

    quick_retry: float = 0.002
    """First pause after a refused connection; doubles up to `last_retry`.

    It is short because the kubelet binds its socket shortly before it listens.
    """

    first_retry: float = 0.2
    """First pause after a Register call that failed otherwise; doubles up to `last_retry`."""

    last_retry: float = 5.0
    """Longest pause between two attempts to register."""

    again_soon: float = 0.01
    """Pause before registering again when a stream ended; eight times longer for each further loss.

    It is not 0: a kubelet that ended the stream forgets the plugin shortly afterwards, and would
    forget a new registration with it. The longest pause is `again_last`.
    """

    again_first: float = 10.0
    """How long we wait for a stream before we register again; doubles up to `again_last`."""

    again_last: float = 300.0
    """Longest pause of `again_soon` and `again_first`."""

    newer_instance_timeout: float = 1.0
    """How long a newer instance may take to take over a resource before we register again."""

    after_leave: float = 1.0
    """Pause between the end of an older instance's streams and our next registration.

    The kubelet must see the end of these streams first. If it sees their end after our next
    registration, it closes our connection. The devices stay meanwhile: our first stream is open.
    """

    take_over_timeout: float = 15.0
    """How long a newer instance to which we left the resource may say that no kubelet has it.

    It registers again about `after_leave` after we left. Then we register again.
    """

    stand_by_limit: float = 600.0
    """How long we believe a newer instance that a kubelet has it.

    Then the kubelet's checkpoint must list the resource, or we register again.
    """

    instance_deadline: float = 2.0
    """For each call to another instance of this plugin."""

    instance_ping: float = 10.0
    """Pause between two pings of a newer instance; also the time limit of each ping."""

    stream_lasted: float = 60.0
    """After a stream that was open for so long, `again_soon` and `again_first` start anew."""

    rebind_first: float = 0.2
    """First pause when our socket file disappears again within `socket_lasted`; doubles."""

    rebind_last: float = 5.0
    """Longest pause before our socket is bound again."""

    socket_lasted: float = 10.0
    """After a socket file that existed for so long, the pause starts at `rebind_first` again."""

    waiting_reminder: float = 60.0
    """Time after which the log repeats "waiting for the kubelet"; doubles up to the next value."""

    waiting_reminder_last: float = 3600.0
    """Longest time between two such log lines."""

    slow_pre_start: float = 20.0
    """A PreStartContainer call that takes longer is logged."""

    call_grace: float = 0.9
    """How long running Allocate calls may go on when a plugin stops; streams end at once."""

    removed_grace: float = 0.5
    """For `on_type_removed`. Nobody waits longer for its thread."""

    hook_grace: float = 0.3
    """At the end, for threads that still run the author's code. Nobody waits longer for them."""

    exit_grace: float = 5.0
    """From the stop signal to the end of the process, even if the event loop is blocked."""

    isolate_first: float = 1.0
    """First pause before a failed device type is served again (`on_server_error="isolate"`)."""

    isolate_last: float = 300.0
    """Longest such pause; a type that was served for longer starts at `isolate_first` again."""


class HookTimeouts(NamedTuple):
    """How long the author's code may take for one answer, in seconds.

    The kubelet admits one pod after the other. It waits without a limit for `allocate` and
    `preferred`, and 30 s for `pre_start`. It does not report which plugin was late.
    """

    allocate: float = 10.0
    """For `allocate`, `post_allocate` and the writing of CDI files together."""

    preferred: float = 2.0
    """For `get_preferred_allocation`."""

    pre_start: float = 25.0
    """For `pre_start_container`."""

    prepare: float = 20.0
    """For `prepare_claim` and for `unprepare_claim`: the kubelet waits 45 s for a whole claim."""


def back_off(first: float, last: float, failures: int) -> float:
    """Return the pause after `failures` in a row: `first`, doubled per failure, at most `last`."""
    return min(last, first * 2.0 ** min(failures, 64))


class Reminder:
    """Decides when the log repeats that the plugin still waits: at once, then ever more rarely."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.reset()

    def reset(self) -> None:
        """Start again: the next `is_due` returns True."""
        self._logged = 0
        self.due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether to write a log line at `now`; if so, set the time of the next line."""
        if self.due is not None and now < self.due:
            return False
        timing = self._timing
        first, last = timing.waiting_reminder, timing.waiting_reminder_last
        self.due = now + back_off(first, last, self._logged)
        self._logged += 1
        return True
