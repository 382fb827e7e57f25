"""kubedevices.metrics"""

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubedevices import metrics
from kubedevices.metrics import NO_METRICS, Metric, PrometheusMetrics, Sample

ALL = [value for value in vars(metrics).values() if isinstance(value, Metric)]
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


def test_a_kubelets_odd_counter_keeps_its_name() -> None:
    """A counter without _total is exported under exactly its name."""
    kept = PrometheusMetrics()
    kept.count(metrics.POD_RESOURCES_BY_METHOD["list"], "v1")
    name = "kubelet_pod_resources_endpoint_requests_list"
    assert parsed(kept) == {(name, (("server_api_version", "v1"),)): 1}


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
    assert [*buckets.values()][:2] == [0, 1]


def test_gauges_are_asked_for_at_every_scrape() -> None:
    """A gauge is what its source says now; what is gone is no longer exported."""
    kept, devices = PrometheusMetrics(), {"a.b/c": 3}
    kept.collect_from(lambda: [Sample(metrics.CAPACITY, (r,), n) for r, n in devices.items()])
    name = metrics.CAPACITY.name
    assert parsed(kept) == {(name, (("resource", "a.b/c"),)): 3}
    devices.clear()
    assert parsed(kept) == {}


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    """Ours have our prefix, _total on counters only, base units; each says what it is."""
    assert metric.help.endswith(".")
    assert (metric.kind == "histogram") == bool(metric.buckets)
    if metric.name.startswith("kubedevices_"):
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not metric.name.endswith(("_ms", "_milliseconds"))


def test_no_name_is_used_twice() -> None:
    """Two metrics of one name would be added up by Prometheus."""
    names = [metric.name for metric in ALL]
    assert sorted(names) == sorted(set(names))


def test_nothing_is_loaded_where_nobody_asked() -> None:
    """Counting into NO_METRICS never imports prometheus-client."""
    NO_METRICS.count(metrics.REGISTRATIONS, "a.b/c")
    NO_METRICS.observe(metrics.ALLOCATION_SECONDS, 1.0, "a.b/c")
    NO_METRICS.collect_from(list)
    program = "import kubedevices.metrics, sys; assert 'prometheus_client' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
