"""Numbers of the process itself, for every page of metrics: its version, its lost lines."""

from collections.abc import Iterator

from kubedevices.metrics import BUILD, DROPPED_LINES, Sample
from kubedevices.unblocked_output import dropped_lines
from kubedevices.version import VERSION


def process_samples() -> Iterator[Sample]:
    """Yield them as they are now."""
    yield Sample(BUILD, (VERSION,), 1)
    for stream, lines in dropped_lines().items():
        yield Sample(DROPPED_LINES, (stream,), lines)
