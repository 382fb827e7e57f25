"""Writes the generated files of the Helm chart: `make chart`."""

import dataclasses
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

from kubedevices import __version__
from kubedevices.config.json_schema import make_schema
from kubedevices.config.keys import schema_fields
from kubedevices.manifests.alerts import ALERTS
from kubedevices.manifests.chart import ChartValues, as_written
from kubedevices.manifests.dashboard import dashboard
from kubedevices.manifests.deployment import EXAMPLE_CONFIG
from kubedevices.manifests.secret_directories import PATTERN

CHART = Path(__file__).parent / "kubedevices"
HEAD = """\
# Values of the chart, with their defaults. `kubedevices manifests PLUGIN ... --as-values`
# prints the values that a configuration needs, such as the directories that the pod must see.
"""
WIDTH = 100


def files(chart: Path = CHART) -> dict[str, str]:
    """Return the text of each generated file, by its path in the chart."""
    about = (chart / "Chart.yaml").read_text(encoding="utf-8")
    for name in ("version", "appVersion"):
        about = re.sub(f"^{name}: .*$", f"{name}: {__version__}", about, flags=re.MULTILINE)
    schema = make_schema(ChartValues, "Values of the chart kubedevices")
    # Helm adds the key `global` to the values of every chart.
    schema["properties"]["global"] = {"type": "object"}
    return {
        "Chart.yaml": about,
        "values.yaml": HEAD + "".join(_value(*each) for each in _fields()),
        "values.schema.json": json.dumps(schema, indent=2) + "\n",
        "files/secret-directories.txt": PATTERN + "\n",
        "files/example.yaml": EXAMPLE_CONFIG,
        "files/alerts.yaml": ALERTS,
        "files/dashboard.json": json.dumps(dashboard(), indent=1) + "\n",
    }


def _fields() -> list[tuple[str, str, Any]]:
    found = []
    for name, (field, _, rules) in schema_fields(ChartValues).items():
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if has_factory else field.default
        found.append((name, rules.meaning, default))
    # The values that say which plugin is deployed come first.
    return sorted(found, key=lambda each: each[0] not in ("plugin", "nameOverride", "image"))


def _value(name: str, meaning: str, default: Any) -> str:
    comment = textwrap.fill(
        meaning,
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if default is None:
        return f"\n{comment}\n# {name}:\n"
    return f"\n{comment}\n{yaml.safe_dump({name: _whole(default)}, sort_keys=False)}"


def _whole(value: Any) -> Any:
    """Return a default value with all nested keys that have a default."""
    if not dataclasses.is_dataclass(value):
        return as_written(value)
    return {
        name: _whole(default)
        for name, (field, _, _) in schema_fields(type(value)).items()
        if (default := getattr(value, field.name)) is not None
    }


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else CHART
    for path, text in files().items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
