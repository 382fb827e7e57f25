"""What to type about a process: one in a pod, or one that runs on the host itself."""

from kubedevices.explain.facts import ProcessFacts


def log_of(process: ProcessFacts | None) -> str:
    """Return the command that shows the log of a process; nothing where its name is not known."""
    return _about(process, "kubectl logs {pod}{container}")


def restart_of(process: ProcessFacts | None) -> str:
    """Return the command that makes a pod anew; of a process on the host, it shows the unit."""
    return _about(process, "kubectl delete pod {pod}")


def events_of(process: ProcessFacts | None) -> str:
    """Return the command that shows what happened to the pod of a process."""
    return _about(process, "kubectl describe pod {pod}") if process and process.pod else ""


def open_in(process: ProcessFacts, path: str) -> str:
    """Return the command that opens a file in the container of a process, as its user there.

    Not by nsenter: that enters namespaces, but not the cgroup, which is what permits devices.
    """
    command = f"kubectl exec {{pod}}{{container}} -- head -c 0 {path}"
    return _about(process, command) if process.pod else ""


def _about(process: ProcessFacts | None, command: str) -> str:
    if process is None:
        return ""
    if not process.pod:
        return f"systemctl status {process.pid}"
    namespace, slash, name = process.pod.partition("/")
    container = f" --container {process.container}" if process.container else ""
    pod = f"--namespace {namespace} {name}"
    return command.format(pod=pod, container=container) if slash else ""
