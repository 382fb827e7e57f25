"""Rights of a DRA driver: what its manifests give it, and what it used."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.drivers.rights import Right, granted_by, is_granted, least_role
from kubedevices.check.drivers.rules import ALL
from kubedevices.check.drivers.run import run_driver
from kubedevices.cli import main
from tests.check.test_drivers import LONG, driver

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
        (USED | {Right("secrets", "get")}, {"wide": "get secrets"}),
        (USED | {Right("pods", "*")}, {"wide": "* pods"}),
        (frozenset(), dict.fromkeys(("missing", "unused", "wide"), "no ClusterRole")),
    ],
    ids=["enough", "missing", "unused", "secrets", "wildcard", "none"],
)
async def test_the_role_is_compared_with_what_the_driver_did(
    granted: frozenset[Right], found: dict[str, str]
) -> None:
    """In a run with a rule that makes it publish and prepare."""
    chosen = [rule for rule in ALL if rule.theme == "rights" or rule.id == "prepare.answers"]
    ran = await run_driver(replace(driver("none"), granted=granted), chosen, LONG)
    seen = {
        each.check.id: each.verdict.evidence for each in ran.results if each.status.value != "pass"
    }
    assert seen.keys() == {f"rights.{name}" for name in found}
    for name, words in found.items():
        assert words in seen[f"rights.{name}"]
    assert granted_by([{"kind": "ClusterRole", "rules": ran.role}]) == USED


def test_manifests_are_given_on_the_command_line(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is none, or that cannot be read, is an error with its name."""
    file = short_dir / "role.yaml"
    file.write_text(ROLE)
    chosen = ["check", "--only", "rights.missing", "-o", "json", "--manifests", str(file)]
    assert main([*chosen, "--", *driver("none").command]) == 1
    document = json.loads(capsys.readouterr().out)
    (check,) = document["checks"]
    assert check["evidence"].startswith("not granted: get nodes, create resourceslices")
    assert document["role"][0]["resources"] == ["nodes"]
    file.write_text("rules: [")
    assert main([*chosen, "--", *driver("none").command]) == 2
    assert "role.yaml" in capsys.readouterr().err
    file.unlink()
    assert main([*chosen, "--", *driver("none").command]) == 3
    assert "No such file" in capsys.readouterr().err
