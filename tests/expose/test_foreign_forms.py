"""Each form in which people have the settings of other plugins becomes a file that expose reads."""

# ruff: noqa: E501 - each form is one text

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import main
from kubedevices.errors import ConfigError
from kubedevices.expose.foreign_configs import Converted, convert

FUSE = "- name: fuse\n  groups:\n  - count: 10\n    paths: [{path: /dev/fuse}]\n"
SMARTER = "- devicematch: ^fuse$\n  nummaxdevices: 20\n"
DAEMON_SET = """\
---
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - {name: x, image: %s, args: [--config, /etc/x.yaml%s], env: [%s]}
"""


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


CONFIG_MAP = f"kind: ConfigMap\ndata:\n  config.yaml: |\n    devices:\n{indented(FUSE, 4)}"
IN_CHART = f"data: |\n  devices:\n{indented(FUSE, 2)}"
MICROSHIFT = f"dns: {{baseDomain: x}}\ngenericDevicePlugin:\n  status: Enabled\n  devices:\n{indented(FUSE, 2)}"
SHOWN = """\
genericDevicePlugin:
  status: Enabled
  devices:
  - name: fuse
    groups:
    - count: 10
      paths: [{limit: 1, mountPath: /dev/fuse, path: /dev/fuse, permissions: mrw, readOnly: false,
               type: Device}]
      usbs: [{product: "", serial: "", vendor: ""}]
"""

GENERIC: dict[str, tuple[str, str]] = {
    "domain in the arguments of the DaemonSet": (
        CONFIG_MAP + DAEMON_SET % ("a/b:latest", ", --domain, h.com", ""), "h.com",
    ),
    "domain in one word": (CONFIG_MAP + DAEMON_SET % ("x", ", --domain=h.com", ""), "h.com"),
    "domain in a variable": (
        CONFIG_MAP + DAEMON_SET % ("x", "", "{name: DOMAIN, value: h.com}"), "h.com",
    ),
    "domain by a variable": (
        CONFIG_MAP + DAEMON_SET % ("x", ", --domain=$(D)", "{name: D, value: h.com}"), "h.com",
    ),
    "the DaemonSet first": (
        (DAEMON_SET % ("x", ", --domain, h.com", ""))[4:] + "---\n" + CONFIG_MAP, "h.com",
    ),
    "an old image": (CONFIG_MAP + DAEMON_SET % ("r.io:5000/a/b:v0.1.3", "", ""), "squat.ai"),
    "a new image": (CONFIG_MAP + DAEMON_SET % ("a/b:0.2.0@sha256:00", "", ""), "devic.es"),
    "no domain": (f"devices:\n{FUSE}", "devic.es"),
    "MicroShift": (MICROSHIFT, "device.microshift.io"),
    "MicroShift with a domain": (MICROSHIFT + "  domain: h.com\n", "h.com"),
    "microshift show-config": (SHOWN, "device.microshift.io"),
    "values with a text": (f"env: {{DOMAIN: h.com}}\nconfig:\n{indented(IN_CHART, 2)}", "h.com"),
    "values with a list": (f"devices:\n{FUSE}resources: {{}}\nnamespace: x\n", "devic.es"),
    "values of a chart in a chart": (
        f"gdp:\n  config:\n{indented(IN_CHART, 4)}  env: [{{name: DOMAIN, value: h.com}}]\n", "h.com",
    ),
    "values with arguments": (
        "extraArgs: [--domain, h.com, --device, '{name: fuse, groups: [{count: 10, paths: [{path: /dev/fuse}]}]}']\n",
        "h.com",
    ),
    "HelmRelease": (
        f"kind: HelmRelease\nspec:\n  values:\n    domain: h.com\n    config:\n{indented(IN_CHART, 6)}",
        "h.com",
    ),
    "HelmChart of k3s": (
        f"kind: HelmChart\nspec:\n  valuesContent: |\n    config:\n{indented(IN_CHART, 6)}", "devic.es",
    ),
    "Application of Argo": (
        f"kind: Application\nspec:\n  source:\n    helm:\n      valuesObject:\n        devices:\n{indented(FUSE, 8)}",
        "devic.es",
    ),
}  # fmt: skip


def converted(tmp_path: Path, text: str) -> Converted:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    return convert(file)


