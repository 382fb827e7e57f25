"""Judges the plugin directory, its `kubelet.sock` and the sockets of the plugins. Pure."""

from collections.abc import Iterable
from pathlib import Path

from kubedevices.errors import SocketPathTooLong
from kubedevices.errors.safe_text import shell_line
from kubedevices.errors.words import counted, some_of
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.commands import log_of, restart_of
from kubedevices.explain.on_node.facts import (
    MISSING,
    NO_PERMISSION,
    NO_SOCKET,
    NOBODY,
    UNSEEN,
    Directory,
    Kubelet,
    LostSocket,
    ProcessFacts,
    RegistrySocket,
    ResourceFacts,
    Socket,
)
from kubedevices.values.allocation import API_VERSION, PluginInfo
from kubedevices.values.resource_name import explain_resource_name
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, KUBELET_SOCKET_NAME, InstanceSocket

_OTHERS_MAY_WRITE = 0o002
_DEVICE_PLUGIN = "DevicePlugin"  # the type in the answer to GetInfo
_AS_ROOT = "run this again as root of the host; in a debugging pod, with --profile=sysadmin"


def judge_directory(directory: Directory, kubelets: Iterable[Kubelet]) -> list[Finding]:
    """Say whether a kubelet and its plugins can use the directory."""
    path = str(directory.path)
    if directory.refusal == MISSING:
        return [
            Step.DIRECTORY.problem(
                path,
                "it does not exist",
                _elsewhere(directory, kubelets)
                or "a kubelet, or `kubedevices node`, creates it at its start. About a cluster: "
                "kubedevices explain --cluster",
                _start_of(directory),
            )
        ]
    if directory.refusal == NO_PERMISSION:
        return [Step.DIRECTORY.unknown(path, "no permission to look into it", _AS_ROOT)]
    if directory.refusal:
        return [
            Step.DIRECTORY.problem(
                path,
                directory.refusal,
                "move the file away and start the kubelet again",
                f"ls -ld {path}",
            )
        ]
    found = f"mode {directory.mode:04o}, owned by user {directory.uid}"
    if directory.link_to:
        found += f", a link to {directory.link_to}"
    if directory.mode & _OTHERS_MAY_WRITE:
        advice = "every user of this host may replace the sockets in it: forbid others to write"
        return [Step.DIRECTORY.warning(path, found, advice, f"chmod o-w {path}")]
    return [Step.DIRECTORY.ok(path, found)]


def judge_kubelet_socket(
    directory: Directory, kubelets: Iterable[Kubelet], answers: ResourceFacts
) -> list[Finding]:
    """Say whether a plugin can register here."""
    socket = directory.kubelet
    if socket is None:
        return []
    path = str(socket.path)
    elsewhere = _elsewhere(directory, kubelets)
    if socket.refusal == MISSING:
        found = "it does not exist: neither a kubelet nor a kubedevices node serves this directory"
        advice = elsewhere or (
            "start a kubelet or a node; then restart the plugins that do not register by themselves"
        )
        return [Step.KUBELET_SOCKET.problem(path, found, advice, _start_of(directory))]
    if socket.refusal == NO_SOCKET:
        advice = "remove it and restart the kubelet"
        return [Step.KUBELET_SOCKET.problem(path, "it is not a socket", advice, f"rm {path}")]
    if socket.refusal == NO_PERMISSION:
        return [Step.KUBELET_SOCKET.unknown(path, "no permission to connect", _AS_ROOT)]
    if socket.refusal not in ("", NOBODY):
        advice = "correct this and start the kubelet, or the node, again"
        return [Step.KUBELET_SOCKET.problem(path, socket.refusal, advice)]
    if socket.refusal:
        found = "no process listens on it: the kubelet has ended, and its socket file stays"
        advice = elsewhere or "start the kubelet, or the node, again"
        return [Step.KUBELET_SOCKET.problem(path, found, advice, _start_of(directory))]
    if stopped := judge_stopped(Step.KUBELET_SOCKET, path, socket.listener):
        return [stopped]
    who = str(socket.listener or UNSEEN)
    if answers.is_silent:
        found = f"{who} accepts connections, but did not answer within {answers.waited:g} s"
        advice = "it is overloaded or hangs: its log and its load say which; restart it if it hangs"
        return [Step.KUBELET_SOCKET.problem(path, found, advice, log_of(socket.listener))]
    return [Step.KUBELET_SOCKET.ok(path, f"{who} accepts registrations")]


