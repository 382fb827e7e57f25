"""The files that tell a container about the devices of its claim: DeviceMetadata (KEP-5304). Pure.

Each request of a claim has one file. The file is a stream of JSON objects, one for each version of
the format, the newest first; a reader uses the first version that it knows. Kubernetes 1.37 has
two versions with the same fields.
https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kubedevices.config.documents.json_text import read_json_stream
from kubedevices.dra.claims import Result
from kubedevices.dra.names import LABEL
from kubedevices.errors import ClaimRefused
from kubedevices.values.allocation import ClaimReference

_FILE_LIMIT = 2**24

CONTAINER_DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"
"""The directory in a container with the files of all its claims."""

API_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""The versions in a file, in this order. Readers of Kubernetes 1.36 know only v1alpha1."""

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""The annotation that Kubernetes adds to a claim that it created from a template."""


class ClaimNames(NamedTuple):
    """Names in a claim object that its metadata needs.

    `pod_claim` is the name that the pod gives to a claim created from a template; empty for other
    claims. `requests` has the text `request/subrequest` for each request with alternatives: the
    chosen subrequest.
    """

    pod_claim: str = ""
    requests: Mapping[str, str] = MappingProxyType({})


class RequestMetadata(NamedTuple):
    """The file of one request: its path in a container, and its text."""

    request: str
    container_path: str
    text: str


def names_of(found: Mapping[str, Any], claim: ClaimReference, driver: str) -> ClaimNames:
    """Return the names in a claim object of the API server.

    Raises `ClaimRefused` if the annotation is no DNS label: its value becomes a part of a path.
    """
    pod_claim = (found["metadata"].get("annotations") or {}).get(POD_CLAIM, "")
    if pod_claim and not LABEL.fullmatch(pod_claim):
        problem = f"its annotation {POD_CLAIM} is {pod_claim!r}, which is no valid claim name"
        raise ClaimRefused(str(claim), problem)
    requests = {
        each["request"].partition("/")[0]: each["request"]
        for each in found["status"]["allocation"].get("devices", {}).get("results", [])
        if each["driver"] == driver and "/" in each["request"]
    }
    return ClaimNames(pod_claim, requests)


def names_in_files(files: Iterable[RequestMetadata]) -> ClaimNames | None:
    """Return the names from stored files of a claim.

    None if the claim has no files, and if a file has no version that we know: a newer driver may
    have written it.
    """
    documents: dict[str, Mapping[str, Any]] = {}
    for each in files:
        document = _first_known(each.text)
        if document is None:
            return None
        documents[each.request] = document
    if not documents:
        return None
    pod_claims = [each.get("podClaimName", "") for each in documents.values()]
    names = {request: each["requests"][0]["name"] for request, each in documents.items()}
    return ClaimNames(
        pod_claims[0], {request: name for request, name in names.items() if name != request}
    )


def _first_known(text: str) -> Mapping[str, Any] | None:
    for each in read_json_stream(text, limit=_FILE_LIMIT):
        if isinstance(each, dict) and each.get("apiVersion") in API_VERSIONS:
            return each
    return None


def metadata_of(
    driver: str,
    claim: ClaimReference,
    names: ClaimNames,
    results: Iterable[Result],
    attributes: Mapping[str, Mapping[str, Any]],
) -> tuple[RequestMetadata, ...]:
    """Return the file of each request; `attributes` are the device attributes in the slices, by
    label."""
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
            f"{CONTAINER_DIRECTORY}/{place}/{request}/{driver}-metadata.json",
            _text_of(claim, names, request, found),
        )
        for request, found in devices.items()
    )


def _text_of(
    claim: ClaimReference, names: ClaimNames, request: str, devices: list[dict[str, Any]]
) -> str:
    document: dict[str, Any] = {
        # The generation never grows: a prepared claim keeps its files until its containers have
        # ended, so no container sees two contents of its file.
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
    return "".join(
        json.dumps({"kind": "DeviceMetadata", "apiVersion": version} | document, indent=2) + "\n"
        for version in API_VERSIONS
    )
