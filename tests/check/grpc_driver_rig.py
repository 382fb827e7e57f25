"""The driver on grpcio as a target of the check, good or with a defect."""

import sys
from dataclasses import replace
from pathlib import Path

from kubedevices.check.check import PluginCheck
from kubedevices.check.drivers.rights import Right
from kubedevices.check.drivers.rules import ALL, CATALOGUE
from kubedevices.check.drivers.target import DriverTarget
from kubedevices.check.drivers.timing import DriverTiming
from kubedevices.check.target import Trigger
from tests.check.grpc_driver.defects import rule_of
from tests.check.grpc_driver.inventory import USUAL

BAD = USUAL.replace("gpu-1", "gpu-1!")
COMMAND = (
    *(sys.executable, "-W", "error", "-m", "tests.check.grpc_driver"),
    *("--kubeconfig", "{kubeconfig}", "--node-name", "{node}"),
    *("--kubelet-dir", "{kubelet_dir}", "--cdi-dir", "{cdi_dir}", "--pod-uid", "{pod_uid}"),
)
HEAD = {"apiVersion": "grpc.example.com/v1", "kind": "DeviceConfig"}
PARAMETERS = (HEAD | {"mode": "safe", "level": 1}, HEAD | {"mode": "fast", "level": 2})
FAST = DriverTiming(
    published=15,
    start=30,
    again=8,
    repaired=25,
    stop=20,
    wiped=20,
    change=8,
    quiet=2,
    absent=0.2,
    before_kubelet=1,
    api_away=5,
    refusing=2,
)
"""Limits that hold on a busy machine; pauses as short as the rules allow."""

LONGER = {
    "register.kubelet-absent": replace(FAST, before_kubelet=7),
    "register.socket-wiped": replace(FAST, wiped=5),
    "register.two-instances": replace(FAST, start=12),
    "register.idle": replace(FAST, idle=8),
    "slices.refused": replace(FAST, repaired=8),
    "slices.node-recreated": replace(FAST, repaired=8),
    "prepare.deadline": replace(FAST, call=12),
    "process.dies": replace(FAST, quiet=8),
}
"""The defects that need other times: they wait themselves, or a rule waits for what never comes."""

MANY = f"{USUAL} " + " ".join(f"more-{number}" for number in range(130))
AFTER = {
    "unprepare.device-gone": USUAL.replace("gpu-1 ", ""),
    "slices.empty": "",
    "slices.generation": MANY,
    "slices.many": MANY,
}
"""The devices after the trigger, by rule; for other rules the second is broken."""

GRANTED = frozenset(
    {
        *(Right("resourceslices", verb) for verb in ("list", "watch", "create", "update")),
        Right("resourceslices", "delete"),
        Right("resourceclaims", "get"),
        Right("nodes", "get"),
    }
)
WRONG_ROLES = {
    "rights.unused": GRANTED | {Right("nodes", "delete")},
    "rights.wide": GRANTED | {Right("secrets", "get")},
    "rights.other-nodes": GRANTED,  # without an admission policy
}
"""Defects of the manifests of a good driver."""


def grpc_driver(file: Path, defect: str = "", after: str | None = None) -> DriverTarget:
    """Return the driver, whose devices the trigger replaces by `after`. They are in `file`."""
    rule = rule_of(defect)
    if after is None:
        after = AFTER.get(rule, BAD)
    file.write_text(USUAL)
    step = "echo '{}' > {}.new && mv {}.new {}"  # a scan never sees half of the file
    trigger = Trigger(step.format(after, *[file] * 3), undo=step.format(USUAL, *[file] * 3))
    broken = ("--defect", defect) if defect and rule not in WRONG_ROLES else ()
    return DriverTarget(
        (*COMMAND, "--devices", str(file), *broken),
        trigger=trigger,
        parameters=PARAMETERS,
        granted=WRONG_ROLES.get(rule, GRANTED),
        guarded=rule != "rights.other-nodes",
        long=rule == "register.idle",
    )


def with_needs(*wanted: str) -> list[PluginCheck]:
    """Return rules, and those that they need, in the order of reports."""
    todo, chosen = [*wanted], set()
    while todo:
        chosen.add(name := todo.pop())
        todo += {*CATALOGUE.find(name).needs} - chosen
    return [rule for rule in ALL if rule.id in chosen]
