"""Creates docs/images/report.png, the HTML report of `check` in Chromium: `make pictures`."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.site.pictures import DEADLINE, IMAGES, PROGRAM, need

CONFIG = """\
resourceName: example.com/gpu
numberDevicesOnNode: 4
preferred: packed
faults: {failAllocateEvery: 2, wrongIDs: true}
"""
CHECKS = ("list.order", "allocate.repeatable", "preferred.answers", "life.stop-code")


def main(file: Path = IMAGES / "report.png") -> None:
    """Check a plugin with two mistakes, and take a screenshot of the report."""
    need("chromium")
    with tempfile.TemporaryDirectory(prefix="kd-pictures-", dir="/tmp") as made:
        directory = Path(made)
        (directory / "gpus.yaml").write_text(CONFIG)
        plugin = ("kubedevices", "simulate", "--config", "gpus.yaml", "--node-name", "node1")
        check = ("check", "--only", *CHECKS, "--html", "report.html", "--", *plugin)
        _run(directory, PROGRAM, *check, "--socket-dir", "{socket_dir}", exit_code=1)
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,830")
        picture = f"--screenshot={directory}/report.png"
        _run(directory, "chromium", *options, picture, f"file://{directory}/report.html")
        shutil.copy(directory / "report.png", file)


def _run(directory: Path, *words: str, exit_code: int = 0) -> None:
    """Run a command that must end with `exit_code`."""
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=directory,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode != exit_code:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
