"""Errors of a plugin author's code: the line that raised, and tracebacks without our frames.

For messages about scanners and hooks: our code calls them, but somebody else wrote them.
"""

import logging
import traceback
from pathlib import Path
from types import TracebackType

from kubedevices.errors import KubedevicesError

_OURS = str(Path(__file__).parents[1]) + "/"
_STANDARD_LIBRARY = str(Path(traceback.__file__).parent) + "/"
_LIBRARIES = ("/site-packages/", "/dist-packages/")

_log = logging.getLogger(__name__)


def place_of(error: BaseException) -> str:
    """Return `widgets.py:12`, the innermost line of the author's code, or an empty string.

    The author's code is neither ours nor Python's own. Code of an installed library counts only if
    the traceback has no other lines of the author.
    """
    places = [
        (frame.filename, f"{Path(frame.filename).name}:{frame.lineno}")
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not _is_ours(frame.filename)
    ]
    libraries = [place for file, place in places if any(part in file for part in _LIBRARIES)]
    own = [
        place
        for file, place in places
        if place not in libraries and not file.startswith(_STANDARD_LIBRARY)
    ]
    return (own or libraries or [""])[-1]


def describe(error: BaseException) -> str:
    """Return `ValueError: text (widgets.py:12)`; for our own errors without the class."""
    text = str(error)
    if not isinstance(error, KubedevicesError):
        text = ": ".join(filter(None, (type(error).__name__, " ".join(text.split()))))
    place = place_of(error)
    return f"{text} ({place})" if place else text


def without_our_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of `error` from the author's first line on; without one, all of it.

    The lines before only show how our code called the author's code.
    """
    here = error.__traceback__
    while here is not None and _is_ours(here.tb_frame.f_code.co_filename):
        here = here.tb_next
    return here or error.__traceback__


def forget_our_frames(error: BaseException) -> None:
    """Remove our frames from an error that we raise in an author's test, and from its causes.

    An error that is no `KubedevicesError` and has no frame of the author is a bug of ours: it keeps
    its frames. At debug level the log has all frames.
    """
    _log.debug("this led to the error of the test", exc_info=error)
    seen: set[int] = set()
    here: BaseException | None = error
    while here is not None and id(here) not in seen:
        seen.add(id(here))
        if isinstance(here, KubedevicesError) and not place_of(here):
            here.__traceback__ = None
        else:
            here.__traceback__ = without_our_frames(here)
        here = here.__cause__ or here.__context__


def _is_ours(file: str) -> bool:
    return file.startswith(_OURS)
