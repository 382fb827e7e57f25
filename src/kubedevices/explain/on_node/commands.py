"""Shell commands for the advice of a finding: about a process in a pod or on the host, a claim."""

from kubedevices.errors.safe_text import shell_line
from kubedevices.explain.on_node.facts import ProcessFacts

FIND_PODS = "kubectl get pods --all-namespaces --field-selector spec.nodeName=NODE"


def log_of(process: ProcessFacts | None) -> str:
    """Return the command that shows the log of a process; empty if its pod's name is not known."""
    return _about(process, "kubectl logs {pod}{container}")


def restart_of(process: ProcessFacts | None) -> str:
    """Return the command that deletes the pod, so that its controller creates it again.

    For a process on the host, the command shows the systemd unit.
    """
    return _about(process, "kubectl delete pod {pod}")


def events_of(process: ProcessFacts | None) -> str:
    """Return the command that shows the events of the pod of a process."""
    return _about(process, "kubectl describe pod {pod}") if process and process.pod else ""


def open_in(process: ProcessFacts, path: str) -> str:
    """Return the command that opens a file in the container of a process, as the container's user.

    It is not nsenter: nsenter enters the namespaces, but not the cgroup that permits devices.
    """
    command = f"kubectl exec {{pod}}{{container}} -- head -c 0 {path}"
    return _about(process, command) if process.pod else ""


def release_of(claim: str) -> str:
    """Return the command that frees the devices of a claim, NAMESPACE/NAME, by hand."""
    return shell_line(["kubedevices", "release", "--claim", claim])


def _about(process: ProcessFacts | None, command: str) -> str:
    if process is None:
        return ""
    if not process.pod:
        return f"systemctl status {process.pid}"
    namespace, slash, name = process.pod.partition("/")
    container = f" --container {process.container}" if process.container else ""
    pod = f"--namespace {namespace} {name}"
    return command.format(pod=pod, container=container) if slash else ""
