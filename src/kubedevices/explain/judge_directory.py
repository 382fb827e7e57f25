"""The plugin directory, its `kubelet.sock` and the plugins' sockets: pure judgements over facts."""

from collections.abc import Iterable
from pathlib import Path

from kubedevices.allocation import API_VERSION, PluginInfo
from kubedevices.errors import SocketPathTooLong
from kubedevices.explain.facts import (
    MISSING,
    NO_PERMISSION,
    NO_SOCKET,
    NOBODY,
    Answers,
    Directory,
    Kubelet,
    Socket,
    Watched,
)
from kubedevices.explain.finding import Finding, Step, ok, problem, unknown, warning
from kubedevices.resource_name import explain_resource_name
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR, KUBELET_SOCKET_NAME
from kubedevices.words import counted, some_of

_OTHERS_MAY_WRITE = 0o002
_DEVICE_PLUGIN = "DevicePlugin"
_AS_ROOT = "ask again as root, or as the owner of the directory"


def judge_directory(directory: Directory, kubelets: Iterable[Kubelet]) -> list[Finding]:
    """Say whether the directory can be where plugins and kubelet meet."""
    path = str(directory.path)
    if directory.refusal == MISSING:
        return [
            problem(
                Step.DIRECTORY,
                path,
                "it does not exist",
                _elsewhere(directory, kubelets)
                or "a kubelet makes it when it starts, and so does a node of ours",
                _start_of(directory),
            )
        ]
    if directory.refusal == NO_PERMISSION:
        return [unknown(Step.DIRECTORY, path, "no permission to look into it", _AS_ROOT)]
    if directory.refusal:
        return [
            problem(
                Step.DIRECTORY,
                path,
                directory.refusal,
                "move away what is there and start the kubelet again",
                f"ls -ld {path}",
            )
        ]
    found = f"mode {directory.mode:04o}, owned by user {directory.uid}"
    if directory.link_to:
        found += f", which is {directory.link_to}"
    if directory.mode & _OTHERS_MAY_WRITE:
        advice = "anybody on this host may replace kubelet.sock or a plugin there"
        return [warning(Step.DIRECTORY, path, found, advice, f"chmod o-w {path}")]
    return [ok(Step.DIRECTORY, path, found)]


def judge_kubelet_socket(directory: Directory, kubelets: Iterable[Kubelet]) -> list[Finding]:
    """Say whether a plugin can register here."""
    socket = directory.kubelet
    if socket is None:
        return []
    path = str(socket.path)
    elsewhere = _elsewhere(directory, kubelets)
    if socket.refusal == MISSING:
        found = "it does not exist: neither a kubelet nor a kubedevices node serves this directory"
        advice = elsewhere or "start one; plugins that run register by themselves"
        return [problem(Step.KUBELET_SOCKET, path, found, advice, _start_of(directory))]
    if socket.refusal == NO_SOCKET:
        advice = "remove it and restart the kubelet"
        return [problem(Step.KUBELET_SOCKET, path, "it is no socket", advice, f"rm {path}")]
    if socket.refusal == NO_PERMISSION:
        return [unknown(Step.KUBELET_SOCKET, path, "no permission to connect", _AS_ROOT)]
    if socket.refusal not in ("", NOBODY):
        advice = "mend that and start the kubelet, or the node, again"
        return [problem(Step.KUBELET_SOCKET, path, socket.refusal, advice)]
    if socket.refusal:
        found = "nobody listens on it: a kubelet that ends leaves its file behind"
        advice = elsewhere or "start the kubelet, or the node, again"
        return [problem(Step.KUBELET_SOCKET, path, found, advice, _start_of(directory))]
    who = str(socket.listener) if socket.listener else "somebody"
    return [ok(Step.KUBELET_SOCKET, path, f"{who} accepts registrations")]


def _start_of(directory: Directory) -> str:
    """Return the command for who serves such a directory."""
    if directory.path == DEVICE_PLUGIN_DIR:
        return "systemctl status kubelet"
    return f"kubedevices node --socket-dir {directory.path}"


def _elsewhere(directory: Directory, kubelets: Iterable[Kubelet]) -> str:
    """Say where a kubelet is instead."""
    if directory.elsewhere:
        places = some_of(map(str, directory.elsewhere))
        return f"a kubelet listens in {places}: use that as --socket-dir, for the plugins too"
    for kubelet in kubelets:
        return (
            f"{kubelet.process} runs with the root directory {kubelet.root_dir}; whatever that "
            f"is, a kubelet keeps its device plugins in {DEVICE_PLUGIN_DIR}"
        )
    return ""


def judge_path_length(directory: Path, resource: str = "") -> list[Finding]:
    """Say whether the sockets' paths fit into the 107 bytes that Linux takes."""
    limit = SocketPathTooLong.limit
    kubelet_socket = directory / KUBELET_SOCKET_NAME
    length = len(bytes(kubelet_socket))
    if length > limit:
        found = f"{length} bytes, Linux takes {limit}: nobody can listen there"
        advice = "use a directory with a shorter path"
        return [problem(Step.PATH_LENGTH, str(kubelet_socket), found, advice)]
    if resource:
        path = directory / f"{resource.replace('/', '-')}.sock"
        length = len(bytes(path))
        if length > limit:
            found = f"{length} bytes, Linux takes {limit}"
            advice = (
                "a plugin that calls its socket so cannot listen (ours take a shorter name); give "
                "it another name, or a directory with a shorter path"
            )
            return [warning(Step.PATH_LENGTH, str(path), found, advice)]
    room = limit - len(bytes(directory)) - 1
    found = f"room for socket names of {room} bytes"
    return [] if resource else [ok(Step.PATH_LENGTH, str(directory), found)]


