"""kubedevices.pages.metrics"""

import asyncio
import subprocess
import sys
import threading
from typing import Literal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubedevices.dra import driver_metrics
from kubedevices.pages import metrics, prometheus
from kubedevices.pages.metrics import NO_METRICS, Metric, Sample
from kubedevices.pages.prometheus import PrometheusMetrics
from tests.prometheus_lint import lint, read

ALL = [
    value for value in (vars(metrics) | vars(driver_metrics)).values() if isinstance(value, Metric)
]
ALL += [*metrics.POD_RESOURCES_BY_METHOD.values(), *metrics.POD_RESOURCES_ERRORS.values()]


def parsed(kept: PrometheusMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(kept.text().decode())
        for sample in family.samples
    }


def test_a_counter_counts_per_label() -> None:
    """Each combination of labels has a number of its own, under the name a kubelet uses."""
    kept = PrometheusMetrics()
    for resource in ("a.b/c", "a.b/c", "a.b/d"):
        kept.count(metrics.REGISTRATIONS, resource)
    name = "kubelet_device_plugin_registration_total"
    found = parsed(kept)
    assert found[name, (("resource_name", "a.b/c"),)] == 2
    assert found[name, (("resource_name", "a.b/d"),)] == 1


def test_a_metric_keeps_a_bounded_number_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come from peers: what is new beyond the limit is counted together, known ones go on."""
    monkeypatch.setattr(prometheus, "SERIES_LIMIT", 3)
    kept = PrometheusMetrics()
    for number in range(10):
        kept.count(metrics.REGISTRATIONS, f"a.b/{number}")
        kept.observe(metrics.ALLOCATION_SECONDS, 1, f"a.b/{number}")
    kept.count(metrics.REGISTRATIONS, "a.b/0")
    found = parsed(kept)
    name = metrics.REGISTRATIONS.name
    labels = [dict(labels)["resource_name"] for each, labels in found if each == name]
    assert sorted(labels) == ["a.b/0", "a.b/1", "a.b/2", "other"]
    assert found[name, (("resource_name", "other"),)] == 7
    assert found[name, (("resource_name", "a.b/0"),)] == 2
    counts = [each for each, _ in found if each == f"{metrics.ALLOCATION_SECONDS.name}_count"]
    assert len(counts) == 4


def test_a_counter_of_a_kubelet_without_total_keeps_its_name() -> None:
    """A counter without _total keeps its name, for which the library knows no type."""
    kept = PrometheusMetrics()
    kept.count(metrics.POD_RESOURCES_BY_METHOD["list"], "v1")
    name = "kubelet_pod_resources_endpoint_requests_list"
    assert f'\n{name}{{server_api_version="v1"}} 1.0\n' in kept.text().decode()
    assert f"# TYPE {name} untyped\n" in kept.text().decode()


def test_a_counter_can_exist_before_its_first_increase() -> None:
    """From 0 on, so that its first increase is seen."""
    kept = PrometheusMetrics([Sample(metrics.ADMISSIONS, ("rejected",), 0)])
    key = metrics.ADMISSIONS.name, (("result", "rejected"),)
    assert parsed(kept) == {key: 0}
    kept.count(metrics.ADMISSIONS, "rejected")
    assert parsed(kept) == {key: 1}


def test_any_text_can_be_a_label() -> None:
    """Quotes, backslashes and line ends arrive as they are; half a character spoils nothing."""
    kept = PrometheusMetrics()
    texts = ['say "x"', "back\\slash", "two\nlines", "\\n", "ü", ""]
    for text in texts:
        kept.count(metrics.REGISTRATIONS, text)
    assert [dict(labels)["resource_name"] for _, labels in parsed(kept)] == texts
    assert not lint(kept.text().decode())
    kept.count(metrics.REGISTRATIONS, "half \udcff")
    assert ("resource_name", "half ?") in {labels[0] for _, labels in parsed(kept)}


def test_a_series_of_two_sources_is_exported_once() -> None:
    """Twice would cost the whole scrape."""
    kept = PrometheusMetrics()
    kept.collect_from(lambda: [Sample(metrics.HELD, ("a.b/c",), 1)])
    kept.collect_from(lambda: [Sample(metrics.HELD, ("a.b/c",), 2)])
    assert kept.text().count(b"\nkubedevices_node_devices_held{") == 1


@pytest.mark.parametrize("metric", [metrics.ALLOCATION_SECONDS, metrics.TOPOLOGY_MILLISECONDS])
def test_a_histogram_has_its_buckets(metric: Metric) -> None:
    """Every upper bound is there, and values fall into the right ones."""
    kept = PrometheusMetrics()
    labels = tuple("a.b/c" for _ in metric.labels)
    kept.observe(metric, metric.buckets[1], *labels)
    buckets = {
        float(dict(named)["le"]): value
        for (name, named), value in parsed(kept).items()
        if name == f"{metric.name}_bucket"
    }
    assert tuple(buckets) == (*metric.buckets, float("inf"))
    assert [*buckets.values()] == [0, *[1] * len(metric.buckets)]
    told = {name: value for (name, _), value in parsed(kept).items()}
    assert told[f"{metric.name}_sum"] == metric.buckets[1]
    assert told[f"{metric.name}_count"] == 1


def test_values_are_stored_without_prometheus_client() -> None:
    """Only a scrape imports it: on a busy node an import took longer than a stop may take."""
    program = """\
