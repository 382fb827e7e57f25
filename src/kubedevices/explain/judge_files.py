"""What a container is given, as the host and the container have it: pure judgements over facts."""

from collections.abc import Iterable, Mapping, Sequence

from kubedevices.cdi import CdiRegistry
from kubedevices.explain.commands import events_of, open_in
from kubedevices.explain.facts import Allocation, ContainerFile, FileFacts, Selinux
from kubedevices.explain.finding import Finding, Step, ok, problem, unknown, warning
from kubedevices.words import some_of

_OTHERS_MAY_USE = 0o006
_GROUP_MAY_USE = 0o060
_OWNER_MAY_USE = 0o600
_READ_AND_WRITE = 0o6
_SANDBOXES = ("pause", "catatonit")
"""What holds a pod together without being a container of it."""

_USABLE_TYPES = ("container_file_t", "svirt_sandbox_file_t")
_FOLDERS = {"c": "char", "b": "block"}


def judge_answers(allocations: Sequence[Allocation], checkpoint: str) -> list[Finding]:
    """Say where there are no files to look at; what a container gets is known once it has it."""
    if not allocations:
        found = (
            "no container holds a device: ask again when a container holds one, to see its "
            "device files"
        )
        return [ok(Step.DEVICE_FILE, checkpoint, found)]
    if not any(each.response.devices or each.response.cdi_devices for each in allocations):
        found = "the plugin hands out no device file and no CDI name"
        if any(each.response.mounts for each in allocations):
            found += ", but mounts"
        else:
            found += ": variables and annotations have to tell a hook of the runtime what to do"
        return [ok(Step.DEVICE_FILE, checkpoint, found)]
    return []


def judge_host_file(file: FileFacts, selinux: Selinux) -> list[Finding]:
    """Say whether a device file is what a container can be given, and keep."""
    if file.problem:
        found = f"cannot be looked at: {file.problem}"
        return [unknown(Step.DEVICE_FILE, file.path, found, "ask again as root")]
    if not file.kind:
        return [
            problem(
                Step.DEVICE_FILE,
                file.path,
                "not on this host: no such file or directory",
                "containers end in CreateContainerError until the file exists: load the driver, "
                "or correct the device files of the plugin; then the container starts by itself",
                f"ls -l {file.path}",
            )
        ]
    if file.kind not in ("c", "b", "p"):
        advice = "runtimes take a device node here; a plugin hands out other files as mounts"
        return [problem(Step.DEVICE_FILE, file.path, f"a {file.kind}, no device node", advice)]
    number = f"{file.major}:{file.minor}"
    found = f"{file.kind} {number}, mode {file.mode:04o}, user {file.uid}, group {file.gid}"
    findings = [ok(Step.DEVICE_FILE, file.path, found)]
    findings += _judge_link(file, number)
    findings += _judge_mode(file)
    return findings + _judge_label(file, selinux)


def _judge_link(file: FileFacts, number: str) -> list[Finding]:
    folder = _FOLDERS.get(file.kind)
    if folder is None:
        return []
    link = f"/dev/{folder}/{number}"
    if file.link:
        return [ok(Step.LINK, link, "is there")]
    return [
        warning(
            Step.LINK,
            link,
            f"missing, or not {file.path}: with systemd's cgroup driver, containers lose the "
            "device at the next `systemctl daemon-reload`",
            "create the link after each boot (by a udev rule), then delete the pod",
            f"mkdir -p /dev/{folder} && ln -sf {file.path} {link}",
        )
    ]


def _judge_mode(file: FileFacts) -> list[Finding]:
    if file.mode & _OTHERS_MAY_USE == _OTHERS_MAY_USE:
        return [ok(Step.PERMISSIONS, file.path, "everybody may read and write it")]
    if file.mode & _GROUP_MAY_USE == _GROUP_MAY_USE:
        found = f"only user {file.uid} and group {file.gid} may use it"
    elif file.mode & _OWNER_MAY_USE == _OWNER_MAY_USE:
        found = f"only user {file.uid} may read and write it (mode {file.mode:04o})"
    else:
        found = f"only root may read and write it (mode {file.mode:04o})"
    advice = f"for containers of other users, {_access(file, _READ_AND_WRITE)}"
    found += "; a container gets a copy with the same mode"
    return [warning(Step.PERMISSIONS, file.path, found, advice)]


def _access(file: FileFacts | ContainerFile, wanted: int) -> str:
    """Return what lets another user than root open a file of this owner and mode."""
    ways = []
    if (file.mode >> 3) & wanted == wanted:
        ways.append(
            "give the pod the group of the file, "
            f"`securityContext: {{supplementalGroups: [{file.gid}]}}`"
        )
    else:
        ways.append("give the host's file a group or mode that suffices (a udev rule)")
    if (file.mode >> 6) & wanted == wanted:
        ways.append(
            "set device_ownership_from_security_context in the runtime, which gives the "
            "container's file to its user"
        )
    return ", or ".join(ways)


def _judge_label(file: FileFacts, selinux: Selinux) -> list[Finding]:
    if not selinux.is_enforcing:
        return [ok(Step.SELINUX, file.path, "SELinux is not enforced on this host")]
    if selinux.use_devices:
        return [ok(Step.SELINUX, file.path, "container_use_devices is on")]
    kind = file.label.split(":")[2] if file.label.count(":") >= 2 else file.label
    if kind in _USABLE_TYPES:
        return [ok(Step.SELINUX, file.path, f"labelled {kind}, which containers may use")]
    return [
        warning(
            Step.SELINUX,
            file.path,
            f"labelled {kind or 'in a way that cannot be read'}: confined containers may be "
            "refused; `ausearch --message avc --start recent` shows whether they were",
            "let containers use devices",
            "setsebool -P container_use_devices 1",
        )
    ]


