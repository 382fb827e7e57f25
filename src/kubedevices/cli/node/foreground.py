"""Runs a command as our child in the foreground, with its signals, and ends like the command.

The child stays in our process group, so the terminal treats both processes as one job. A signal
from the terminal (Ctrl-C, Ctrl-Z, a hang-up) reaches the whole group, so it is not passed on. A
signal that another process sends to us alone is passed on. `sigwaitinfo` on blocked signals tells
where a signal comes from; a signal handler in Python does not get this information.
"""

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from kubedevices.errors import CommandNotStarted
from kubedevices.host.programs import start_failure

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that ask a command to end."""

_PASSED_ON = (
    *ENDING,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)
_JOB_CONTROL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_FROM_KERNEL = 0x80  # si_code SI_KERNEL: a key on the terminal, or its hang-up
_CHANGED_BY_PYTHON = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
)  # Python ignores them: reset in the child


class Foreground:
    """Blocks signals while the context lasts; `run` passes them on.

    If the context ends with an error, pending signals take effect then.
    """

    def __enter__(self) -> Self:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, waitpid would find no child
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self._discard_pending()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    @staticmethod
    def _discard_pending() -> None:
        """Discard signals that came after the command ended: only its exit code counts now."""
        while signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, 0):
            pass

    @property
    def pending(self) -> bool:
        """Whether a signal of `ENDING` is pending."""
        return not signal.sigpending().isdisjoint(ENDING)

    def run(self, words: Sequence[str], env: Mapping[str, str], *, inherit: int) -> int:
        """Run a command, which also gets the open file `inherit`; return its wait status.

        Raises `CommandNotStarted`.
        """
        os.set_inheritable(inherit, True)
        try:
            child = os.posix_spawnp(
                words[0],
                list(words),
                env,
                setsigmask=self._before,
                setsigdef=_CHANGED_BY_PYTHON,
            )
        except OSError as error:
            reason, found = start_failure(words[0], error)
            raise CommandNotStarted(words[0], reason, found=found) from error
        finally:
            os.set_inheritable(inherit, False)
        while True:
            ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if not ended:
                _pass_on(child)
            elif not os.WIFSTOPPED(status):
                self._discard_pending()
                return status
            elif os.WSTOPSIG(status) in _JOB_CONTROL:
                os.kill(os.getpid(), signal.SIGSTOP)  # the shell watches only us, so stop as well
                os.kill(child, signal.SIGCONT)


def _pass_on(child: int) -> None:
    """Wait for a signal and pass it on, unless it came from the terminal, which sent it to both."""
    info = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
    if info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
        os.kill(child, info.si_signo)


def end_like(status: int) -> int:
    """Return the exit code of a wait status.

    If a signal ended the command, end this process by the same signal: a shell then reports it.
    """
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no second core dump
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
