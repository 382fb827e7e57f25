"""Draws the Grafana dashboard from the answers of a Prometheus to its queries: `make pictures`.

The picture is not a screenshot of Grafana, because Debian has no package of Grafana. Panels,
places, titles and queries come from deploy/grafana/kubedevices.json.
"""

import html
import itertools
import json
import math
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.site.pictures import DEADLINE, IMAGES, PROGRAM, need, run, running

from kubedevices.manifests.dashboard import dashboard

SECONDS = 90
"""How long the Prometheus scrapes the plugin."""
CONFIG = """\
resourceName: example.com/gpu
numberDevicesOnNode: 8
deviceIDPrefix: gpu
faults: {failAllocateEvery: 9}
timeline:
- {at: 20s, set: {id: "*-7", health: Unhealthy}}
- {at: 55s, set: {id: "*-7", health: Healthy}}
"""
UNIT, GAP, HEAD = 38, 6, 24
"""Pixels: a column or row of Grafana's grid, the gap between panels, the title of a panel."""
COLUMNS = (0, 0.22, 0.5, 0.84)
"""Where the columns of a table begin, as parts of the width of the table."""
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830")


@dataclass(frozen=True)
class Series:
    """One time series of an answer. `points` are pairs of seconds since the start and a value."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


def main(file: Path = IMAGES / "dashboard.svg") -> None:
    """Run a node, a plugin and a Prometheus, admit and release pods, and draw the dashboard."""
    need("prometheus")
    with tempfile.TemporaryDirectory(prefix="kd-pictures-", dir="/tmp") as made, ExitStack() as end:
        directory, page, server = Path(made), _free_address(), _free_address()
        (directory / "gpus.yaml").write_text(CONFIG)
        (directory / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: plugin, static_configs: [{{targets: ['{page}']}}]}}]\n"
        )
        at = ("--socket-dir", "plugins")
        node = ("node", *at, "--pod-resources", "pods.sock")
        plugin: tuple[str, ...] = ("simulate", "--config", "gpus.yaml", "--node-name", "node1", *at)
        plugin += ("--listen", page, "--pod-resources", "pods.sock")
        prometheus = ["prometheus", "--config.file=prometheus.yml", "--log.level=error"]
        prometheus += ["--storage.tsdb.path=data", f"--web.listen-address={server}"]
        process = end.enter_context(subprocess.Popen(prometheus, cwd=directory))
        end.callback(process.terminate)
        with ExitStack() as first_node:
            first_node.enter_context(running(directory, *node))
            end.enter_context(running(directory, *plugin))
            began = _use(directory, SECONDS * 2 // 3)
        with running(directory, *node):
            run(directory, "wait", "example.com/gpu", "--allocatable", "8", *at)
            _use(directory, SECONDS // 3, first=100)
            answers = {
                panel["id"]: [
                    series
                    for target in panel["targets"]
                    for series in _ask(server, target, began, time.time())
                ]
                for panel in dashboard()["panels"]
            }
    file.write_text(drawn(answers), encoding="utf-8")


def _use(directory: Path, seconds: float, first: int = 0) -> float:
    """Admit pods with one or two devices, and release old pods; return the time of the start."""
    at = ("--socket-dir", "plugins")
    run(directory, "wait", "example.com/gpu", "--timeout", "1m", "--allocatable", "8", *at)
    began, pods = time.time(), list[str]()
    for number in itertools.count(first):
        if time.time() > began + seconds:
            break
        name = f"training-{number}"
        words = ["allocate", f"example.com/gpu={1 + number % 2}", "--pod-name", name, *at]
        done = subprocess.run(
            [PROGRAM, *words], cwd=directory, capture_output=True, timeout=DEADLINE, check=False
        )
        pods += [name] if done.returncode == 0 else []
        if len(pods) > 3:
            run(directory, "release", pods.pop(0), *at)
        time.sleep(2)
    return began


def _free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def _ask(server: str, target: Mapping[str, Any], start: float, end: float) -> list[Series]:
    """Return the answer to the query of a panel, with one point per second."""
    query = target["expr"].replace("$node", ".*").replace("$resource", ".*")
    query = query.replace("$__rate_interval", "20s")
    asked = {"query": query, "start": start, "end": end, "step": 1}
    url = f"http://{server}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
        found = json.load(answer)["data"]["result"]
    made = []
    for each in found:
        name = target.get("legendFormat") or ""
        for key, value in each["metric"].items():
            name = name.replace(f"{{{{{key}}}}}", value)
        points = [(at - start, float(value)) for at, value in each["values"]]
        made.append(Series(name, each["metric"], points))
    return made


def drawn(answers: Mapping[int, Sequence[Series]]) -> str:
    """Return the picture (SVG) of the dashboard; `answers` has the series of each panel by ID."""
    panels = dashboard()["panels"]
    width = 24 * UNIT + GAP
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) * UNIT + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="13" fill="#ccccdc">\n'
        "<title>The dashboard, drawn from the answers to its queries</title>\n"
        f'<rect width="{width}" height="{height}" fill="#111217"/>\n'
        + "\n".join(_panel(each, answers.get(each["id"], ())) for each in panels)
        + "\n</svg>\n"
    )


def _panel(panel: Mapping[str, Any], series: Sequence[Series]) -> str:
    place = panel["gridPos"]
    width, height = place["w"] * UNIT - GAP, place["h"] * UNIT - GAP
    draw = {"stat": _number, "timeseries": _lines, "table": _table}[panel["type"]]
    seconds = panel.get("fieldConfig", {}).get("defaults", {}).get("unit") == "s"
    return (
        f'<g transform="translate({place["x"] * UNIT + GAP},{place["y"] * UNIT + GAP})">'
        f'<rect width="{width}" height="{height}" rx="3" fill="#181b1f" stroke="#2c3235"/>'
        f'<text x="10" y="18" font-weight="bold">{html.escape(panel["title"])}</text>\n'
        f"{draw(series, width, height, seconds)}</g>"
    )


def _number(series: Sequence[Series], width: int, height: int, _: bool) -> str:
    value = series[0].points[-1][1] if series else 0
    at = f'x="{width / 2:g}" y="{height * 0.7:g}" text-anchor="middle"'
    return f'<text {at} font-size="44" fill="{COLORS[0]}">{value:g}</text>'


def _lines(series: Sequence[Series], width: int, height: int, seconds: bool) -> str:
    known = [(s.name, [p for p in s.points if math.isfinite(p[1])]) for s in series]
    highest = max((value for _, points in known for _, value in points), default=0) or 1
    left, bottom, legend = 66, height - 58, height - 26
    last = max((at for _, points in known for at, _ in points), default=1) or 1

    def x(at: float) -> float:
        return left + at / last * (width - left - 12)

    def y(value: float) -> float:
        return bottom - value / (highest * 1.1) * (bottom - HEAD - 10)

    parts = []
    for part in (0, 0.5, 1):
        value, high = part * highest, y(part * highest)
        said = f"{value * 1000:.3g} ms" if seconds else f"{value:.3g}"
        parts.append(f'<path d="M{left} {high:.0f}H{width - 12}" stroke="#2c3235"/>')
        parts.append(f'<text x="{left - 5}" y="{high + 4:.0f}" text-anchor="end">{said}</text>')
    parts += [
        f'<text x="{x(at):.0f}" y="{bottom + 16}" text-anchor="middle">{at} s</text>'
        for at in range(0, int(last) + 1, 30)
    ]
    beside = 12
    for (name, points), color in zip(known, itertools.cycle(COLORS), strict=False):
        needs = 28 + int(len(name) * 6.2)
        if beside + needs > width:
            beside, legend = 12, legend + 16
        line = " ".join(f"{x(at):.0f},{y(value):.0f}" for at, value in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<rect x="{beside}" y="{legend - 6}" width="12" height="3" fill="{color}"/>')
        parts.append(
            f'<text x="{beside + 17}" y="{legend}" font-size="11">{html.escape(name)}</text>'
        )
        beside += needs
    return "\n".join(parts)


def _table(series: Sequence[Series], width: int, _height: int, _seconds: bool) -> str:
    end = max((each.points[-1][0] for each in series), default=0)
    now = [each for each in series if each.points[-1][0] == end]
    rows = [("namespace", "pod", "resource", "devices")]
    rows += [
        (
            each.labels.get("pod_namespace", ""),
            each.labels.get("pod_name", ""),
            each.labels.get("resource", ""),
            f"{each.points[-1][1]:g}",
        )
        for each in sorted(now, key=lambda each: (-each.points[-1][1], each.labels["pod_name"]))
    ]
    return "\n".join(
        f'<text x="{12 + column * width:.0f}" y="{HEAD + 22 + row * 24}">{html.escape(cell)}</text>'
        for row, cells in enumerate(rows)
        for column, cell in zip(COLUMNS, cells, strict=True)
    )


if __name__ == "__main__":
    main()