# ---------------------------------------------------------------- CDI


def judge_cdi(names: Iterable[str], registry: CdiRegistry) -> list[Finding]:
    """Say which CDI names a runtime would not find, and why."""
    findings = []
    for name in dict.fromkeys(names):
        explained = registry.explain(name)
        if not explained.resolves:
            advice = "containers end in CreateContainerError until a file defines it"
            command = f"kubedevices cdi resolve {name}"
            findings.append(problem(Step.CDI, name, explained.reason, advice, command))
            continue
        findings.append(ok(Step.CDI, name, explained.reason))
        findings += [
            warning(Step.CDI, name, text, "compare that with the runtime that is used here")
            for text in explained.warnings
        ]
    return findings


# ---------------------------------------------------------------- inside the container


def judge_inside(
    allocation: Allocation, seen: Iterable[ContainerFile] | None, files: Mapping[str, FileFacts]
) -> list[Finding]:
    """Say whether the container that holds devices has them, and whether its process may open them.

    `seen` is None where no process of the pod was found.
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
            "no process of it was found on this host: it has not started, or not again, or ended"
        )
        advice = "the events of the pod say which"
        return [unknown(Step.CONTAINER, at, found, advice, events_of(pod))]
    findings = []
    for spec in allocation.response.devices:
        path = spec.container_path or spec.host_path
        here = [each for each in mine if each.container_path == path and each.kind]
        if not here:
            found = f"{path} is not in it"
            advice = (
                "the container was started before it got the device, or by a runtime that left it "
                "out: delete the pod and let it be made again"
            )
            findings.append(problem(Step.CONTAINER, at, found, advice))
            continue
        findings += _judge_there(at, here, files.get(spec.host_path), spec.permissions)
    return findings


def _of_container(name: str, seen: Iterable[ContainerFile]) -> list[ContainerFile]:
    """Return what the processes of one container have, its first process in front.

    A kubelet's containers tell their names; of others, all are taken but the usual sandboxes.
    """
    seen = [*seen]
    if any(each.process.container for each in seen):
        mine = [each for each in seen if each.process.container == name]
    else:
        mine = [each for each in seen if each.process.name not in _SANDBOXES]
    return sorted(mine, key=lambda each: (not each.is_main, each.process.pid))


def _judge_there(
    at: str, here: Sequence[ContainerFile], host: FileFacts | None, permissions: str
) -> list[Finding]:
    inside = here[0]
    path, numbers = inside.container_path, (inside.major, inside.minor)
    if host is not None and host.kind and numbers != (host.major, host.minor):
        found = f"{path} is device {inside.major}:{inside.minor}, on the host it is now "
        found += f"{host.major}:{host.minor}"
        advice = "the device was removed and came back as another device: delete the pod"
        return [problem(Step.CONTAINER, at, found, advice)]
    findings = [_judge_users(at, here, permissions)]
    if inside.cgroup is None:
        found = "version 2 keeps permissions in a program of the kernel, which cannot be read"
        advice = (
            "open it in the container, by the runtime's exec; not where that alone does something, "
            "as with a watchdog"
        )
        return [
            *findings,
            unknown(Step.CGROUP, at, found, advice, open_in(inside.process, path)),
        ]
    if _permits(inside.cgroup, inside, permissions):
        return [*findings, ok(Step.CGROUP, at, f"permits {permissions} of {path}")]
    found = f"does not permit {permissions} of {inside.kind} {inside.major}:{inside.minor} ({path})"
    advice = (
        "something took it away after the start, as `systemctl daemon-reload` does where the "
        "/dev/char link is missing: make the link, then delete the pod"
    )
    return [*findings, problem(Step.CGROUP, at, found, advice)]


def _judge_users(at: str, here: Sequence[ContainerFile], permissions: str) -> Finding:
    """Say whether the first process may open it, and which other users in there may not."""
    wanted = 4 * ("r" in permissions) | 2 * ("w" in permissions)
    first = here[0]
    path = first.container_path
    refused = [each for each in here if not _may_open(each, wanted)]
    if first not in refused:
        found = f"{path} is in it, {first.process.name} (user {first.runs_as}) may open it"
        if others := dict.fromkeys(str(each.runs_as) for each in refused):
            found += f"; other processes in it, of user {some_of(others)}, may not"
        return ok(Step.CONTAINER, at, found)
    groups = some_of(map(str, first.groups)) or "none"
    found = (
        f"{path} is in it, but {first.process.name} (user {first.runs_as}, groups {groups}) "
        f"may not open it: mode {first.mode:04o}, user {first.uid}, group {first.gid}"
    )
    advice = f"{_access(first, wanted)}; then delete the pod"
    return problem(Step.CONTAINER, at, found, advice)


def _may_open(inside: ContainerFile, wanted: int) -> bool:
    """Whether user, groups and mode let a process do what is `wanted`: 4 read, 2 write."""
    mode = inside.mode
    if inside.is_above_modes:
        return True
    if inside.runs_as == inside.uid:
        mode >>= 6
    elif inside.gid in inside.groups:
        mode >>= 3
    return mode & wanted == wanted


def _permits(devices_list: str, inside: ContainerFile, permissions: str) -> bool:
    """Whether the devices.list of a version 1 cgroup has what a device needs."""
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