import sys
from kubedevices.pages import metrics
from kubedevices.pages.prometheus import PrometheusMetrics
kept = PrometheusMetrics([metrics.Sample(metrics.SCAN_ERRORS, (), 0)])
kept.count(metrics.UPDATES, "a.b/c")
kept.observe(metrics.ALLOCATE_SECONDS, 0.1, "a.b/c")
kept.begin_histogram(metrics.ALLOCATE_SECONDS, "a.b/d")
print("prometheus_client" in sys.modules)
kept.text()
print("prometheus_client" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\nTrue\n"


def test_gauges_are_asked_for_at_every_scrape() -> None:
    """A gauge is what its source says now; what is gone is no longer exported."""
    kept, devices = PrometheusMetrics(), {"a.b/c": 3}
    kept.collect_from(lambda: [Sample(metrics.CAPACITY, (r,), n) for r, n in devices.items()])
    name = metrics.CAPACITY.name
    assert parsed(kept) == {(name, (("resource", "a.b/c"),)): 3}
    devices.clear()
    assert parsed(kept) == {}


KUBELETS_OWN = {
    metrics.TOPOLOGY_MILLISECONDS.name: "names should not contain abbreviated units",
}
"""Names of a kubelet that break a rule; tools know them by these names."""


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_metric_follows_the_conventions(metric: Metric) -> None:
    """Prometheus' linter has nothing to say, but for names that a kubelet gave away."""
    assert metric.help.endswith(".")
    assert (metric.kind == "histogram") == bool(metric.buckets)
    kept, labels = PrometheusMetrics(), ["x"] * len(metric.labels)
    if metric.kind == "histogram":
        kept.observe(metric, 1.0, *labels)
    else:
        kept.count(metric, *labels)
    expected = KUBELETS_OWN.get(metric.name)
    found = lint(kept.text().decode())
    assert expected is None or not metric.name.startswith("kubedevices_")
    if expected is None:
        assert not found
    else:
        assert f"{metric.name}: {expected}" in found


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [
        ("a_errors", "counter", 'should have "_total"'),
        ("a_total", "gauge", "only counters"),
        ("a_milliseconds", "gauge", "base units"),
        ("a_hours", "gauge", "base units"),
        ("a_ms", "gauge", "abbreviated"),
        ("a_count", "gauge", "reserved for histograms and summaries"),
        ("a_bucket", "gauge", "reserved for histograms"),
        ("a_gauge", "gauge", "its type"),
        ("a:b", "gauge", "':'"),
        ("aB", "gauge", "snake_case"),
    ],
)
def test_the_linter_lints(name: str, kind: Literal["counter", "gauge"], complaint: str) -> None:
    """One example per rule is found."""
    (found,) = lint(f"# HELP {name} Help.\n# TYPE {name} {kind}\n{name} 1\n")
    assert complaint in found
    assert lint('# HELP a \n# TYPE a gauge\na{le="1"} 1\n') == [
        "a: no help text",
        "a: label reserved for histograms and summaries",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a 1\n",
        "# HELP a b\n# TYPE a gauge\na 1",
        "# HELP a b\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a b\n# TYPE a gauge\na 1\n# HELP a b\n",
        "# HELP a b\n# TYPE a gauge\nb 1\n",
        "# HELP a b\n# TYPE a info\na 1\n",
        '# HELP a b\n# TYPE a gauge\na{x="1} 1\n',
        '# HELP a b\n# TYPE a gauge\na{x="\\q"} 1\n',
        "# HELP a b\n# TYPE a gauge\na one\n",
    ],
)
def test_the_linter_reads_by_the_grammar(text: str) -> None:
    """What Prometheus could not read is no page."""
    with pytest.raises((AssertionError, ValueError)):
        read(text)


