"""Stores the values of metrics and writes the text of a scrape, with prometheus-client.

The first scrape imports prometheus-client.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from kubedevices.pages.metrics import OTHER, SERIES_LIMIT, Collect, Metric, Metrics, Sample

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

AT_ONCE = 500
"""So many samples of a long list are copied in one turn of the event loop."""

_Series = tuple[Metric, tuple[str, ...]]


class _Histogram:
    """The values of one series: the number per bucket; the last bucket is above all bounds."""

    __slots__ = ("counts", "total")

    def __init__(self, metric: Metric) -> None:
        self.counts = [0] * (len(metric.buckets) + 1)
        self.total = 0.0


class PrometheusMetrics(Metrics):
    """Stores every value for a scrape; prometheus-client writes the text.

    `beginnings` are counters that exist from the start: Prometheus does not see the first increase
    of a counter that appears with this increase. `everywhere` are labels of every series.
    """

    def __init__(
        self, beginnings: Iterable[Sample] = (), everywhere: Mapping[str, str] | None = None
    ) -> None:
        self._everywhere = {name: _encodable(value) for name, value in (everywhere or {}).items()}
        self._counts = {(each.metric, each.labels): each.value for each in beginnings}
        self._histograms: dict[tuple[Metric, tuple[str, ...]], _Histogram] = {}
        self._series: dict[Metric, set[tuple[str, ...]]] = {}
        self._sources: list[Collect] = []

    def count(self, metric: Metric, *labels: str) -> None:
        """Add one to a counter."""
        labels = self._limited(metric, labels)
        self._counts[metric, labels] = self._counts.get((metric, labels), 0) + 1

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        histogram = self._histogram(metric, labels)
        histogram.counts[bisect_left(metric.buckets, value)] += 1
        histogram.total += value

    def begin_histogram(self, metric: Metric, *labels: str) -> None:
        """Export a histogram even before its first value."""
        self._histogram(metric, labels)

    def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> _Histogram:
        series = metric, self._limited(metric, labels)
        if series not in self._histograms:
            self._histograms[series] = _Histogram(metric)
        return self._histograms[series]

    def _limited(self, metric: Metric, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return `labels`; for a new series above `SERIES_LIMIT`, return only `OTHER`."""
        known = self._series.setdefault(metric, set())
        if labels not in known:
            if len(known) >= SERIES_LIMIT:
                return (OTHER,) * len(labels)
            known.add(labels)
        return labels

    def collect_from(self, collect: Collect) -> None:
        """Call `collect` for gauges at every scrape."""
        self._sources.append(collect)

    def text(self) -> bytes:
        """Return every metric in the text format of Prometheus, sorted by name."""
        collected = (sample for collect in self._sources for sample in collect())
        return self._snapshot(collected).text()

    async def page(self) -> bytes:
        """Return `text`, made beside other tasks: 20,000 devices with a holder are as many series.

        Values are collected in slices, and a thread writes the text of a copy of them.
        """
        collected: list[Sample] = []
        for collect in self._sources:
            # A source that yields few samples reads what changes, so in one turn. Only a list that
            # exists already is long.
            samples = collect()
            whole = samples if isinstance(samples, list) else [*samples]
            for start in range(0, len(whole), AT_ONCE):
                collected += whole[start : start + AT_ONCE]
                await asyncio.sleep(0)
        return await asyncio.to_thread(self._snapshot(collected).text)

    def _snapshot(self, collected: Iterable[Sample]) -> "_Snapshot":
        histograms = {
            series: ((*each.counts,), each.total) for series, each in self._histograms.items()
        }
        return _Snapshot(self._counts.copy(), histograms, [*collected], self._everywhere)


class _Snapshot(NamedTuple):
    """All values at one time, for a thread: nobody changes them any more."""

    counts: Mapping[_Series, float]
    histograms: Mapping[_Series, tuple[tuple[int, ...], float]]
    collected: Sequence[Sample]
    everywhere: Mapping[str, str]

    def text(self) -> bytes:
        """Return the text for a scrape."""
        from prometheus_client import generate_latest  # noqa: PLC0415 - see the docstring above

        return generate_latest(self)

    def collect(self) -> Iterator["Family"]:
        """Yield every metric, sorted by name: the interface of a collector of prometheus-client."""
        # By labels: Prometheus rejects the whole scrape if a series is in it twice.
        values = {(sample.metric, sample.labels): sample.value for sample in self.collected}
        families: dict[Metric, Family] = {}

        def add(
            metric: Metric, labels: tuple[str, ...], value: float, part: str = "", **le: str
        ) -> None:
            named = dict(zip(metric.labels, map(_encodable, labels), strict=True))
            if metric not in families:
                families[metric] = _family(metric)
            name = metric.name + part
            families[metric].add_sample(name, {**self.everywhere, **named, **le}, value)

        for (metric, labels), (by_bucket, total) in self.histograms.items():
            counts = [*accumulate(by_bucket)]
            bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
            for bound, count in zip(bounds, counts, strict=True):
                add(metric, labels, count, "_bucket", le=bound)
            add(metric, labels, counts[-1], "_count")
            add(metric, labels, total, "_sum")
        for (metric, labels), value in {**self.counts, **values}.items():
            add(metric, labels, value)
        for _, family in sorted(families.items(), key=lambda each: each[0].name):
            yield family


def _family(metric: Metric) -> "Family":
    from prometheus_client.metrics_core import Metric as Family  # noqa: PLC0415 - see the docstring above

    if metric.kind != "counter":
        return Family(metric.name, metric.help, metric.kind)
    # Some counters of a kubelet have names that do not end in _total. prometheus-client does not
    # write such a counter, so these keep their names and get the type "unknown".
    name = metric.name.removesuffix("_total")
    return Family(name, metric.help, "unknown" if name == metric.name else "counter")


def _encodable(label: str) -> str:
    """Return a text that UTF-8 can encode: a lone surrogate would make the whole scrape fail."""
    return label.encode(errors="replace").decode()
