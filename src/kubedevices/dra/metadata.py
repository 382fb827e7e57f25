"""What a container may read about the devices of its claim: DeviceMetadata (KEP-5304). Pure.

One file per request of a claim. It is a stream of JSON objects, one per version of the format, so
that a reader takes the first that it knows; Kubernetes 1.36 has one version.
https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kubedevices.allocation import ClaimReference
from kubedevices.dra.claims import Result
from kubedevices.dra.names import LABEL
from kubedevices.errors import ClaimRefused

DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"
"""Where a container finds the files of all its claims."""

API_VERSION = "metadata.resource.k8s.io/v1alpha1"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""The annotation that Kubernetes gives to a claim that it made from a template."""


class ClaimNames(NamedTuple):
    """What the pod calls a claim made from a template; the chosen subrequest of each request.

    `pod_claim` is empty for a claim that was not made from a template. `requests` has the text
    `request/subrequest` for each request with alternatives.
    """

    pod_claim: str = ""
    requests: Mapping[str, str] = MappingProxyType({})


class RequestMetadata(NamedTuple):
    """The file of one request: where a container finds it, and its text."""

    request: str
    container_path: str
    text: str


def names_of(found: Mapping[str, Any], claim: ClaimReference, driver: str) -> ClaimNames:
    """Return the names in a claim object of the API server.

    Raises `ClaimRefused` for an annotation that is not a name: it becomes part of a path.
    """
    pod_claim = (found["metadata"].get("annotations") or {}).get(POD_CLAIM, "")
    if pod_claim and not LABEL.fullmatch(pod_claim):
        problem = f"its annotation {POD_CLAIM} is {pod_claim!r}, which no pod can call a claim"
        raise ClaimRefused(str(claim), problem)
    requests = {
        each["request"].partition("/")[0]: each["request"]
        for each in found["status"]["allocation"].get("devices", {}).get("results", [])
        if each["driver"] == driver and "/" in each["request"]
    }
    return ClaimNames(pod_claim, requests)


def names_known(files: Iterable[RequestMetadata]) -> ClaimNames | None:
    """Return the names that earlier files of a claim have; None if there are no files."""
    documents = {each.request: json.loads(each.text) for each in files}
    if not documents:
        return None
    pod_claims = [each.get("podClaimName", "") for each in documents.values()]
    names = {request: each["requests"][0]["name"] for request, each in documents.items()}
    return ClaimNames(
        pod_claims[0], {request: name for request, name in names.items() if name != request}
    )


def metadata_of(
    driver: str,
    claim: ClaimReference,
    names: ClaimNames,
    results: Iterable[Result],
    attributes: Mapping[str, Mapping[str, Any]],
) -> tuple[RequestMetadata, ...]:
    """Return the file of each request; `attributes` are those in the slices, by device label."""
    devices: dict[str, list[dict[str, Any]]] = {}
    for each in results:
        device = {"driver": driver, "pool": each.pool, "name": each.device}
        devices.setdefault(each.request, []).append(
            device | {"attributes": dict(attributes[each.device])}
        )
    place = f"resourceclaims/{claim.name}"
    if names.pod_claim:
        place = f"resourceclaimtemplates/{names.pod_claim}"
    return tuple(
        RequestMetadata(
            request,
            f"{DIRECTORY}/{place}/{request}/{driver}-metadata.json",
            _text_of(claim, names, request, found),
        )
        for request, found in devices.items()
    )


def _text_of(
    claim: ClaimReference, names: ClaimNames, request: str, devices: list[dict[str, Any]]
) -> str:
    document: dict[str, Any] = {
        "kind": "DeviceMetadata",
        "apiVersion": API_VERSION,
        # The generation would grow if a container could see two contents of its file. It cannot:
        # a prepared claim keeps its files until its containers have ended.
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": 1,
        },
    }
    if names.pod_claim:
        document["podClaimName"] = names.pod_claim
    document["requests"] = [{"name": names.requests.get(request, request), "devices": devices}]
    return json.dumps(document, indent=2) + "\n"
