"""Metrics of the process itself, for every metrics page: its version and its dropped lines."""

from collections.abc import Iterator

from kubedevices.host.unblocked_output import dropped_lines
from kubedevices.pages.metrics import BUILD, DROPPED_LINES, Sample
from kubedevices.version import VERSION


def process_samples() -> Iterator[Sample]:
    """Yield the present values."""
    yield Sample(BUILD, (VERSION,), 1)
    for stream, lines in dropped_lines().items():
        yield Sample(DROPPED_LINES, (stream,), lines)
