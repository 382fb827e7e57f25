"""Checks the answers of an API server before the driver uses them. Pure.

An API server, or a proxy before it, may send anything. An answer of another shape counts as a
refusal: the driver logs it and asks again.
"""

import math
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from kubedevices.config.documents.json_text import read_json
from kubedevices.config.documents.shape import Shape, fit
from kubedevices.dra.secret import Secret
from kubedevices.errors import ApiRefused, NotJson, WrongShape

LONGEST_WAIT = 60.0
"""Seconds. A longer `Retry-After` counts as this."""

VALUE_LIMIT = 1_000_000
"""Values of an answer. A slice of 128 devices with five attributes each has 2,000."""

_TEXT_LIMIT = 500

ANY_OBJECT: Shape = {}
NODE: Shape = {"metadata!": {"uid!": str, "labels": dict}}
SLICE: Shape = {
    "metadata!": {
        "name!": str,
        "uid!": str,
        "resourceVersion!": str,
        "ownerReferences": [{"uid": str}],
    },
    "spec!": {
        "pool!": {"name!": str, "generation!": int, "resourceSliceCount!": int},
        "devices": [
            {
                "name!": str,
                "taints": [{"key!": str, "effect!": str, "value": str, "timeAdded": str}],
            }
        ],
    },
}
SLICES: Shape = {"metadata!": {"resourceVersion!": str}, "items": [SLICE]}
CLAIM: Shape = {
    "metadata!": {"uid!": str, "annotations": dict},
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request!": str,
                        "pool!": str,
                        "device!": str,
                        "driver!": str,
                        "shareID": str,
                        "adminAccess": bool,
                    }
                ],
                "config": [
                    {
                        "source": str,
                        "requests": [str],
                        "opaque": {"driver": str, "parameters": dict},
                    }
                ],
            }
        }
    },
}
CLAIMS: Shape = {"metadata": {"continue": str}, "items": [CLAIM]}


def read_answer(
    data: bytes, shape: Shape, what: str, token: Secret, *, limit: int
) -> dict[str, Any]:
    """Return the object in an answer to the call `what`; raises `ApiRefused` with status 0.

    No text of an error contains `token`.
    """
    try:
        found = read_json(data, limit=limit, values=VALUE_LIMIT)
    except NotJson as error:
        problem = f"the answer is not JSON: {readable(token.hide_in(str(error)))}"
    else:
        try:
            fitting: dict[str, Any] = fit(found, shape, "the answer")
        except WrongShape as error:
            problem = token.hide_in(str(error))
        else:
            return fitting
    raise ApiRefused(what, 0, "", problem)


def read_refusal(data: bytes, token: Secret, *, limit: int) -> tuple[str, str]:
    """Return reason and message of the `Status` object of a refusal, or the text of `data`.

    Neither contains `token`. It is hidden before a text is cut: else its first part would stay.
    """
    try:
        status = read_json(data, limit=limit)
        texts = str(status.get("reason", "")), str(status.get("message", ""))
    except (NotJson, AttributeError):
        texts = "", data.decode(errors="replace")
    reason, message = (readable(token.hide_in(text)) for text in texts)
    return reason, message


def readable(text: str) -> str:
    """Return a text of the server as one line of at most 500 characters, for a log."""
    line = "".join(each if each.isprintable() else " " for each in text[: 4 * _TEXT_LIMIT])
    line = " ".join(line.split())
    return line if len(line) <= _TEXT_LIMIT else f"{line[:_TEXT_LIMIT]}…"


def seconds_to_wait(retry_after: bytes, now: float) -> float | None:
    """Return the value of the header Retry-After in seconds: 0 to 60, or None if it has no meaning.

    It is a number of seconds or a date (RFC 9110, 10.2.3). `now` is in seconds since 1970.
    """
    text = retry_after.decode("latin-1").strip()
    try:
        wait = float(text)
    except ValueError:
        try:
            date = parsedate_to_datetime(text)
            wait = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(wait) else min(max(wait, 0.0), LONGEST_WAIT)
