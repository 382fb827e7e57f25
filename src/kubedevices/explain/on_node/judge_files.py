"""Judges the device files and CDI names of containers, on the host and in the container. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from kubedevices.errors.safe_text import shell_line
from kubedevices.errors.words import some_of
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.commands import events_of, open_in
from kubedevices.explain.on_node.facts import Allocation, ContainerFile, FileFacts, Selinux
from kubedevices.values.cdi import CdiRegistry

_OTHERS_MAY_USE = 0o006
_GROUP_MAY_USE = 0o060
_OWNER_MAY_USE = 0o600
_READ_AND_WRITE = 0o6
_SANDBOXES = ("pause", "catatonit")
"""Names of processes that are the sandbox of a pod, not one of its containers."""

_USABLE_TYPES = ("container_file_t", "svirt_sandbox_file_t")
_FOLDERS = {"c": "char", "b": "block"}


def judge_answers(allocations: Sequence[Allocation], checkpoint: str) -> list[Finding]:
    """Say why there are no device files to look at; empty if there are.

    The device files of a container are known only after the plugin has answered Allocate.
    """
    if not allocations:
        found = (
            "no container holds a device: run this again when a container holds a device, to see "
            "the device files"
        )
        return [Step.DEVICE_FILE.ok(checkpoint, found)]
    if not any(each.response.devices or each.response.cdi_devices for each in allocations):
        found = "the plugin hands out no device file and no CDI name"
        if any(each.response.mounts for each in allocations):
            found += ", but mounts"
        else:
            found += ", so a hook of the runtime must act on its variables or annotations"
        return [Step.DEVICE_FILE.ok(checkpoint, found)]
    return []


def judge_host_file(file: FileFacts, selinux: Selinux) -> list[Finding]:
    """Say whether a container can get a device file, and does not lose it later."""
    if file.problem:
        found = f"cannot be read: {file.problem}"
        return [Step.DEVICE_FILE.unknown(file.path, found, "run this again as root")]
    if not file.kind:
        return [
            Step.DEVICE_FILE.problem(
                file.path,
                "not on this host: no such file or directory",
                "containers end in CreateContainerError until the file exists: load the driver, "
                "or correct the device files of the plugin; then the container starts by itself",
                f"ls -l {file.path}",
            )
        ]
    if file.kind not in ("c", "b", "p"):
        advice = "runtimes need a device file here; a plugin must hand out other files as mounts"
        return [Step.DEVICE_FILE.problem(file.path, f"a {file.kind}, not a device file", advice)]
    number = f"{file.major}:{file.minor}"
    found = f"{file.kind} {number}, mode {file.mode:04o}, user {file.uid}, group {file.gid}"
    findings = [Step.DEVICE_FILE.ok(file.path, found)]
    findings += _judge_link(file, number)
    findings += _judge_mode(file)
    return findings + _judge_label(file, selinux)


def _judge_link(file: FileFacts, number: str) -> list[Finding]:
    folder = _FOLDERS.get(file.kind)
    if folder is None:
        return []
    link = f"/dev/{folder}/{number}"
    if file.link:
        return [Step.LINK.ok(link, "exists")]
    return [
        Step.LINK.warning(
            link,
            f"missing, or leads to another device than {file.path}: with systemd's cgroup driver, "
            "containers lose the device at the next `systemctl daemon-reload`",
            "create the link after each boot (by a udev rule), then delete the pod",
            f"mkdir -p /dev/{folder} && ln -sf {file.path} {link}",
        )
    ]


def _judge_mode(file: FileFacts) -> list[Finding]:
    if file.mode & _OTHERS_MAY_USE == _OTHERS_MAY_USE:
        return [Step.PERMISSIONS.ok(file.path, "every user may read and write it")]
    if file.mode & _GROUP_MAY_USE == _GROUP_MAY_USE:
        found = f"only user {file.uid} and group {file.gid} may read and write it"
    elif file.mode & _OWNER_MAY_USE == _OWNER_MAY_USE:
        found = f"only user {file.uid} may read and write it (mode {file.mode:04o})"
    else:
        found = f"only root may read and write it (mode {file.mode:04o})"
    advice = f"for containers of other users, {_access(file, _READ_AND_WRITE)}"
    found += "; a container gets a copy with the same mode"
    return [Step.PERMISSIONS.warning(file.path, found, advice)]


def _access(file: FileFacts | ContainerFile, wanted: int) -> str:
    """Return how another user than root can get access to a file of this owner and mode."""
    ways = []
    if (file.mode >> 3) & wanted == wanted:
        ways.append(
            "give the pod the group of the file, "
            f"`securityContext: {{supplementalGroups: [{file.gid}]}}`"
        )
    else:
        ways.append("change the group or mode of the host's file (a udev rule)")
    if (file.mode >> 6) & wanted == wanted:
        ways.append(
            "set device_ownership_from_security_context in the runtime, which gives the "
            "container's file to its user"
        )
    return ", or ".join(ways)


def _judge_label(file: FileFacts, selinux: Selinux) -> list[Finding]:
    if not selinux.is_enforcing:
        return [Step.SELINUX.ok(file.path, "SELinux is not enforced on this host")]
    if selinux.use_devices:
        return [Step.SELINUX.ok(file.path, "container_use_devices is on")]
    kind = file.label.split(":")[2] if file.label.count(":") >= 2 else file.label
    if kind in _USABLE_TYPES:
        return [Step.SELINUX.ok(file.path, f"labelled {kind}, which containers may use")]
    return [
        Step.SELINUX.warning(
            file.path,
            f"{f'labelled {kind}' if kind else 'its label cannot be read'}: SELinux may refuse "
            "confined containers; `ausearch --message avc --start recent` shows refusals",
            "let containers use devices",
            "setsebool -P container_use_devices 1",
        )
    ]


# ---------------------------------------------------------------- CDI


def judge_cdi(names: Iterable[str], registry: CdiRegistry) -> list[Finding]:
    """Say which CDI names a runtime cannot resolve, and why."""
    findings = []
    for name in dict.fromkeys(names):
        explained = registry.explain(name)
        if not explained.resolves:
            advice = "containers end in CreateContainerError until a file defines it"
            command = shell_line(["kubedevices", "cdi", "resolve", name])
            findings.append(Step.CDI.problem(name, explained.reason, advice, command))
            continue
        findings.append(Step.CDI.ok(name, explained.reason))
        findings += [
            Step.CDI.warning(name, text, "check this against the runtime of this host")
            for text in explained.warnings
        ]
    return findings


# ---------------------------------------------------------------- inside the container


def judge_inside(
    allocation: Allocation, seen: Iterable[ContainerFile] | None, files: Mapping[str, FileFacts]
) -> list[Finding]:
    """Say whether the container that holds devices has them, and whether its process may open them.

    `seen` is None if no process of the pod could be looked into.
    """
    at = f"container {allocation.container} of pod {allocation.pod_uid}"
    if not allocation.response.devices:
        return []
    pod = next((each.process for each in seen or ()), None)
    if pod is not None and pod.pod:
        at = f"container {allocation.container} of pod {pod.pod}"
    mine = _of_container(allocation.container, seen or ())
    if not mine:
        found = (
            "no process of it was found on this host: it has not started, has ended, or has not "
            "started again"
        )
        advice = "the events of the pod say which of these it is"
        return [Step.CONTAINER.unknown(at, found, advice, events_of(pod))]
    findings = []
    for spec in allocation.response.devices:
        path = spec.container_path or spec.host_path
        here = [each for each in mine if each.container_path == path and each.kind]
        if not here:
            found = f"{path} is not in it"
            advice = (
                "the container started before it got the device, or its runtime left the device "
                "out: delete the pod, so that it is created again"
            )
            findings.append(Step.CONTAINER.problem(at, found, advice))
            continue
        findings += _judge_device(at, here, files.get(spec.host_path), spec.permissions)
    return findings


def _of_container(name: str, seen: Iterable[ContainerFile]) -> list[ContainerFile]:
    """Return the files as the processes of one container see them, its first process in front.

    The name of the container is known if a kubelet created it. Otherwise the files of all processes
    are returned, except those of the usual sandboxes.
    """
    seen = [*seen]
    if any(each.process.container for each in seen):
        mine = [each for each in seen if each.process.container == name]
    else:
        mine = [each for each in seen if each.process.name not in _SANDBOXES]
    return sorted(mine, key=lambda each: (not each.is_main, each.process.pid))


def _judge_device(
    at: str, here: Sequence[ContainerFile], host: FileFacts | None, permissions: str
) -> list[Finding]:
    inside = here[0]
    path, numbers = inside.container_path, (inside.major, inside.minor)
    if host is not None and host.kind and numbers != (host.major, host.minor):
        found = f"{path} is device {inside.major}:{inside.minor}, on the host it is now "
        found += f"{host.major}:{host.minor}"
        advice = "the device was removed and came back as another device: delete the pod"
        return [Step.CONTAINER.problem(at, found, advice)]
    findings = [_judge_users(at, here, permissions)]
    if inside.cgroup is None:
        found = "cgroup version 2 has its permissions in a BPF program, which cannot be read"
        advice = (
            "open the device in the container to test it, by the runtime's exec; but do not open "
            "a device where opening has an effect, as a watchdog has"
        )
        return [
            *findings,
            Step.CGROUP.unknown(at, found, advice, open_in(inside.process, path)),
        ]
    if _permits(inside.cgroup, inside, permissions):
        return [*findings, Step.CGROUP.ok(at, f"permits {permissions} of {path}")]
    found = f"does not permit {permissions} of {inside.kind} {inside.major}:{inside.minor} ({path})"
    advice = (
        "the permission was removed after the start, as `systemctl daemon-reload` does if the "
        "/dev/char link is missing: create the link, then delete the pod"
    )
    return [*findings, Step.CGROUP.problem(at, found, advice)]


def _judge_users(at: str, here: Sequence[ContainerFile], permissions: str) -> Finding:
    """Say whether the container's first process may open the device, and which users may not."""
    wanted = 4 * ("r" in permissions) | 2 * ("w" in permissions)
    first = here[0]
    path = first.container_path
    refused = [each for each in here if not _may_open(each, wanted)]
    if first not in refused:
        found = f"{path} is in it, {first.process.name} (user {first.runs_as}) may open it"
        if others := dict.fromkeys(str(each.runs_as) for each in refused):
            found += f"; other processes in it, of user {some_of(others)}, may not"
        return Step.CONTAINER.ok(at, found)
    groups = some_of(map(str, first.groups)) or "none"
    found = (
        f"{path} is in it, but {first.process.name} (user {first.runs_as}, groups {groups}) "
        f"may not open it: mode {first.mode:04o}, user {first.uid}, group {first.gid}"
    )
    advice = f"{_access(first, wanted)}; then delete the pod"
    return Step.CONTAINER.problem(at, found, advice)


def _may_open(inside: ContainerFile, wanted: int) -> bool:
    """Whether user, groups and mode permit a process `wanted`: 4 to read, 2 to write."""
    mode = inside.mode
    if inside.is_above_modes:
        return True
    if inside.runs_as == inside.uid:
        mode >>= 6
    elif inside.gid in inside.groups:
        mode >>= 3
    return mode & wanted == wanted


def _permits(devices_list: str, inside: ContainerFile, permissions: str) -> bool:
    """Whether the devices.list of a cgroup of version 1 permits `permissions` of a device."""
    for line in devices_list.splitlines():
        kind, _, rest = line.partition(" ")
        number, _, allowed = rest.partition(" ")
        major, _, minor = number.partition(":")
        if (
            kind in ("a", inside.kind)
            and major in ("*", str(inside.major))
            and minor in ("*", str(inside.minor))
            and set(permissions) <= set(allowed)
        ):
            return True
    return False
