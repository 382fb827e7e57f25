"""The signals that stop a program that serves."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and SIGINT unless the parent of this process wants it to be ignored.

    A shell starts a background job of a script with SIGINT ignored (POSIX, "Asynchronous Lists"):
    Ctrl-C is meant for the program in the foreground. SIGTERM is always heeded, because service
    managers and kubelets have no other signal to stop a program.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)
