"""Rights of a DRA driver: what its manifests give it, and what it used."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubedevices.check.drivers.rights import (
    Right,
    granted_by,
    guards_slices,
    is_granted,
    least_role,
)
from kubedevices.check.drivers.rules import ALL, CATALOGUE
from kubedevices.check.drivers.run import run_driver
from kubedevices.cli import main
from tests.check.grpc_driver_rig import FAST, grpc_driver
from tests.check.our_driver import simulator

ROLE = """\
apiVersion: v1
kind: Namespace
metadata: {name: here}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: driver}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceslices, resourceclaims], verbs: [get, list]}
- {nonResourceURLs: [/version], verbs: [get]}
"""
NAMES = ("missing", "unused", "wide", "other-nodes")
USED = frozenset(
    Right(*words.split())
    for words in (
        *("nodes get", "resourceclaims get"),
        *("resourceslices create", "resourceslices list", "resourceslices watch"),
    )
)


def test_rights_are_read_from_roles() -> None:
    """Of a List too; what has another form gives nothing."""
    rules = [{"resources": ["nodes"], "verbs": ["get", 3]}, "none", {"verbs": ["get"]}]
    role = {"kind": "Role", "rules": rules}
    assert granted_by([role, None, "text", {"kind": "Pod"}]) == {Right("nodes", "get")}
    assert granted_by([{"kind": "List", "items": [role, {"items": 3}]}]) == {Right("nodes", "get")}


@pytest.mark.parametrize(
    ("granted", "is_enough"),
    [(("*", "*"), True), (("nodes", "*"), True), (("*", "list"), False), (("pods", "get"), False)],
)
def test_a_wildcard_gives_each_right(granted: tuple[str, str], is_enough: bool) -> None:
    """Of its resource, or of its verb."""
    assert is_granted(Right("nodes", "get"), [Right(*granted)]) is is_enough


def test_the_least_role_has_a_rule_for_each_resource() -> None:
    """With its API group."""
    rules = least_role(USED)
    assert rules[0] == {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    assert rules[2]["apiGroups"] == ["resource.k8s.io"]
    assert rules[2]["verbs"] == ["create", "list", "watch"]
    assert granted_by([{"kind": "ClusterRole", "rules": rules}]) == USED


@pytest.mark.parametrize(
    ("granted", "found"),
    [
        (USED, {}),
        (USED - {Right("resourceslices", "create")}, {"missing": "create resourceslices"}),
        (USED | {Right("nodes", "delete")}, {"unused": "delete nodes"}),
        (USED | {Right("resourceslices", "delete")}, {}),  # of slices that are too many
        (USED | {Right("secrets", "get")}, {"wide": "get secrets"}),
        (USED | {Right("pods", "*")}, {"wide": "* pods"}),
        (frozenset(), dict.fromkeys(NAMES, "no ClusterRole")),
    ],
    ids=["enough", "missing", "unused", "beside", "secrets", "wildcard", "none"],
)
async def test_the_role_is_compared_with_what_the_driver_did(
    granted: frozenset[Right], found: dict[str, str], short_dir: Path
) -> None:
    """In a run with a rule that makes it publish and prepare."""
    chosen = [rule for rule in ALL if rule.theme == "rights" or rule.id == "prepare.answers"]
    target = replace(grpc_driver(short_dir / "devices"), granted=granted)
    ran = await run_driver(target, chosen, FAST)
    seen = {
        each.check.id: each.verdict.evidence for each in ran.results if each.status.value != "pass"
    }
    assert seen.keys() == {f"rights.{name}" for name in found}
    for name, words in found.items():
        assert words in seen[f"rights.{name}"]
    assert granted_by([{"kind": "ClusterRole", "rules": ran.role}]) == USED


async def test_a_run_without_a_claim_does_not_clear_a_role(short_dir: Path) -> None:
    """What a driver does for claims was not seen: nobody may trim its role by such a run."""
    target = replace(
        grpc_driver(short_dir / "devices"), granted=USED | {Right("resourceclaims", "delete")}
    )
    ran = await run_driver(target, [rule for rule in ALL if rule.theme == "rights"], FAST)
    tried = {each.check.id.partition(".")[2]: each.verdict for each in ran.results}
    assert {name for name, verdict in tried.items() if verdict.status.value == "skip"} == {
        "missing",
        "unused",
    }
    assert "choose prepare.answers too" in tried["unused"].evidence


def _policy(name: str, *resources: str) -> dict[str, Any]:
    constraints = {"resourceRules": [{"resources": [*resources]}]}
    spec = {"matchConstraints": constraints}
    return {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}


def _webhook(*resources: str) -> dict[str, Any]:
    webhooks = [{"rules": [{"resources": [*resources]}]}]
    return {"kind": "ValidatingWebhookConfiguration", "webhooks": webhooks}


BINDING = {"kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": "a"}}


@pytest.mark.parametrize(
    ("objects", "is_guarded"),
    [
        ([_policy("a", "resourceslices"), BINDING], True),
        ([{"kind": "List", "items": [BINDING, _policy("a", "*")]}], True),
        ([_policy("b", "resourceslices"), BINDING], False),
        ([_policy("a", "pods"), BINDING], False),
        ([_webhook("pods", "resourceslices")], True),
        ([_webhook("pods"), None, {"kind": "ValidatingAdmissionPolicy", "spec": 3}], False),
    ],
)
def test_an_admission_policy_is_found(objects: list[Any], is_guarded: bool) -> None:
    """With a binding, for ResourceSlices; a webhook too."""
    assert guards_slices(objects) is is_guarded


async def test_slices_of_other_nodes(short_dir: Path) -> None:
    """A role that may write slices needs an admission policy; our own manifests have one."""
    chosen = [CATALOGUE.find("rights.other-nodes")]
    target = replace(grpc_driver(short_dir / "devices"), granted=USED, guarded=False)
    (result,) = (await run_driver(target, chosen, FAST)).results
    assert (result.status, result.verdict.evidence) == (
        "warn",
        "the manifests have no admission policy for ResourceSlices with a Binding",
    )
    reading = frozenset(each for each in USED if each.verb != "create")
    (result,) = (await run_driver(replace(target, granted=reading), chosen, FAST)).results
    assert result.status == "pass"


def test_our_own_manifests_keep_all_rules_about_rights(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that `kubedevices manifests` prints."""
    image = ("--image", "registry.example.com/kubedevices:1")
    assert main(["manifests", "simulate", "--mode", "dra", *image]) == 0
    file = short_dir / "manifests.yaml"
    file.write_text(capsys.readouterr().out)
    chosen = ["check", "--only", "rights", "prepare.answers", "-o", "json"]
    assert main([*chosen, "--manifests", str(file), "--", *simulator().command]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {each["id"]: each["evidence"] for each in checks if each["status"] != "pass"}
    assert not {*found} - {"rights.unused"}, found


def test_manifests_are_given_on_the_command_line(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is none, or that cannot be read, is an error with its name."""
    file = short_dir / "role.yaml"
    file.write_text(ROLE)
    chosen = ["check", "--only", "rights.missing", "-o", "json", "--manifests", str(file)]
    command = grpc_driver(short_dir / "devices").command
    assert main([*chosen, "--", *command]) == 1
    document = json.loads(capsys.readouterr().out)
    (check,) = document["checks"]
    assert check["evidence"].startswith("not granted: get nodes, create resourceslices")
    assert document["role"][0]["resources"] == ["nodes"]
    file.write_text("rules: [")
    assert main([*chosen, "--", *command]) == 2
    assert "role.yaml" in capsys.readouterr().err
    file.unlink()
    assert main([*chosen, "--", *command]) == 3
    assert "No such file" in capsys.readouterr().err
