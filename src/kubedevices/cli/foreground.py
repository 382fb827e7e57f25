"""A command as our child in the foreground: signals go to it once, and its end becomes ours.

It stays in our process group, so that the terminal treats both as one job. What a terminal sends
(Ctrl-C, Ctrl-Z, a hang-up) reaches the whole group and is not passed on; what a process sends to us
alone is. Blocked signals that are waited for say which of both they are; handlers would not.
"""

import os
import resource
import shutil
import signal
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from kubedevices.errors import CommandNotStarted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What asks a command to end."""

_PASSED_ON = (
    *ENDING,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)
_JOB_CONTROL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_FROM_KERNEL = 0x80  # si_code SI_KERNEL: a key of the terminal, or its end
_CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored, which a child would inherit


class Foreground:
    """Holds signals back while the context lasts; `run` deals with them.

    Left with an error, those that still wait strike then.
    """

    def __enter__(self) -> Self:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, nobody could wait for a child
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self._forget_pending()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    @staticmethod
    def _forget_pending() -> None:
        """Drop what came too late for the command: its end is what counts now."""
        while signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, 0):
            pass

    @property
    def pending(self) -> bool:
        """Whether a signal is held back that asks us to end."""
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
            found = shutil.which(words[0], mode=os.F_OK) is not None
            raise CommandNotStarted(words[0], error.strerror or str(error), found=found) from error
        finally:
            os.set_inheritable(inherit, False)
        while True:
            ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if not ended:
                _pass_on(child)
            elif not os.WIFSTOPPED(status):
                self._forget_pending()
                return status
            elif os.WSTOPSIG(status) in _JOB_CONTROL:
                os.kill(os.getpid(), signal.SIGSTOP)  # the shell waits for us alone
                os.kill(child, signal.SIGCONT)


def _pass_on(child: int) -> None:
    """Wait for a signal and pass it on, unless the child got it from the terminal as we did."""
    info = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
    if info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
        os.kill(child, info.si_signo)


def end_like(status: int) -> int:
    """Return the exit code of a wait status; killed by a signal, so are we: shells look at that."""
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one dump is enough
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