def judge_stopped(
    step: Step, path: str, listener: ProcessFacts | None, never: str = "does not answer"
) -> Finding | None:
    """Return the finding about a listener that is stopped; `never` is what it does not do.

    The kernel accepts connections for a stopped process, but the process never answers.
    """
    if listener is None or listener.state.upper() != "T":
        return None
    found = f"{listener} listens, but is stopped: it {never} until it continues"
    advice = "a debugger or a signal (SIGSTOP) stopped it; after a signal, this continues it"
    return step.problem(path, found, advice, f"kill -CONT {listener.pid}")


def _start_of(directory: Directory) -> str:
    """Return the command about the process that serves, or should serve, this directory."""
    if str(directory.path).endswith(str(DEVICE_PLUGIN_DIR)):  # also below /host
        return "systemctl status kubelet"
    return f"kubedevices node --socket-dir {directory.path}"


def _elsewhere(directory: Directory, kubelets: Iterable[Kubelet]) -> str:
    """Say where a kubelet serves plugins instead; empty if no kubelet was seen."""
    if directory.elsewhere:
        places = some_of(map(str, directory.elsewhere))
        return f"a kubelet listens in {places}: use that as --socket-dir, for the plugins too"
    for kubelet in kubelets:
        return (
            f"{kubelet.process} runs with the root directory {kubelet.root_dir}; with any root "
            f"directory, the plugin directory of a kubelet is {DEVICE_PLUGIN_DIR}"
        )
    return ""


def judge_path_length(directory: Path, resource: str = "") -> list[Finding]:
    """Say whether the paths of the sockets fit into the 107 bytes that Linux allows."""
    limit = SocketPathTooLong.limit
    kubelet_socket = directory / KUBELET_SOCKET_NAME
    length = len(bytes(kubelet_socket))
    if length > limit:
        found = f"{length} bytes, but Linux allows {limit}: no process can listen there"
        advice = "use a directory with a shorter path"
        return [Step.PATH_LENGTH.problem(str(kubelet_socket), found, advice)]
    if resource:
        path = directory / f"{resource.replace('/', '-')}.sock"
        length = len(bytes(path))
        if length > limit:
            found = f"{length} bytes, but Linux allows {limit}"
            advice = (
                "a plugin cannot listen at this path (plugins of kubedevices use a shorter name); "
                "give the socket another name, or use a directory with a shorter path"
            )
            return [Step.PATH_LENGTH.warning(str(path), found, advice)]
    room = limit - len(bytes(directory)) - 1
    found = f"room for socket names of {room} bytes"
    return [] if resource else [Step.PATH_LENGTH.ok(str(directory), found)]


def judge_plugin_sockets(directory: Directory, answers: ResourceFacts) -> list[Finding]:
    """Say which process serves each socket, and which plugins the kubelet does not know."""
    is_served = directory.kubelet is not None and not directory.kubelet.refusal
    served_since = directory.kubelet.since if directory.kubelet and is_served else None
    findings = [
        _judge_standby(each, newer)
        if (newer := _newer_instance(each, directory.plugins))
        else _judge_plugin(each, served_since)
        for each in directory.plugins
    ]
    findings += [_judge_lost(each, directory.path) for each in directory.lost]
    connected = {name for name, each in answers.resources.items() if each.plugin == "connected"}
    findings += [
        Step.REGISTRATION.problem(
            f"{refusal.resource} at {refusal.socket}",
            f"the node refused it: {refusal.reason}",
            "correct the plugin; it registers when it is started again",
            "kubedevices check -- COMMAND OF THE PLUGIN",
        )
        for refusal in dict.fromkeys(answers.refusals)
        if refusal.resource not in connected
    ]
    if not directory.plugins and not directory.lost and is_served:
        findings.append(Step.PLUGIN_SOCKET.ok(str(directory.path), "no plugin has a socket here"))
    return findings


