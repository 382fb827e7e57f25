"""Every waiting time of a plugin process, as one value. Tests make a faster one of it."""

from typing import NamedTuple


class Timing(NamedTuple):
    """All in seconds. The defaults are what a real kubelet needs."""

    look_interval: float = 1.0
    """Between two looks at socket files when no file event comes."""

    register_deadline: float = 30.0
    """For one Register call. A kubelet dials back for up to 10 s before it answers."""

    dial_deadline: float = 10.0
    """Until kubelet.sock must have answered a connection with HTTP/2 SETTINGS."""

    quick_retry: float = 0.002
    """First pause after a refused connection: a kubelet binds its socket before it listens."""

    first_retry: float = 0.2
    """First pause after a Register that failed otherwise; doubles up to `last_retry`."""

    last_retry: float = 5.0

    again_soon: float = 0.01
    """Pause before registering again when a stream ended; eight times longer each time in a row.

    Not nothing: a kubelet that hangs up forgets us a moment later, and would forget the new
    registration.
    """

    again_first: float = 10.0
    """Wait for a stream after Register. Doubles."""

    again_last: float = 300.0

    newer_instance_timeout: float = 1.0
    """Seconds that a newer instance has to take over a lost resource before we register again."""

    after_leave: float = 1.0
    """What a kubelet has to see the streams of an older instance end, before we register again.

    If it sees the end after that, it hangs up on us. Nothing is away meanwhile: our first stream is
    open.
    """

    sibling_deadline: float = 2.0
    """For each call to another instance of ours."""

    sibling_ping: float = 10.0
    """Between two signs of life of an instance that we stand by for; also how long one may take."""

    stream_lasted: float = 60.0
    """A stream that was open for so long starts the pauses above afresh."""

    rebind_first: float = 0.2
    """First pause when our socket file vanished soon after the last time; doubles."""

    rebind_last: float = 5.0

    socket_lasted: float = 10.0
    """A socket file that was there for so long starts the pauses above afresh."""

    waiting_reminder: float = 60.0
    """Between "waiting for the kubelet" and its first repetition in the log; doubles."""

    waiting_reminder_last: float = 3600.0

    slow_pre_start: float = 20.0
    """A PreStartContainer that takes longer is logged."""

    call_grace: float = 0.9
    """For Allocate calls under way when a plugin stops; streams end at once."""

    removed_grace: float = 0.5
    """For `on_type_removed`; a thread of it goes on unheard if the process lives on."""

    hook_grace: float = 0.3
    """After that, for threads that still run code of the author's; then they are left behind."""

    exit_grace: float = 5.0
    """From a signal to the end of the process, even if something blocks the event loop."""

    isolate_first: float = 1.0
    """Pause before a device type that failed is served again (`on_server_error="isolate"`)."""

    isolate_last: float = 300.0


class HookTimeouts(NamedTuple):
    """How long the author's code may take for one answer, in seconds.

    A kubelet admits one pod after the other. It waits for ever for `allocate` and `preferred`, and
    30 s for `pre_start`, and does not report which plugin was late.
    """

    allocate: float = 10.0
    """For `allocate` and `post_allocate` together, and for our CDI files."""

    preferred: float = 2.0
    pre_start: float = 25.0
    prepare: float = 20.0
    """For `prepare_claim` and for `unprepare_claim`: a kubelet waits for 45 s on all of a claim."""


def back_off(first: float, last: float, failures: int) -> float:
    """Return the pause after so many failures in a row: `first`, doubled each time up to `last`."""
    return min(last, first * 2.0 ** min(failures, 64))
