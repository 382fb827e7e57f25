"""Settings of other plugins where their users have them: in manifests and in arguments."""

from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import CannotRead, ConfigError
from kubedevices.expose.foreign_configs import Converted, convert

DAEMON_SET = """\
apiVersion: v1
kind: Namespace
metadata: {name: devices}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: generic-device-plugin}
spec:
  template:
    spec:
      containers:
      - name: sidecar
        args: [--verbose]
      - name: plugin
        args:
        - --domain
        - edge.example.com
        - --device
        - |
          name: serial
          groups:
          - paths:
            - path: /dev/ttyUSB*
        - '--device={"name": "fuse", "groups": [{"count": 10, "paths": [{"path": "/dev/fuse"}]}]}'
        - --device
        - |
          name: odd
          groups:
          - paths:
            - path: /dev/a*
            - path: /dev/b*c*
"""
CONFIG_MAP = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  data:
    other.conf: "x = 1"
    conf.yaml: |
      - devicematch: ^fuse$
        nummaxdevices: 20
"""
ARGUMENTS = """\
--domain edge.example.com \\
  --device '{"name": "kvm", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}' \\
  --log-level=debug --device='{"name": "tun", "groups": [{"paths": [{"path": "/dev/net/tun"}]}]}'
"""


def converted(tmp_path: Path, text: str) -> Converted:
    file = tmp_path / "foreign.yaml"
    file.write_text(text)
    return convert(file)


def names(document: dict[str, Any]) -> list[str]:
    return [f"{document['namespace']}/{each['name']}" for each in document["resources"]]


def test_a_daemon_set_has_devices_in_its_arguments(tmp_path: Path) -> None:
    """In one word or two, as blocks or in a line; what cannot be said has the line of the file."""
    result = converted(tmp_path, DAEMON_SET)
    assert names(result.document) == ["edge.example.com/serial", "edge.example.com/fuse"]
    (text,) = result.left_out
    line = DAEMON_SET.splitlines().index("            - path: /dev/b*c*") + 1
    assert text.startswith(
        f"line {line}: groups[0].paths[1]: it is not clear which file of /dev/b*c* belongs"
    )


def test_a_config_map_has_a_file_of_its_plugin(tmp_path: Path) -> None:
    """Other values of it, and other objects of the list, are none of our business."""
    result = converted(tmp_path, CONFIG_MAP)
    assert names(result.document) == ["smarter-devices/fuse"]
    assert result.document["resources"][0]["replicas"] == 20


@pytest.mark.parametrize("form", ["text", "list"])
def test_arguments_are_converted_as_they_stand(form: str, tmp_path: Path) -> None:
    """As a shell has them, or as a list of a manifest."""
    text = ARGUMENTS
    if form == "list":
        text = (
            "- --domain=edge.example.com\n- --device\n"
            "- '{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}'\n"
            "- '--device={name: tun, groups: [{paths: [{path: /dev/net/tun}]}]}'\n"
        )
    result = converted(tmp_path, text)
    assert names(result.document) == ["edge.example.com/kvm", "edge.example.com/tun"]


def test_objects_without_settings_are_refused(tmp_path: Path) -> None:
    """And so are two plugins of different domains, which one file cannot serve."""
    for text in (
        "kind: Service\n",
        "kind: DaemonSet\nspec: 5\n",
        "kind: ConfigMap\n",
        "- --device\n",
        "--verbose\n",
        "",
    ):
        with pytest.raises(ConfigError):
            converted(tmp_path, text)
    both = "\n---\n".join(
        f"kind: Pod\nspec:\n  containers:\n  - args: [--domain={domain}, --device, "
        "'{name: a, groups: [{paths: [{path: /a}]}]}']"
        for domain in ("a.b", "c.d")
    )
    with pytest.raises(ConfigError) as caught:
        converted(tmp_path, both)
    assert "resources of several domains: a.b, c.d" in str(caught.value.problems[0])
    with pytest.raises(CannotRead):
        convert(tmp_path / "none")
