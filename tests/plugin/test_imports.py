"""What a serving plugin process loads: each module costs memory on every node of a cluster."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import kubedevices as kd

class Widgets(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"widget": [kd.Device("w0", paths=["/dev/null"])]})

async def main():
    options = {"socket_dir": Path(sys.argv[1]), "registration": "none"}
    async with kd.serve(Widgets(), domain="example.com", **options) as plugin:
        while not plugin.is_serving("widget"):
            await asyncio.sleep(0.01)
        print(json.dumps(sorted(sys.modules)))

asyncio.run(main())
"""
THIRD_PARTY = {"asyncinotify", "google", "h2", "hpack", "hyperframe"}
OURS = {
    "allocation",
    "device",
    "device_tree",
    "errors",
    "host",
    "plugin",
    "resource_name",
    "socket_paths",
    "spelling",
    "wire",
}
NOT_NEEDED = {
    "concurrent.futures.process",
    "http.server",
    "importlib.resources",
    "multiprocessing",
    "sqlite3",
    "urllib.request",
    "xml",
    "zipfile",
}


def loaded(directory: Path) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


def test_a_plugin_loads_its_half_and_nothing_optional(short_dir: Path) -> None:
    """Not the node, no YAML, no tables, no metrics; and a few large modules of Python stay out."""
    modules = loaded(short_dir)
    tops = {name.partition(".")[0] for name in modules}
    known = {"kubedevices", *sys.stdlib_module_names, *THIRD_PARTY}
    assert {name for name in tops - known if not name.startswith(("_", "__"))} == set()
    ours = {name.split(".")[1] for name in modules if name.startswith("kubedevices.")}
    assert ours <= OURS
    assert not modules & NOT_NEEDED
