"""Pods from manifests, and the devices that a whole pod needs."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import ConfigError
from kubedevices.node.pods.pod import Container, Pod, format_pod, parse_pod, pod_device_request
from tests.golden_data import cases

R, S = "example.com/widget", "example.com/gadget"


def manifest(**resources: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }


# ---------------------------------------------------------------- manifests


def test_a_usual_manifest() -> None:
    """Init containers, sidecars and app containers, each with its devices."""
    pod = parse_pod(
        yaml.safe_load(
            """
            apiVersion: v1
            kind: Pod
            metadata: {name: train, namespace: lab, uid: 1234, labels: {a: b}}
            spec:
              initContainers:
              - name: fetch
                image: busybox
                resources: {limits: {example.com/widget: 3, cpu: 500m}}
              - name: proxy
                restartPolicy: Always
                resources: {limits: {example.com/widget: "1"}}
              containers:
              - name: main
                resources:
                  limits: {example.com/widget: 2000m, example.com/gadget: 1Ki, hugepages-2Mi: 4Mi}
                  requests: {example.com/widget: 2, memory: 1Gi}
              - name: idle
              restartPolicy: Never
            """.replace("uid: 1234", "uid: 'u-1'")
        )
    )
    assert pod == Pod(
        "train",
        "lab",
        "u-1",
        (Container("fetch", {R: 3}), Container("proxy", {R: 1}, is_sidecar=True)),
        (Container("main", {R: 2, S: 1024}), Container("idle")),
    )
    assert [container.name for container in pod] == ["fetch", "proxy", "main", "idle"]
    plain = [container.name for container in pod if pod.is_plain_init(container)]
    assert plain == ["fetch"]


def test_a_pod_without_a_uid_always_gets_the_same_uid() -> None:
    """The UID is namespace and name: hand-written manifests have no UID."""
    assert parse_pod(manifest()).uid == "default/p"
    assert parse_pod(manifest()) == parse_pod(manifest())
    assert Pod("p", "lab").uid == "lab/p"


def test_restart_policy_always_makes_a_sidecar_of_an_init_container_only() -> None:
    """An app container with `restartPolicy: Always` is no sidecar."""
    document = manifest()
    document["spec"]["containers"][0]["restartPolicy"] = "Always"
    document["spec"]["initContainers"] = [{"name": "once", "restartPolicy": "Never"}]
    pod = parse_pod(document)
    assert not pod.containers[0].is_sidecar
    assert not pod.init_containers[0].is_sidecar


MISTAKES: list[tuple[Any, str]] = [
    (None, "pod: a pod manifest must be a mapping, not None"),
    ([], "pod: a pod manifest must be a mapping, not a list"),
    ({"kind": "Deployment"}, "pod: kind: must be Pod, not 'Deployment'"),
    ({"apiVersion": "v2"}, "pod: apiVersion: must be v1, not 'v2'"),
    ({}, "pod: metadata.name: is missing"),
    ({"metadata": {"name": 7}}, 'pod: metadata.name: must be text, not 7 (write "7")'),
    ({"metadata": "p"}, "pod: metadata: must be a mapping, not 'p'"),
    ({"metadata": {"name": "p"}}, "pod: spec.containers: needs at least one container"),
    ({"metadata": {"name": "p"}, "spec": {"containers": {}}},
     "pod: spec.containers: must be a list, not a mapping"),
    ({"metadata": {"name": "p"}, "spec": {"containers": ["a"]}},
     "pod: spec.containers[0]: must be a mapping, not 'a'"),
    ({"metadata": {"name": "p"}, "spec": {"containers": [{}]}},
     "pod: spec.containers[0].name: is missing"),
    ({"metadata": {"name": "p"},
      "spec": {"initContainers": [{"name": "a"}], "containers": [{"name": "a"}]}},
     "pod: spec.containers[0].name: 'a' is taken by another container of the pod"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "message"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_an_error_in_a_manifest_names_its_key(document: Any, message: str) -> None:
    """The first line of the message has file, key and reason."""
    with pytest.raises(ConfigError) as caught:
        parse_pod(document)
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            {"limits": {"widget": 1}},
            (
                "pod: spec.containers[0].resources.limits.widget: is not a resource: "
                "it needs a domain and a slash, for example example.com/widget"
            ),
        ),
        (
            {"limits": {R: "many"}},
            f"pod: spec.containers[0].resources.limits.{R}: 'many' is not a quantity such as 2",
        ),
        (
            {"limits": {R: -1}},
            f"pod: spec.containers[0].resources.limits.{R}: -1 must not be negative",
        ),
        (
            {"requests": {R: 1}},
            (
                f"pod: spec.containers[0].resources.limits.{R}: must be set: devices are allocated "
                f"by limits, and cannot be overcommitted (limits: {R}: 1)"
            ),
        ),
        (
            {"limits": {R: 2}, "requests": {R: 1}},
            f"pod: spec.containers[0].resources.requests.{R}: must be equal to the limit, 2",
        ),
        (
            {"limits": [R]},
            "pod: spec.containers[0].resources.limits: must be a mapping, not a list",
        ),
    ],
)
def test_an_error_in_resources_names_its_key(resources: Any, message: str) -> None:
    """Limits and requests are checked as the API server does for extended resources."""
    with pytest.raises(ConfigError) as caught:
        parse_pod(manifest(**resources))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("spec", "key", "meant"),
    [
        ({"container": []}, "spec.container", "containers"),
        ({"initContainer": []}, "spec.initContainer", "initContainers"),
        (
            {"containers": [{"name": "c", "resource": {}}]},
            "spec.containers[0].resource",
            "resources",
        ),
        (
            {"containers": [{"name": "c", "resources": {"limit": {R: 1}}}]},
            "spec.containers[0].resources.limit",
            "limits",
        ),
        (
            {"initContainers": [{"name": "c", "resources": {R: 1}}]},
            f"spec.initContainers[0].resources.{R}",
            "",
        ),
    ],
)
def test_a_misspelt_key_is_an_error(spec: Any, key: str, meant: str) -> None:
    """Otherwise the pod would be admitted without its devices. An API server refuses it too."""
    with pytest.raises(ConfigError) as caught:
        parse_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "d"}]} | spec})
    hint = f" (did you mean '{meant}'?)" if meant else ""
    assert str(caught.value) == f"pod: {key}: unknown key{hint}"


def test_keys_without_a_relation_to_devices_are_ignored() -> None:
    """Also keys that are similar to ours."""
    container = {"name": "c", "resizePolicy": [], "restartPolicy": "Always", "resources": {}}
    container["resources"] = {"claims": [{"name": "gpu"}], "limits": {R: 1}}
    spec = {"ephemeralContainers": [], "containers": [container], "restartPolicy": "Never"}
    assert parse_pod({"metadata": {"name": "p"}, "spec": spec}).containers[0].limits == {R: 1}


def test_all_errors_are_reported_at_once_with_their_lines() -> None:
    """If the caller knows line numbers, each error has its own."""
    lines = {("spec", "containers", 0, "resources", "limits", "x"): (7, 9), ("kind",): (2, 1)}
    document = manifest(limits={"x": 1}) | {"kind": "Job"}
    with pytest.raises(ConfigError) as caught:
        parse_pod(document, source="p.yaml", locate=lambda path: lines.get(path, (0, 0)))
    assert [str(problem)[:13] for problem in caught.value.problems] == [
        "p.yaml:2:1: k",
        "p.yaml:7:9: s",
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["spec", "metadata", "name", "containers", "resources", "limits", R]
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_any_document_is_a_pod_or_a_config_error(document: Any) -> None:
    """No YAML document raises another exception than `ConfigError`."""
    try:
        pod = parse_pod(document)
    except ConfigError as error:
        problems = error.problems
        assert problems
    else:
        assert pod.containers


names = st.text("abc-", min_size=1, max_size=4)
limits = st.dictionaries(st.sampled_from([R, S]), st.integers(0, 5))


@given(
    st.lists(names, unique=True, min_size=1, max_size=6),
    st.data(),
)
def test_a_formatted_pod_is_parsed_to_the_same_pod(
    all_names: list[str], data: st.DataObject
) -> None:
    """`format_pod` and `parse_pod` are inverse."""
    split = data.draw(st.integers(0, len(all_names) - 1))
    init = tuple(
        Container(name, data.draw(limits), data.draw(st.booleans())) for name in all_names[:split]
    )
    app = tuple(Container(name, data.draw(limits)) for name in all_names[split:])
    pod = Pod(data.draw(names), data.draw(names), data.draw(names), init, app)
    assert parse_pod(format_pod(pod)) == pod


# ---------------------------------------------------------------- the whole pod


def golden_pod(case: Any) -> Pod:
    def containers(key: str) -> tuple[Container, ...]:
        return tuple(
            Container(each["name"], each["limits"], each.get("restart_always", False))
            for each in case[key]
        )

    return Pod("p", init_containers=containers("init"), containers=containers("containers"))


@pytest.mark.parametrize(("number", "case"), cases("pod_device_request"))
def test_the_request_of_a_pod_is_that_of_the_kubelet(number: int, case: Any) -> None:
    """Except for requests of zero devices, which we ignore: row 27 of the differences."""
    known = set(case["registered"])
    without_zero = {resource: count for resource, count in case["expected"].items() if count}
    assert pod_device_request(golden_pod(case), known.__contains__) == without_zero


@pytest.mark.parametrize(
    ("steps", "app", "request_of_pod"),
    [
        ("s2 i3", 1, 5),
        ("i3 s2", 1, 3),
        ("s1 s2 i4", 1, 7),
        ("s1 i4 s2", 3, 6),
        ("s1 s2", 1, 4),
        ("i1 s5", 0, 5),
    ],
)
def test_an_init_container_runs_beside_earlier_sidecars(
    steps: str, app: int, request_of_pod: int
) -> None:
    """Sidecars count from their start on, with later init containers and with the apps."""
    init = tuple(
        Container(f"c{n}", {R: int(step[1:])}, is_sidecar=step[0] == "s")
        for n, step in enumerate(steps.split())
    )
    pod = Pod("p", init_containers=init, containers=(Container("app", {R: app}),))
    assert pod_device_request(pod, lambda _: True) == {R: request_of_pod}


@pytest.mark.parametrize(
    ("init", "app", "request_of_pod"),
    [
        ([], [], 0),
        ([3], [], 3),
        ([3, 5, 2], [], 5),
        ([], [4], 4),
        ([4], [4], 4),
        ([5], [2, 2], 5),
        ([3], [2, 2], 4),
    ],
)
def test_the_larger_of_init_and_app_requests_counts(
    init: list[int], app: list[int], request_of_pod: int
) -> None:
    """GetPodDeviceRequest: the maximum of the init containers, or the sum of the others."""
    pod = Pod(
        "p",
        init_containers=tuple(Container(f"i{n}", {R: each}) for n, each in enumerate(init)),
        containers=tuple(Container(f"a{n}", {R: each}) for n, each in enumerate(app)),
    )
    found = pod_device_request(pod, lambda _: True)
    assert found == ({R: request_of_pod} if request_of_pod else {})


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"resources": {"limits": {R: 1}}}, f"spec.resources.limits.{R}"),
        ({"resources": {"requests": {R: 1}}}, f"spec.resources.requests.{R}"),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
    ],
)
def test_devices_that_no_container_would_get_are_refused(spec: Any, key: str) -> None:
    """Of the whole pod, or of a claim: the pod would be admitted without them."""
    document = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}
    with pytest.raises(ConfigError, match=re.escape(f"pod: {key}: ")):
        parse_pod(document)


def test_a_whole_pod_may_limit_processors_and_memory() -> None:
    """That is what the field is for (KEP-2837); an empty list of claims is none."""
    spec = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "resourceClaims": []}
    parse_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}})
