"""The object that OpenShift needs in addition to the manifests. Pure."""

from typing import Any

from kubedevices.manifests.deployment import Deployment


def security_context_constraints(deployment: Deployment) -> dict[str, Any]:
    """Return SecurityContextConstraints that permit hostPath volumes and user 0.

    Further rights only if the values of the admin ask for them, for health checks.
    """
    has_more = deployment.admin.privileged or "SYS_ADMIN" in deployment.admin.capabilities
    account = f"system:serviceaccount:{deployment.namespace}:{deployment.name}"
    return {
        "apiVersion": "security.openshift.io/v1",
        "kind": "SecurityContextConstraints",
        "metadata": {"name": deployment.name},
        "allowHostDirVolumePlugin": True,
        "allowHostIPC": False,
        "allowHostNetwork": False,
        "allowHostPID": False,
        "allowHostPorts": False,
        "allowPrivilegedContainer": deployment.admin.privileged,
        "allowPrivilegeEscalation": has_more,
        "readOnlyRootFilesystem": True,
        "priority": None,
        "allowedCapabilities": [*deployment.admin.capabilities] or None,
        "defaultAddCapabilities": None,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": {"type": "RunAsAny"},
        "seLinuxContext": {"type": "RunAsAny"},
        "seccompProfiles": ["runtime/default"],
        "fsGroup": {"type": "RunAsAny"},
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [account],
        # Kubernetes mounts the token of a driver as a projected volume.
        "volumes": ["configMap", "hostPath", *(["projected"] if deployment.has_dra else [])],
    }
