"""The rights of a DRA driver in a cluster, and the DeviceClasses of its devices. Pure.

These objects have no namespace. Their names contain the namespace of the driver, because drivers in
two namespaces may have the same name.
"""

import re
from hashlib import sha256
from typing import Any

from kubedevices.manifests.deployment import Deployment, kube_object, metadata

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io/v1"
DRA = "resource.k8s.io"
OF_NAMESPACE = "kubedevices-namespace"
"""Label of an object without a namespace: the namespace of the driver to which it belongs."""

NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""The key under which the API server gives the node of the pod that has a token."""

RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "watch"]},
    {"apiGroups": [DRA], "resources": ["resourceclaims"], "verbs": ["get", "list"]},
    {
        "apiGroups": [DRA],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "update", "delete"],
    },
]
"""All rights of a driver; docs/dra-operate.md lists the same."""

_NAME_LIMIT = 253
_NOT_IN_NAME = re.compile("[^a-z0-9.-]+")


def cluster_objects(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the objects without a namespace, in the order to apply them.

    A device plugin has none.
    """
    if not deployment.has_dra:
        return []
    return [
        cluster_role(deployment),
        cluster_role_binding(deployment),
        admission_policy(deployment),
        admission_policy_binding(deployment),
        *device_classes(deployment),
    ]


def cluster_role(deployment: Deployment) -> dict[str, Any]:
    """Return the role with the rights of the driver."""
    return kube_object(f"{RBAC}/v1", "ClusterRole", cluster_metadata(deployment), rules=RULES)


def cluster_role_binding(deployment: Deployment) -> dict[str, Any]:
    """Return the binding that gives the role to the driver's account."""
    name, namespace = deployment.name, deployment.namespace
    return kube_object(
        f"{RBAC}/v1",
        "ClusterRoleBinding",
        cluster_metadata(deployment),
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": _cluster_name(deployment)},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    )


def admission_policy(deployment: Deployment) -> dict[str, Any]:
    """Return a policy by which a pod of the driver writes only slices of its node and its driver.

    RBAC cannot limit rights to a node. Without the policy, an attacker on one node could offer
    devices on all nodes.
    """
    account = f"system:serviceaccount:{deployment.namespace}:{deployment.name}"
    rule = {
        "apiGroups": [DRA],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
    }
    its_slice = '(request.operation == "DELETE" ? oldObject : object).spec'
    validations = [
        {
            "expression": 'variables.node != ""',
            "message": "the token of this account belongs to no pod on a node",
        },
        {
            "expression": f'variables.node == {its_slice}.?nodeName.orValue("")',
            "messageExpression": '"this account may write slices of the node " + variables.node '
            '+ " only, where its pod runs"',
        },
        {
            "expression": f'{its_slice}.driver == "{deployment.domain}"',
            "message": f"this account may write slices of the driver {deployment.domain} only",
        },
    ]
    node = f'request.userInfo.?extra[?"{NODE_OF_TOKEN}"][0].orValue("")'
    condition = {"name": "driver", "expression": f'request.userInfo.username == "{account}"'}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [condition],
        "variables": [{"name": "node", "expression": node}],
        # By default the API server answers 422 Invalid, as for a mistake in the slice.
        "validations": [{**each, "reason": "Forbidden"} for each in validations],
    }
    about = cluster_metadata(deployment)
    return kube_object(ADMISSION, "ValidatingAdmissionPolicy", about, spec=spec)


def admission_policy_binding(deployment: Deployment) -> dict[str, Any]:
    """Return the binding that puts the policy into force."""
    spec = {"policyName": _cluster_name(deployment), "validationActions": ["Deny"]}
    about = cluster_metadata(deployment)
    return kube_object(ADMISSION, "ValidatingAdmissionPolicyBinding", about, spec=spec)


def device_classes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return a class for each device type, with the resource name for `limits:` of pods."""
    return [_device_class(deployment, each) for each in deployment.device_types]


def _device_class(deployment: Deployment, device_type: str) -> dict[str, Any]:
    domain = deployment.domain
    expression = (
        f'device.driver == "{domain}" && device.attributes["{domain}"].type == "{device_type}"'
    )
    extended = extended_resource_name(deployment.extended_resource_name, domain, device_type)
    about = cluster_metadata(deployment) | {"name": class_name(domain, device_type)}
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return kube_object(f"{DRA}/v1", "DeviceClass", about, spec=spec)


def extended_resource_name(pattern: str, domain: str, device_type: str) -> str:
    """Return the name that `pattern` gives a device type, such as example.com/gpu."""
    return pattern.replace("{domain}", domain).replace("{type}", device_type)


def class_name(domain: str, device_type: str) -> str:
    """Return the name of the class of a device type, such as gpu.example.com.

    A type with characters that the name cannot have gets a hash, so that two types do not collide.
    """
    clean = _NOT_IN_NAME.sub("-", device_type.lower()).strip("-.")
    if clean != device_type:
        tail = sha256(device_type.encode()).hexdigest()[:8]
        clean = f"{clean}-{tail}" if clean else tail
    return f"{clean}.{domain}"[:_NAME_LIMIT]


def _cluster_name(deployment: Deployment) -> str:
    return f"{deployment.namespace}.{deployment.name}"


def cluster_metadata(deployment: Deployment) -> dict[str, Any]:
    """Return name and labels of an object without a namespace."""
    found = metadata(deployment, **{OF_NAMESPACE: deployment.namespace})
    del found["namespace"]
    return found | {"name": _cluster_name(deployment)}