OF_A_TARGET = {"job", "instance", "namespace", "pod", "container", "endpoint", "service", "node"}


@pytest.mark.parametrize(
    "metric",
    [each for each in ALL if each.name.startswith("kubedevices_")],
    ids=lambda metric: metric.name,
)
def test_no_label_is_one_that_prometheus_sets(metric: Metric) -> None:
    """It would rename ours to exported_pod, say, and queries would find the plugin's own pod."""
    assert not OF_A_TARGET & {*metric.labels}


def test_some_labels_are_on_every_series() -> None:
    """On counters, gauges and every part of a histogram; a strange value spoils nothing."""
    kept = PrometheusMetrics([Sample(metrics.SCAN_ERRORS, (), 0)], {"node": "n\udcff"})
    kept.collect_from(lambda: [Sample(metrics.REGISTERED, ("a.b/c",), 1)])
    kept.observe(metrics.ALLOCATE_SECONDS, 0.1, "a.b/c")
    found = [dict(labels) for _, labels in parsed(kept)]
    assert len(found) > 10
    assert {each["node"] for each in found} == {"n?"}
    assert not lint(kept.text().decode())


def test_no_name_is_used_twice() -> None:
    """Two metrics of one name would be added up by Prometheus."""
    names = [metric.name for metric in ALL]
    assert sorted(names) == sorted(set(names))


def test_no_metrics_keeps_nothing() -> None:
    """NO_METRICS takes everything and keeps nothing."""
    NO_METRICS.count(metrics.REGISTRATIONS, "a.b/c")
    NO_METRICS.observe(metrics.ALLOCATION_SECONDS, 1.0, "a.b/c")
    NO_METRICS.collect_from(list)
    assert not vars(NO_METRICS)


async def test_a_scrape_of_many_series_lets_other_tasks_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long list is copied in slices, and the text is written beside the event loop."""
    turns, writers = 0, []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    text = prometheus._Snapshot.text

    def noted(self: prometheus._Snapshot) -> bytes:
        writers.append(threading.current_thread())
        return text(self)

    monkeypatch.setattr(prometheus._Snapshot, "text", noted)
    kept = PrometheusMetrics()
    series = [Sample(metrics.HELD, (f"example.com/r{n}",), n) for n in range(20_000)]
    kept.collect_from(lambda: series)
    task = asyncio.create_task(other())
    page = await kept.page()
    task.cancel()
    assert page == kept.text()
    assert page.count(b"example.com/r") == len(series)
    assert turns > len(series) / prometheus.AT_ONCE
    assert writers[0] is not threading.main_thread()
