"""One scan of a scanner as a task: begun, watched and ended. For those who run a plugin."""

import asyncio
import logging

from kubedevices.errors import InvalidDevice, KubedevicesError, ScanFailed, UsageError
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_code import describe
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner

_log = logging.getLogger(__name__)


def check_scanner(scanner: object) -> None:
    """Raise `UsageError` for what is not a scanner."""
    if not isinstance(scanner, Scanner):
        hint = f": write {scanner.__name__}()" if isinstance(scanner, type) else ""
        raise UsageError(f"a plugin needs a Scanner object, not {scanner!r}{hint}")


async def scan(scanner: Scanner, notifier: Notifier) -> None:
    """Run `scanner.scan` to its end. Raises `ScanFailed` for what the author's code raises."""
    try:
        await hook_threads.call(scanner.scan, notifier)  # in a thread, should it be a plain `def`
    except Exception as error:
        # An invalid device is a mistake of the author's code; other errors of ours have their own
        # words.
        if isinstance(error, KubedevicesError) and not isinstance(error, InvalidDevice):
            raise
        name = scanner.scanner_name
        raise ScanFailed(name, describe(error)) from error


async def await_end(task: asyncio.Task[None], scanner: Scanner, grace: float) -> None:
    """Wait up to `grace` seconds for a scan that was cancelled."""
    await asyncio.wait({task}, timeout=grace)
    if not task.done():
        name = scanner.scanner_name
        _log.warning("%s.scan goes on although it was cancelled: not waiting for it", name)
    elif not task.cancelled() and (error := task.exception()):
        _log.debug("the scanner ended with an error", exc_info=error)
