"""Judges DRA drivers of any vendor: whether they run, and their claims. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kubedevices.errors.safe_text import shell_line
from kubedevices.errors.words import closest, counted, some_of
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.commands import FIND_PODS, release_of, restart_of
from kubedevices.explain.on_node.driver_facts import (
    ClaimFacts,
    ClaimFile,
    DraFacts,
    DriverFacts,
    KubeletClaims,
)
from kubedevices.explain.on_node.facts import (
    MISSING,
    NO_PERMISSION,
    UNSEEN,
    RegistrySocket,
    ResourceState,
)
from kubedevices.explain.on_node.join_claims import held_twice
from kubedevices.explain.on_node.judge_directory import judge_stopped


def judge_drivers(dra: DraFacts, wanted: str = "") -> Iterator[Finding]:
    """Judge every driver, or the driver `wanted`, and what the kubelet says of claims."""
    yield from _judge_leftover([each for each in dra.leftover if wanted in ("", each.driver)])
    astray = {each.info.name: each for each in dra.astray if each.info}
    running = {each.name for each in dra.drivers if each.runs}
    for name in astray.keys() - running:
        if wanted in ("", name):
            yield _judge_astray(name, astray[name].path, dra.registry)
    if wanted and wanted not in {*dra.by_name, *astray}:
        yield _judge_unknown(wanted, [each.name for each in dra.drivers])
        return
    for driver in dra.drivers:
        if wanted in ("", driver.name):
            yield from _judge_driver(driver)
            yield from _judge_claims(driver)
    if dra.drivers:
        yield from _judge_kubelet(dra.kubelet)
    for device, claims in held_twice(dra.drivers):
        if wanted in ("", device.partition("/")[0]):
            yield _judge_twice(device, claims)


def _judge_leftover(files: Sequence[ClaimFile]) -> Iterator[Finding]:
    if files:
        yield Step.CDI.warning(
            some_of(str(each.path) for each in files),
            f"{counted(len(files), 'CDI file')} of claims that are gone: a driver was killed or "
            "removed while it unprepared them",
            "no container needs these files; a driver that starts removes its own",
            "kubedevices explain --fix",
        )


def judge_served(driver: DriverFacts, state: ResourceState | None) -> Iterator[Finding]:
    """Say that a driver has the devices of a resource, and which pods still have old ones."""
    yield Step.REGISTRATION.ok(
        f"driver {driver.name}",
        f"no device plugin offers it: the DRA driver {driver.name} serves it, to claims; "
        f"`kubedevices explain {driver.name}` says more",
    )
    held = [each for each in state.devices if each.held_by] if state else []
    if held:
        holders = dict.fromkeys(name for each in held for name in each.held_by)
        found = f"{counted(len(held), 'device')} of the device plugin held by {some_of(holders)}"
        yield Step.HELD.ok(f"driver {driver.name}", f"{found}, until these pods end")


def _judge_astray(name: str, socket: Path, registry: Path) -> Finding:
    return Step.DRIVER.problem(
        f"driver {name}",
        f"its registration socket is {socket}, but the kubelet of this host looks in {registry}: "
        "the driver is not registered",
        f"give the driver the kubelet's root directory {registry.parent}: a hostPath in its pod; "
        "`--kubelet-dir` for a driver of kubedevices",
    )


def _judge_unknown(wanted: str, known: Sequence[str]) -> Finding:
    meant = closest(wanted, known)
    return Step.DRIVER.problem(
        f"driver {wanted}",
        "no driver of this name has a registration socket, a claim or files here; known drivers: "
        f"{some_of(known) or 'none'}",
        f"did you mean {meant}?"
        if meant
        else "start the driver; look at its DaemonSet. Until then its claims stay unprepared, and "
        "their pods in ContainerCreating",
        shell_line(["kubedevices", "explain", meant]) if meant else FIND_PODS,
    )


# ---------------------------------------------------------------- does it run?


def _judge_driver(driver: DriverFacts) -> Iterator[Finding]:
    at = f"driver {driver.name}"
    if not driver.runs:
        yield from _judge_absent(driver, at)
    elif driver.dead:
        yield Step.DRIVER.warning(
            some_of(each.path.name for each in driver.dead),
            f"no process listens on it: an instance of {driver.name} was killed, another one runs",
            "remove it: the kubelet dials it again and again",
            "kubedevices explain --fix" if driver.files else _remove(driver.dead),
        )
    if len(driver.instances) > 1:
        yield Step.DRIVER.ok(
            at,
            f"{len(driver.instances)} instances are registered, as during an update: the kubelet "
            "calls the instance that registered last",
        )
    for each in driver.instances:
        yield from _judge_instance(at, each)
    if driver.files and driver.files.problem:
        yield Step.CLAIM.problem(
            at,
            driver.files.problem,
            "a driver that starts keeps the file under another name, and finds the held devices "
            "in the CDI files: see its log",
        )


def _remove(sockets: Iterable[RegistrySocket]) -> str:
    return shell_line(["rm", *(str(each.path) for each in sockets)])


def _judge_absent(driver: DriverFacts, at: str) -> Iterator[Finding]:
    prepared = [each for each in driver.claims if not each.unused]
    is_killed = f"; no process listens on {driver.dead[0].path.name}" if driver.dead else ""
    if driver.claims and not prepared:
        prepared = [*driver.claims]
    if not driver.is_seen:
        found = "the plugin registry cannot be read, so it is not known whether the driver runs"
        yield Step.DRIVER.unknown(at, found, "run this again as root of the host")
    elif prepared:
        yield Step.DRIVER.problem(
            at,
            f"the driver does not run, but has {counted(len(prepared), 'prepared claim')}: "
            f"their pods cannot end{is_killed}",
            "start the driver again: a pod ends when the driver has unprepared its claims",
            FIND_PODS,
        )
    elif driver.dead:
        yield Step.DRIVER.problem(
            at,
            f"the driver does not run: no process listens on {driver.dead[0].path.name}, so it was "
            "killed",
            "start the driver again; if it was uninstalled, remove the socket",
            _remove(driver.dead),
        )
    elif driver.files and driver.files.has_slices:
        yield Step.DRIVER.warning(
            at,
            "the driver does not run; the kubelet deletes its ResourceSlices after 30 seconds",
            "start the driver again",
        )


def _judge_instance(at: str, instance: RegistrySocket) -> Iterator[Finding]:
    assert instance.info is not None
    service, versions = instance.service, some_of(instance.info.supported_versions) or "no version"
    name = instance.path.name
    if not instance.has_known_api:
        yield Step.DRIVER.problem(
            at,
            f"{name} offers {versions}, which this kubelet cannot use: it refuses the driver",
            "update the driver: kubelets need v1.DRAPlugin or v1beta1.DRAPlugin",
        )
        return
    if service is None or service.refusal == NO_PERMISSION:
        yield Step.DRIVER.unknown(at, f"no permission to connect to {instance.info.endpoint}")
        return
    if service.refusal:
        why = "does not exist" if service.refusal == MISSING else "has no listener"
        yield Step.DRIVER.problem(
            at,
            f"{name} answers, but the socket for calls, {service.path}, {why}: the kubelet cannot "
            "call the driver, and no claim is prepared or unprepared",
            "restart the driver; its pod must mount the directory of this socket from the host",
            restart_of(instance.socket.listener if instance.socket else None),
        )
        return
    if stopped := judge_stopped(Step.DRIVER, at, service.listener, "prepares no claim"):
        yield stopped
        return
    found = f"{service.listener or UNSEEN} serves {versions} at {service.path}, found by {name}"
    if service.connections:
        found += ", and the kubelet is connected"
    yield Step.DRIVER.ok(at, found)


# ---------------------------------------------------------------- claims


def _judge_claims(driver: DriverFacts) -> Iterator[Finding]:
    at = f"driver {driver.name}"
    ready = [each for each in driver.claims if each.is_ready]
    if driver.runs or not driver.claims or not driver.is_seen:
        held = "; ".join(map(_told, ready))
        yield Step.CLAIM.ok(at, f"{counted(len(ready), 'claim')} prepared{held and f': {held}'}")
    for claim in driver.claims:
        yield from _judge_files(at, claim, runs=driver.runs)
    unused = [each for each in driver.claims if each.unused]
    for claim in unused:
        yield _judge_unused(at, claim)
    for name, reason in driver.files.refused.items() if driver.files else ():
        holder = next((claim for claim in unused if f" {claim.name} " in reason), None)
        advice = "the kubelet tries again by itself; the events of the pod have the same reason"
        command = _describe(name)
        if holder is not None:
            advice = f"no container has {holder.name}: if its pod is gone, free its devices"
            command = release_of(holder.name)
        yield Step.CLAIM.problem(at, f"{name} is not prepared: {reason}", advice, command)


def _told(claim: ClaimFacts) -> str:
    holders = f", held by {', '.join(claim.held_by)}" if claim.held_by else ""
    return f"{claim.name} has {', '.join(claim.devices) or 'no device'}{holders}"


def _judge_files(at: str, claim: ClaimFacts, *, runs: bool) -> Iterator[Finding]:
    if claim.lacks_file:
        yield Step.CLAIM.problem(
            at,
            f"{claim.name} is prepared, but its CDI file is missing: its containers do not start",
            "a driver that runs writes the file again within a second: see its log"
            if runs
            else "start the driver: it writes the file again",
        )
    for name, why in claim.unresolved:
        yield Step.CDI.problem(
            name,
            f"claim {claim.name} needs it, but {why}: its containers end in CreateContainerError",
            "the driver wrote no file for it, or another program deleted or overwrote the file; "
            "delete the pod, so that the claim is prepared again",
            shell_line(["kubedevices", "cdi", "resolve", name]),
        )


def _judge_unused(at: str, claim: ClaimFacts) -> Finding:
    found = f"{claim.name} is prepared and has {', '.join(claim.devices) or 'no device'}, but "
    found += claim.unused
    if not claim.is_ours:
        return Step.CLAIM.problem(
            at,
            found,
            "the kubelet calls the driver each minute to unprepare it, so the driver does not "
            "answer or refuses: the logs of the driver and of the kubelet say why",
            "journalctl --unit kubelet --grep NodeUnprepareResources",
        )
    advice = (
        "if its pod is gone, the driver asks the API server and frees the devices within minutes; "
        "to free them now:"
    )
    command = release_of(claim.name)
    if not claim.is_certain:
        return Step.CLAIM.warning(at, found, advice, command)
    return Step.CLAIM.problem(at, f"{found}: no other claim gets its devices", advice, command)


def _judge_kubelet(kubelet: KubeletClaims) -> Iterator[Finding]:
    if kubelet.problem:
        yield Step.CLAIM.problem(
            str(kubelet.path),
            f"it cannot be read: {kubelet.problem}",
            "a kubelet does not start with a damaged file. Without the file it forgets all claims: "
            "drain the node before you move it away",
            f"mv {kubelet.path} {kubelet.path}.damaged && systemctl restart kubelet",
        )


def _judge_twice(device: str, claims: Sequence[ClaimFacts]) -> Finding:
    return Step.CLAIM.problem(
        device,
        f"one device is held by {len(claims)} claims: {'; '.join(map(_told, claims))}",
        "end all but one of their pods, unless the claims have admin access; a driver must refuse "
        "to prepare a device twice",
        _describe(claims[-1].name),
    )


def _describe(claim: str) -> str:
    namespace, name = claim.split("/", 1)
    return shell_line(["kubectl", "--namespace", namespace, "describe", "resourceclaim", name])
