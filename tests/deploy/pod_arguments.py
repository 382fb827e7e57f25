"""What a kubelet makes of a pod, in podman's words: so that tests run what the manifests say."""

from collections.abc import Mapping
from typing import Any

from kubedevices.manifests.deployment import STATE_DIR

NODE_NAME = "node-1"
SAID = {"name", "image", "args", "env", "securityContext", "volumeMounts"}
ELSEWHERE = {
    "ports",
    "resources",
    "readinessProbe",
    "livenessProbe",
    "terminationMessagePolicy",
}
"""What podman is not told: the only network is the container's own, and tests ask its pages."""


def podman_arguments(pod: Mapping[str, Any], host: Mapping[str, object]) -> list[str]:
    """Return options, image and arguments for `podman run` of the pod's only container.

    `host` says what stands for the host's paths and, by `configMap`, for the mounted ConfigMap. The
    state directory may be left out.
    The container has no network but its own loopback: nothing needs more.
    """
    (container,) = pod["containers"]
    assert container.keys() == SAID | ELSEWHERE  # a new key has to be said, too
    rights, security = container["securityContext"], pod["securityContext"]
    assert not rights["privileged"]
    assert security["seccompProfile"]["type"] == "RuntimeDefault"  # podman's too, if not told
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
            continue  # no device was ever cordoned, and the container finds no directory
        mode = "ro" if mount.get("readOnly") else "rw"
        options.append(f"--volume={host[path]}:{mount['mountPath']}:{mode}")
    return [*options, container["image"], *container["args"]]