def judge_plugin_sockets(directory: Directory, answers: Answers) -> list[Finding]:
    """Say who serves each socket, and which plugins the kubelet does not know."""
    is_served = directory.kubelet is not None and not directory.kubelet.refusal
    served_since = directory.kubelet.since if directory.kubelet and is_served else None
    findings = [_judge_plugin(each, served_since) for each in directory.plugins]
    for deleted in directory.deleted:
        who = str(deleted.listener) if deleted.listener else "a process"
        findings.append(
            problem(
                Step.PLUGIN_SOCKET,
                str(deleted.path),
                f"{who} listens on it, but the file is gone: a kubelet deletes all sockets when it "
                "starts, and this plugin did not notice",
                "restart the plugin, so that it registers again; `kubedevices check` says whether "
                "it survives restarts",
                f"kill {deleted.listener.pid}" if deleted.listener else "",
            )
        )
    connected = {name for name, each in answers.resources.items() if each.plugin == "connected"}
    findings += [
        problem(
            Step.REGISTRATION,
            f"{refusal.resource} at {refusal.socket}",
            f"the node refused it: {refusal.reason}",
            "mend the plugin; it registers when it is started again",
            "kubedevices check -- COMMAND OF THE PLUGIN",
        )
        for refusal in dict.fromkeys(answers.refusals)
        if refusal.resource not in connected
    ]
    if not directory.plugins and not directory.deleted and is_served:
        findings.append(
            unknown(
                Step.PLUGIN_SOCKET,
                str(directory.path),
                "no plugin has a socket here",
                "start a plugin with this directory; in a cluster, look at its DaemonSet",
                "kubectl get pods --all-namespaces --field-selector spec.nodeName=NODE",
            )
        )
    return findings


def judge_registry(watched: Iterable[Watched]) -> list[Finding]:
    """Say of the sockets in the plugin registry directory which are device plugins, and well."""
    findings = []
    for each in watched:
        path = str(each.path)
        if each.info is None:
            advice = "start its plugin again, or remove the socket"
            findings.append(warning(Step.PLUGIN_SOCKET, path, each.problem, advice, f"rm {path}"))
        elif each.info.type == _DEVICE_PLUGIN:
            findings.append(_judge_watched(path, each.info))
    return findings


def _judge_watched(path: str, info: PluginInfo) -> Finding:
    advice = "mend the plugin: a kubelet that finds it refuses it"
    if rule := explain_resource_name(info.name):
        found = f"offers {info.name!r}, which no kubelet accepts: {rule}"
        return problem(Step.PLUGIN_SOCKET, path, found, advice)
    if API_VERSION not in info.supported_versions:
        versions = some_of(info.supported_versions) or "no version"
        found = f"offers {info.name} in {versions}, a kubelet wants {API_VERSION}"
        return problem(Step.PLUGIN_SOCKET, path, found, advice)
    return ok(Step.PLUGIN_SOCKET, path, f"offers {info.name} to whoever finds it")


def _judge_plugin(socket: Socket, served_since: float | None) -> Finding:
    """`served_since` is when `kubelet.sock` was made, None when nobody serves it."""
    path = str(socket.path)
    if socket.refusal == NO_PERMISSION:
        return unknown(Step.PLUGIN_SOCKET, path, "no permission to connect", _AS_ROOT)
    if socket.refusal not in ("", NOBODY):
        return unknown(Step.PLUGIN_SOCKET, path, f"cannot connect: {socket.refusal}")
    if socket.refusal:
        return warning(
            Step.PLUGIN_SOCKET,
            path,
            "nobody listens on it: its plugin ended without removing it, or crashed",
            "start the plugin again; in a cluster, read the log of its last end",
            "kubectl logs --previous POD",
        )
    who = str(socket.listener) if socket.listener else "somebody"
    if socket.answer is not None and socket.answer.problem:
        advice = "restart the plugin, and let `kubedevices check` find what it does wrong"
        return problem(
            Step.PLUGIN_SOCKET, path, f"{who} listens, but {socket.answer.problem}", advice
        )
    found = f"{who} listens"
    if socket.answer is not None and socket.answer.devices is not None:
        devices = socket.answer.devices
        healthy = sum(each.health == "Healthy" for each in devices)
        found += f" and lists {counted(len(devices), 'device')}, {healthy} healthy"
    if socket.connections is None:
        return ok(Step.PLUGIN_SOCKET, path, found)
    if socket.connections == 0 and served_since is not None:
        is_older = bool(socket.since) and socket.since < served_since
        found += ", but nobody is connected: it is not registered"
        return problem(
            Step.PLUGIN_SOCKET,
            path,
            found + (", and has not been since kubelet.sock was made anew" if is_older else ""),
            "read the plugin's log for a refused registration; a plugin that registers only when "
            "it starts has to be restarted after each restart of the kubelet",
            f"kill {socket.listener.pid}" if socket.listener else "",
        )
    return ok(Step.PLUGIN_SOCKET, path, f"{found}, {counted(socket.connections, 'connection')}")
