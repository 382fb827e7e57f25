"""Where in a plugin author's own code something went wrong, and tracebacks without our frames.

For messages about scanners and hooks, which are somebody else's code called by ours.
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
    """Return `widgets.py:12`, the innermost line of the author's, or an empty string.

    The author's is what is neither ours nor Python's; a library that is installed counts only where
    nothing else is there.
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
    """Return `ValueError: text (widgets.py:12)`; of our own errors the text says enough."""
    text = str(error)
    if not isinstance(error, KubedevicesError):
        text = ": ".join(filter(None, (type(error).__name__, " ".join(text.split()))))
    place = place_of(error)
    return f"{text} ({place})" if place else text


def without_our_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of `error` from the author's first line on; all of it if there is none.

    What comes before is how we called it.
    """
    here = error.__traceback__
    while here is not None and _is_ours(here.tb_frame.f_code.co_filename):
        here = here.tb_next
    return here or error.__traceback__


def forget_our_frames(error: BaseException) -> None:
    """Take our frames out of an error that we raise to an author's test, and out of its causes.

    What is no `KubedevicesError`, and never was in the author's code, is a bug of ours and keeps
    its own. At debug level the log has everything.
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
