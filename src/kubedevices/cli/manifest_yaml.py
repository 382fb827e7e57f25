"""Writes manifests as YAML that every reader of Kubernetes takes for the same."""

import re
from typing import Any


def as_yaml(documents: list[dict[str, Any]]) -> str:
    """Return documents as one YAML text; a text of several lines stays readable."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else "'" if _is_more_to_others(value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    dumped = [
        yaml.dump(each, Dumper=Dumper, sort_keys=False, default_flow_style=False)
        for each in documents
    ]
    return "---\n".join(dumped)


def _is_more_to_others(text: str) -> bool:
    """Whether kubectl or Helm read a text as true, false or a number, and PyYAML does not.

    To them `y` is true (YAML 1.1) and `1e3` a thousand (YAML 1.2).
    """
    if text in ("y", "Y", "n", "N"):
        return True
    number = "[-+]?([0-9][0-9_]*)?[.]?[0-9_]*([eE][-+]?[0-9]+)?|0o[0-7]+"
    return re.fullmatch(number, text) is not None
