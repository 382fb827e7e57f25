"""Writes log records to stderr, one per line, as text or JSON. For `cli.main` and `kd.run`."""

import logging
import os
import sys
import time
import traceback
from pathlib import Path

from kubedevices.errors import safe_text
from kubedevices.errors.safe_text import json_text, one_line
from kubedevices.host.unblocked_output import describe_dropped, say_dropped
from kubedevices.plugin.author_errors import place_of

_PACKAGE = "kubedevices."
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def configure_logging(level: str, log_format: str) -> None:
    """Send every record of `level` and above to stderr; a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    is_terminal = sys.stderr.isatty()
    text = TextLines(
        verbose=level == "debug",
        short_time=is_terminal,
        colours=is_terminal and not os.environ.get("NO_COLOR"),
    )
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    root = logging.getLogger()
    for old in [*root.handlers]:
        if isinstance(old.formatter, (JsonLines, TextLines)):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    describe_dropped(sys.stderr, lambda lines: handler.format(_dropped(lines)))
    # At debug level, asyncio logs its selectors, which are of no interest here.
    logging.getLogger("asyncio").setLevel(max(logging.INFO, root.level))


def _dropped(lines: int) -> logging.LogRecord:
    arguments = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord({**arguments, "msg": say_dropped(lines)})


def writes_json() -> bool:
    """Whether `configure_logging` was asked for JSON."""
    handlers = logging.getLogger().handlers
    return any(isinstance(handler.formatter, JsonLines) for handler in handlers)


def timestamp(seconds: float) -> str:
    """Return `2031-01-31T12:00:00.123Z`."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def summarize_exception(error: BaseException) -> str:
    """Return `ValueError: text (widgets.py:12)`: type, text and place in one line.

    The place is the line in the code of the plugin's author, if the exception passed through it,
    else the line that raised the exception.
    """
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    innermost = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    place = place_of(error) or innermost
    where = f" ({place})" if place else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


class TextLines(logging.Formatter):
    """`TIME LEVEL logger: message`; an exception in one line, at debug level with traceback."""

    def __init__(
        self, *, verbose: bool = False, short_time: bool = False, colours: bool = False
    ) -> None:
        super().__init__()
        self._verbose, self._short_time, self._colours = verbose, short_time, colours

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        name = record.name.removeprefix(_PACKAGE)
        message = f"{name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1]:
            message += f": {summarize_exception(record.exc_info[1])}"
        line = f"{self._time(record)} {self._level(record)} {one_line(message)}"
        if self._verbose and record.exc_info and record.exc_info[1]:
            line += "\n" + safe_text.lines(self.formatException(record.exc_info))
        return line

    def _time(self, record: logging.LogRecord) -> str:
        if self._short_time:
            return time.strftime("%H:%M:%S", time.localtime(record.created))
        return timestamp(record.created)

    def _level(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<7}"
        colour = _COLOURS.get(record.levelname, "") if self._colours else ""
        return f"\x1b[{colour}m{level}\x1b[0m" if colour else level


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message; exception and traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        entry = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1]:
            entry["exception"] = summarize_exception(record.exc_info[1])
            entry["traceback"] = self.formatException(record.exc_info)
        return json_text(entry)