def judge_registry(watched: Iterable[RegistrySocket]) -> list[Finding]:
    """Say which sockets in the plugin registry directory are device plugins, and their faults.

    `judge_drivers` has the faults of drivers that answer.
    """
    findings = []
    for each in watched:
        if each.info is None:
            findings.append(_judge_mute(each))
        elif each.info.type == _DEVICE_PLUGIN:
            findings.append(_judge_watched(str(each.path), each.info))
    return findings


def _judge_mute(watched: RegistrySocket) -> Finding:
    """Judge a socket that does not answer: a kubelet dials it again and again."""
    path, socket = str(watched.path), watched.socket
    listener = socket.listener if socket else None
    if stopped := judge_stopped(Step.PLUGIN_SOCKET, path, listener):
        return stopped
    if socket is not None and socket.refusal == NO_PERMISSION:
        return Step.PLUGIN_SOCKET.unknown(path, "no permission to connect", _AS_ROOT)
    if socket is not None and not socket.refusal:
        found = f"{listener or UNSEEN} listens, but does not answer, so no kubelet registers it: "
        advice = "its log may say why; restart it if it hangs"
        found += watched.problem
        return Step.PLUGIN_SOCKET.problem(path, found, advice, log_of(listener))
    if socket is not None and socket.refusal == NOBODY:
        found = "no process listens on it: its driver or plugin was killed or uninstalled"
        advice = "start it again, or remove the socket if it was uninstalled"
        return Step.PLUGIN_SOCKET.problem(path, found, advice, shell_line(["rm", path]))
    advice = "start its plugin again, or remove the socket if the plugin was uninstalled"
    return Step.PLUGIN_SOCKET.warning(path, watched.problem, advice)


def _judge_watched(path: str, info: PluginInfo) -> Finding:
    advice = "correct the plugin: a kubelet refuses it"
    if rule := explain_resource_name(info.name):
        found = f"offers {info.name!r}, which no kubelet accepts: {rule}"
        return Step.PLUGIN_SOCKET.problem(path, found, advice)
    if API_VERSION not in info.supported_versions:
        versions = some_of(info.supported_versions) or "no version"
        found = f"offers {info.name} in {versions}, but a kubelet needs {API_VERSION}"
        return Step.PLUGIN_SOCKET.problem(path, found, advice)
    return Step.PLUGIN_SOCKET.ok(path, f"offers {info.name} to every kubelet that finds it")


def _newer_instance(socket: Socket, others: Iterable[Socket]) -> Socket | None:
    """Return the socket of a newer instance of the same plugin, if both sockets have a listener.

    Only names that kubedevices gives to sockets say which instance is newer.
    """
    name = InstanceSocket.parse(socket.path.name)
    for other in others:
        its = InstanceSocket.parse(other.path.name)
        is_newer = name and its and its.mark == name.mark and its.instance > name.instance
        if is_newer and not socket.refusal and not other.refusal:
            return other
    return None


def _judge_standby(socket: Socket, newer: Socket) -> Finding:
    return Step.PLUGIN_SOCKET.warning(
        str(socket.path),
        f"{socket.listener or UNSEEN} stands by: {newer.path.name} serves the same resource "
        "and was started later",
        "this is expected during an update; otherwise two plugins serve the same resource: stop "
        "one of them",
    )


