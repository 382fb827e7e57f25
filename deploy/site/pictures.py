"""Draws the pictures of terminals in docs/images from the output of commands: `make pictures`."""

import asyncio
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubedevices.testing.api_server import ApiServer

IMAGES = Path(__file__).parents[2] / "docs/images"
PROGRAM = str(Path(sys.executable).parent / "kubedevices")
DEADLINE = 60
CONFIG = """\
resourceName: example.com/gpu
numberDevicesOnNode: 4
deviceIDPrefix: gpu
numaNodes: [0, 1]
timeline: [{at: 0s, set: {id: "*-3", health: Unhealthy}}]
"""
CHECKS = ("list.order", "list.second-stream", "allocate.unknown-id", "life.stop-code", "grpc.ping")
COLORS = {
    "Healthy|pass|connected": "#7ee787",
    "Unhealthy|fail": "#ff7b72",
    "warn": "#d29922",
}
WIDTH, HEIGHT, MARGIN = 8.4, 19, 14
"""Pixels: width and height of a character in a font of 14 pixels, and the margin of the text."""


def main(directory: Path = IMAGES) -> None:
    """Write all pictures of terminals."""
    for name, text in pictures().items():
        (directory / name).write_text(text, encoding="utf-8")


def pictures() -> dict[str, str]:
    """Return the text of each picture, by the name of its file."""
    with tempfile.TemporaryDirectory(prefix="kd-pictures-", dir="/tmp") as made:
        directory = Path(made)
        return {
            "devices.svg": terminal("kubedevices devices", devices(directory)),
            "cluster.svg": terminal("kubedevices devices --cluster", cluster(directory)),
            "check.svg": terminal("kubedevices check -- my-plugin", check(directory)),
        }


def devices(directory: Path) -> str:
    """Return the output of `devices` on a node on which a pod holds two of four GPUs."""
    (directory / "gpus.yaml").write_text(CONFIG)
    sockets = ("--socket-dir", "plugins")
    plugin = ("simulate", "--config", "gpus.yaml", "--node-name", "n1", *sockets)
    with running(directory, "node", *sockets), running(directory, *plugin):
        run(directory, "wait", "example.com/gpu", "--allocatable", "3", *sockets)
        run(directory, "allocate", "example.com/gpu=2", "--pod-name", "training", *sockets)
        deadline = time.monotonic() + DEADLINE
        while "Unhealthy" not in (text := run(directory, "devices", *sockets)):
            if time.monotonic() > deadline:
                raise SystemExit(f"no device became Unhealthy: {text}")
            time.sleep(0.1)
        return text


def cluster(directory: Path) -> str:
    """Return the output of `devices --cluster` for two nodes, a DRA driver and a device plugin."""
    return asyncio.run(_cluster(directory))


async def _cluster(directory: Path) -> str:
    driver, resource = "gpu.example.com", "example.com/nic"
    taint = {"key": "example.com/ecc", "effect": "NoSchedule"}
    async with ApiServer().running() as server:
        for node in ("node1", "node2"):
            numbers = {"capacity": {resource: "4"}, "allocatable": {resource: "4"}}
            server.put("nodes", {"metadata": {"name": node}, "status": numbers})
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            found: list[dict[str, object]] = [{"name": "gpu-0"}, {"name": "gpu-1"}]
            if node == "node2":
                found[1]["taints"] = [taint]
            spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": found}
            server.put("resourceslices", {"metadata": {"name": f"{node}-gpu"}, "spec": spec})
        server.put("deviceclasses", {"metadata": {"name": driver}, "spec": {}})
        request = {"name": "gpu", "exactly": {"deviceClassName": driver}}
        for name, node in (("train", "node1"), ("bert", "node2")):
            metadata = {"name": name, "namespace": "ml", "uid": name}
            spec = {"devices": {"requests": [request]}}
            server.put("resourceclaims", {"metadata": metadata, "spec": spec})
            limits = {"limits": {resource: "2"}} if name == "bert" else {}
            pod = {
                "nodeName": node,
                "containers": [{"name": "main", "resources": limits}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            }
            running = {"phase": "Running"}
            server.put("pods", {"metadata": metadata, "spec": pod, "status": running})
            server.allocate(name, name, node, "ml")
        (directory / "config").write_text(server.kubeconfig())
        words = ("devices", "--cluster", "--kubeconfig", "config")
        return await asyncio.to_thread(run, directory, *words)


def check(directory: Path) -> str:
    """Return the output of a few checks of the simulator."""
    plugin = (PROGRAM, "simulate", "--socket-dir", "{socket_dir}")
    text = run(directory, "check", "--only", *CHECKS, "--", *plugin)
    return re.sub("^.*simulate.*\n", "", text, flags=re.MULTILINE)


def need(program: str) -> None:
    """End with a message if `program` is missing. Its Debian package must have the same name."""
    if shutil.which(program) is None:
        raise SystemExit(f"{program} is missing: apt-get install {program}")


@contextmanager
def running(directory: Path, *words: str) -> Iterator[None]:
    """Run a command of kubedevices until the end of the context."""
    (directory / "plugins").mkdir(exist_ok=True)
    log = (directory / f"{words[0]}.log").open("w")
    with log, subprocess.Popen([PROGRAM, *words], cwd=directory, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


def run(directory: Path, *words: str) -> str:
    """Run a command of kubedevices; return its output."""
    done = subprocess.run(
        [PROGRAM, *words],
        cwd=directory,
        env=os.environ | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def terminal(command: str, text: str) -> str:
    """Return a picture (SVG) of a terminal. Its text is real text, so a search finds it."""
    lines = [f"$ {command}", *text.rstrip().splitlines()]
    width = int(max(map(len, lines)) * WIDTH) + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * (i + 0.75):g}">{_colored(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="ui-monospace, monospace" font-size="14" fill="#e6edf3" '
        'style="white-space: pre">\n'
        f"<title>{html.escape(command)}</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n{rows}\n</svg>\n'
    )


def _colored(line: str) -> str:
    found = html.escape(line, quote=False)
    for words, color in COLORS.items():
        found = re.sub(rf"\b({words})\b", rf'<tspan fill="{color}">\1</tspan>', found)
    return found.replace("  ", "\u00a0 ")


if __name__ == "__main__":
    main()