@pytest.mark.parametrize("form", GENERIC)
def test_a_form_of_generic_device_plugin(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The devices, and the domain for which pods ask; the output passes `expose --check`."""
    text, domain = GENERIC[form]
    result = converted(tmp_path, text)
    assert result.document["namespace"] == domain
    (resource,) = result.document["resources"]
    assert (resource["name"], resource["match"]) == ("fuse", [{"path": "/dev/fuse"}])
    assert resource["replicas"] == 10
    names_both = any("squat.ai" in note and "devic.es" in note for note in result.notes)
    assert names_both == (domain == "devic.es" and "image" not in form)
    assert main(["expose", "--convert", str(tmp_path / "f.yaml")]) == 0
    (tmp_path / "out.yaml").write_text(capsys.readouterr().out)
    assert main(["expose", "--config", str(tmp_path / "out.yaml"), "--check"]) == 0


@pytest.mark.parametrize(
    "text",
    [
        f"config:\n{SMARTER}affinity: {{}}\n",
        f"config: |\n{indented(SMARTER, 2)}",
        "kind: HelmRelease\nspec: {values: {config: [{devicematch: ^fuse$, nummaxdevices: 20}]}}\n",
        f"smarter:\n  config:\n    conf.yaml: |\n{indented(SMARTER, 6)}",
    ],
)  # fmt: skip
def test_a_form_of_smarter_device_manager(text: str, tmp_path: Path) -> None:
    """The values of its chart, alone or in an object that installs the chart."""
    result = converted(tmp_path, text)
    assert result.document["namespace"] == "smarter-devices"
    assert [each["name"] for each in result.document["resources"]] == ["fuse"]


@pytest.mark.parametrize(
    ("usb", "expected"),
    [
        (
            "{vendor: '0x1a86', product: '0x7523', serial: ''}",
            {"vendor": "1a86", "product": "7523"},
        ),
        ("{vendor: 0x403, product: 0X6001}", {"vendor": "0403", "product": "6001"}),
        ("{vendor: 1A86, serial: 007}", {"vendor": "1a86", "serial": "007"}),
        ("{vendor: 403}", {"vendor": "0403"}),
    ],
)
def test_numbers_of_usb_devices_are_read_as_by_the_plugin(
    usb: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    """Hexadecimal with or without quotes and `0x`; an empty text means any. `usbs` is `usb`."""
    text = f"domain: a.com\ndevices: [{{name: a, groups: [{{usbs: [{usb}]}}]}}]\n"
    (resource,) = converted(tmp_path, text).document["resources"]
    assert resource["match"] == [{"usb": expected}]


def test_what_is_left_out_is_named_and_the_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of the chart in a note; entries that expose cannot express or refuses with a reason."""
    text = (
        "domain: a.com\nresources: {limits: {memory: 20Mi}}\ndevices:\n"
        "- name: fuse\n  groups: [{paths: [{path: /dev/fuse}]}]\n"
        "- name: bad\n  groups: [{usb: [{vendor: zz}]}]\n"
        "- name: 'no name'\n  groups: [{paths: [{path: /dev/kvm}]}]\n"
    )
    (tmp_path / "f.yaml").write_text(text)
    assert main(["expose", "--convert", str(tmp_path / "f.yaml")]) == 1
    told = capsys.readouterr()
    assert "some entries are not converted" in told.err
    assert "# Note: resources: left out, not about devices (line 2)." in told.out
    assert "# Not converted: line 7: devices[1].groups[0].usb[0].vendor: 'zz' is no num" in told.out
    assert "# Not converted: expose refuses no name: resources[0].name:" in told.out
    assert [each["name"] for each in yaml.safe_load(told.out)["resources"]] == ["fuse"]


def test_a_misspelt_key_beside_the_devices_is_a_mistake(tmp_path: Path) -> None:
    """Only keys that charts have are left out silently."""
    with pytest.raises(ConfigError, match=r"unknown key .did you mean 'domain'"):
        converted(tmp_path, f"doman: a.com\ndevices:\n{FUSE}")


def test_pods_of_several_domains_do_not_say_which(tmp_path: Path) -> None:
    """The ConfigMap may belong to any of them."""
    pods = [DAEMON_SET % ("x", f", --domain, {name}.com", "") for name in "ab"]
    with pytest.raises(ConfigError, match=r"several domains: a\.com, b\.com"):
        converted(tmp_path, CONFIG_MAP + "".join(pods))


def test_a_plugin_that_is_off_is_noted(tmp_path: Path) -> None:
    """MicroShift serves no device then."""
    result = converted(tmp_path, MICROSHIFT.replace("Enabled", "Disabled"))
    assert any("not enabled" in note for note in result.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONFIG_MAP + DAEMON_SET % ("x/generic-device-plugin:0.2", "", "{name: DOMAIN, valueFrom: {configMapKeyRef: {name: a, key: b}}}"),
         "line 15: the domain (DOMAIN) is from another object, which is not in this file"),
        ((DAEMON_SET % ("x/generic-device-plugin", ', --device, "name: a\\ngroups: [{paths: [{path: /dev/a}]}]"', ""))[4:],
         "line 6: --config names /etc/x.yaml, which is not in this file"),
        (f"kind: HelmRelease\nspec:\n  valuesFrom: [{{kind: ConfigMap, name: more}}]\n  values:\n    {IN_CHART.replace(chr(10), chr(10) + '    ')}",
         "line 3: valuesFrom names ConfigMap more, which is not in this file"),
    ],
    ids=["domain", "config", "values"],
)  # fmt: skip
def test_what_another_object_has_is_named_and_the_code_is_1(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a resource or the domain would be lost without a word."""
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert main(["expose", "--convert", str(file)]) == 1
    assert f"# Not converted: {message}" in capsys.readouterr().out


def test_a_file_in_another_object_is_asked_for(tmp_path: Path) -> None:
    """Nothing can be converted; a container beside the plugin may have such an option, too."""
    file = tmp_path / "file.yaml"
    file.write_text((DAEMON_SET % ("x/generic-device-plugin", "", ""))[4:])
    with pytest.raises(
        ConfigError, match=r"--config names /etc/x\.yaml, .* put both into one file"
    ):
        convert(file)
    file.write_text((DAEMON_SET % ("x/other", "", ""))[4:])
    with pytest.raises(ConfigError, match="this is not a file of generic-device-plugin"):
        convert(file)
