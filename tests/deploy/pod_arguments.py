"""Translates a pod into arguments of podman, so that tests run the pods of the manifests."""

from collections.abc import Mapping
from typing import Any

from kubedevices.manifests.deployment import STATE_DIR

NODE_NAME = "node-1"
TRANSLATED = {"name", "image", "args", "env", "securityContext", "volumeMounts"}
IGNORED = {
    "ports",
    "resources",
    "readinessProbe",
    "livenessProbe",
    "terminationMessagePolicy",
}
"""Keys that podman does not get: the container has only a loopback network, and tests act as
probes.
"""


def podman_arguments(pod: Mapping[str, Any], host: Mapping[str, object]) -> list[str]:
    """Return options, image and arguments for `podman run` of the pod's only container.

    `host` maps the host paths of the pod to directories of the test; the key `configMap` is for the
    mounted ConfigMap. The state directory may be missing. The container has no network.
    """
    (container,) = pod["containers"]
    assert container.keys() == TRANSLATED | IGNORED  # a new key must be in one of the two sets
    rights, security = container["securityContext"], pod["securityContext"]
    assert not rights["privileged"]
    assert security["seccompProfile"]["type"] == "RuntimeDefault"  # podman's default, too
    options = [f"--user={security['runAsUser']}:{security['runAsGroup']}", "--network=none"]
    if rights["readOnlyRootFilesystem"]:
        options += ["--read-only", "--read-only-tmpfs=false"]
    if not rights["allowPrivilegeEscalation"]:
        options.append("--security-opt=no-new-privileges")
    options += [f"--cap-drop={name}" for name in rights["capabilities"]["drop"]]
    options += [f"--env={each['name']}={each.get('value', NODE_NAME)}" for each in container["env"]]
    volumes = {each["name"]: each for each in pod["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        path = volume["hostPath"]["path"] if "hostPath" in volume else "configMap"
        if path == STATE_DIR and path not in host:
            continue  # no device was cordoned: the pod runs without the directory
        mode = "ro" if mount.get("readOnly") else "rw"
        options.append(f"--volume={host[path]}:{mount['mountPath']}:{mode}")
    return [*options, container["image"], *container["args"]]