def _judge_plugin(socket: Socket, served_since: float | None) -> Finding:
    """`served_since` is when `kubelet.sock` was created, None if no process listens on it."""
    path = str(socket.path)
    if socket.refusal == NO_PERMISSION:
        return Step.PLUGIN_SOCKET.unknown(path, "no permission to connect", _AS_ROOT)
    if socket.refusal not in ("", NOBODY):
        return Step.PLUGIN_SOCKET.unknown(path, f"cannot connect: {socket.refusal}")
    if socket.refusal:
        return Step.PLUGIN_SOCKET.warning(
            path,
            "no process listens on it: its plugin crashed, or ended and did not remove it",
            "start the plugin again; its log says why it ended. If the plugin listens on another "
            "socket by now, this file is harmless, and a kubelet removes it at its next start",
            "kubectl logs --previous POD",
        )
    if stopped := judge_stopped(Step.PLUGIN_SOCKET, path, socket.listener):
        return stopped
    who = str(socket.listener or UNSEEN)
    if socket.answer is not None and socket.answer.problem:
        advice = "its log may say why; `kubedevices check` finds the mistakes of a plugin"
        found = f"{who} listens, but {socket.answer.problem}"
        return Step.PLUGIN_SOCKET.problem(path, found, advice, log_of(socket.listener))
    found = f"{who} listens"
    if socket.answer is not None and socket.answer.devices is not None:
        devices = socket.answer.devices
        healthy = sum(each.health == "Healthy" for each in devices)
        found += f" and lists {counted(len(devices), 'device')}, {healthy} healthy"
    if socket.connections is None:
        return Step.PLUGIN_SOCKET.ok(path, found)
    if socket.connections == 0 and served_since is not None:
        return _judge_unregistered(socket, found, served_since)
    return Step.PLUGIN_SOCKET.ok(path, f"{found}, {counted(socket.connections, 'connection')}")


def _judge_unregistered(socket: Socket, found: str, served_since: float) -> Finding:
    path = str(socket.path)
    found += ", but no kubelet is connected: the plugin is not registered"
    if socket.since and socket.since < served_since:
        found += " since kubelet.sock was created again"
        advice = (
            "the plugin may not have noticed the kubelet restart: restart the plugin (a DaemonSet "
            "creates a deleted pod again); `kubedevices check` tests whether the plugin survives "
            "kubelet restarts"
        )
        return Step.PLUGIN_SOCKET.problem(path, found, advice, restart_of(socket.listener))
    advice = (
        "the log of the plugin says whether the kubelet refused it, or whether it never tried to "
        "register; the kubelet logs a refusal too"
    )
    return Step.PLUGIN_SOCKET.problem(path, found, advice, log_of(socket.listener))


def _judge_lost(lost: LostSocket, directory: Path) -> Finding:
    path = str(lost.path)
    if lost.listener is None:
        found = "a process listens on it, but the file was deleted; the process cannot be seen"
        return Step.PLUGIN_SOCKET.unknown(path, found, _AS_ROOT)
    if lost.is_apart:
        found = f"{lost.listener} listens at this path in a directory of its container, not here"
        advice = (
            f"mount the host's {DEVICE_PLUGIN_DIR} into its container, by a hostPath volume; a "
            "kubelet does not see an emptyDir or a directory of the container"
        )
        if lost.listener.pod:
            return Step.PLUGIN_SOCKET.problem(path, found, advice)
        return Step.PLUGIN_SOCKET.warning(path, found, advice)
    found = f"{lost.listener} listens on it, but the file was deleted"
    if lost.connections:
        found += f"; open connections: {lost.connections}"
        advice = (
            "the plugin serves its devices as long as the connection lasts; restart the plugin "
            "before the next restart of the kubelet"
        )
        return Step.PLUGIN_SOCKET.warning(path, found, advice, restart_of(lost.listener))
    found += ": a kubelet deletes all sockets when it starts, and this plugin did not notice"
    advice = (
        "restart the plugin, so that it registers again (a DaemonSet creates a deleted pod "
        "again); `kubedevices check` tests whether the plugin survives kubelet restarts"
    )
    return Step.PLUGIN_SOCKET.problem(path, found, advice, restart_of(lost.listener))
