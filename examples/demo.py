"""`make demo`: a container gets a device of this host, without Kubernetes.

Each step prints its title and its reason. The demo runs in a temporary directory and removes this
directory at the end. Without root, runc or busybox, the demo says so and leaves out the container.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent
KUBEDEVICES = str(Path(sys.executable).with_name("kubedevices"))
HOST_DOMAIN = "devices.example.com"
WANTED = ("fuse", "kvm", "tun", "hwrng", "loop", "serial")
DEADLINE = 20

_COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def say(text: str, style: str = "") -> None:
    """Print a line; `style` is an ANSI code, used only on a terminal."""
    print(f"\x1b[{style}m{text}\x1b[0m" if _COLOUR and style else text, flush=True)


class DemoFailed(Exception):
    """A step did not have the expected result; the message says which result is missing."""


class Demo:
    """The state of the demo: its directory, running processes, and notes for the summary."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sockets = directory / "plugins"
        self.sockets.mkdir()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.steps = 0
        self.missing: list[str] = []

    def step(self, title: str, why: str) -> None:
        """Print the title of the next step, and its reason."""
        self.steps += 1
        say(f"\n{self.steps}. {title}", "1;36")
        say(f"   {why}", "2")

    # ------------------------------------------------------------ commands

    def start(self, name: str, *arguments: str, note: str = "") -> None:
        """Start a kubedevices command in the background; its output goes to a log file."""
        if note:
            say(f"   $ {note} &", "32")
        log = (self.directory / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                [KUBEDEVICES, *arguments, "--socket-dir", str(self.sockets)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self, name: str) -> None:
        """Stop a background command and wait for its end."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a kubedevices command and wait for its end."""
        return subprocess.run(
            [KUBEDEVICES, *arguments, "--socket-dir", str(self.sockets)],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    def show(self, command: str, *arguments: str, allowed_to_fail: bool = False) -> None:
        """Run a command; print the command and its output."""
        say(f"   $ {command}", "32")
        done = self.ask(*arguments)
        for line in (done.stdout + done.stderr).splitlines():
            say(f"     {line}")
        if done.returncode and not allowed_to_fail:
            raise DemoFailed(f"`{command}` ended with exit code {done.returncode}")

    def answer(self, *arguments: str) -> Any:
        """Run a command with `-o json` and return the decoded output."""
        done = self.ask(*arguments, "-o", "json")
        if done.returncode:
            raise DemoFailed(done.stderr.strip())
        return json.loads(done.stdout)

    def resources(self) -> dict[str, dict[str, Any]]:
        """Return the numbers of each resource of the node, by resource name."""
        return {item["resource"]: item for item in self.answer("devices")["resources"]}

    def wait_until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for `condition`; return the seconds it took."""
        begin = time.monotonic()
        while not condition():
            for name, process in self.running.items():
                if process.poll() is not None:
                    log = (self.directory / f"{name}.log").read_text()
                    raise DemoFailed(f"{name} ended by itself:\n{log}")
            if time.monotonic() - begin > DEADLINE:
                raise DemoFailed(f"{what} did not happen within {DEADLINE} s")
            time.sleep(0.02)
        return time.monotonic() - begin

    def node_answers(self) -> bool:
        """Whether a node serves the directory."""
        return self.ask("devices").returncode == 0


# ---------------------------------------------------------------- the steps


def start_the_node(demo: Demo) -> None:
    demo.step("A node", "The node acts as the kubelet: plugins register at its kubelet.sock.")
    demo.start("node", "node", note="kubedevices node")
    demo.wait_until(demo.node_answers, "the node's answer")


def expose_the_host(demo: Demo) -> None:
    demo.step(
        "Real devices of this host",
        "A YAML file chooses files in /dev; scan shows the files that exist, expose serves them.",
    )
    config = str(EXAMPLES / "host-devices.yaml")
    say("   $ kubedevices scan --config examples/host-devices.yaml", "32")
    scan = subprocess.run(
        [KUBEDEVICES, "scan", "--config", config],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if scan.returncode:
        raise DemoFailed(scan.stderr.strip())
    for line in scan.stdout.splitlines():
        say(f"     {line}")
    demo.start(
        "expose",
        "expose",
        "--config",
        config,
        note="kubedevices expose --config examples/host-devices.yaml",
    )


def simulate_gpus(demo: Demo) -> None:
    demo.step(
        "Eight simulated GPUs on two NUMA nodes",
        "To develop a scheduler, an operator or a test without this hardware.",
    )
    config = str(EXAMPLES / "simulate-two-numa-nodes.yaml")
    demo.start(
        "simulate", "simulate", "--config", config,
        note="kubedevices simulate --config examples/simulate-two-numa-nodes.yaml",
    )  # fmt: skip

    def all_there() -> bool:
        found = demo.resources()
        gpus = found.get("example.com/gpu", {}).get("allocatable") == 8
        return gpus and any(name.startswith(HOST_DOMAIN) for name in found)

    demo.wait_until(all_there, "the registration of both plugins")
    demo.show("kubedevices devices", "devices")


def host_resource(demo: Demo) -> str:
    """Choose a resource of this host whose device files a container does not have by default."""
    found = demo.resources()
    for name in WANTED:
        resource = f"{HOST_DOMAIN}/{name}"
        if found.get(resource, {}).get("allocatable"):
            return resource
    return ""


def admit_pods(demo: Demo) -> tuple[str, dict[str, Any]]:
    demo.step(
        "Two pods",
        "Ordinary Pod manifests. A pod gets all devices that it requests, or the node rejects it.",
    )
    manifest = (EXAMPLES / "pod-training.yaml").read_text()
    resource = host_resource(demo)
    if resource != f"{HOST_DOMAIN}/fuse":
        line = "        devices.example.com/fuse: 1\n"
        manifest = manifest.replace(line, f"        {resource}: 1\n" if resource else "")
        replacement = resource or "no host device"
        demo.missing.append(f"/dev/fuse: the pod requests {replacement} instead")
    pod = demo.directory / "pod-training.yaml"
    pod.write_text(manifest)
    training = demo.answer("allocate", "--pod", str(pod))
    demo.show(
        "kubedevices allocate --pod examples/pod-training.yaml", "allocate", "--pod", str(pod)
    )
    inference = str(EXAMPLES / "pod-inference.yaml")
    demo.show(
        "kubedevices allocate --pod examples/pod-inference.yaml", "allocate", "--pod", inference
    )
    say("   A pod that requests more GPUs than available gets the error text of a kubelet:", "2")
    demo.show(
        "kubedevices allocate example.com/gpu=9", "allocate", "example.com/gpu=9",
        allowed_to_fail=True,
    )  # fmt: skip
    return resource, training


def show_holders(demo: Demo, training: dict[str, Any]) -> dict[str, Any]:
    demo.step(
        "Which pod holds which device, and what the container gets",
        "The runtime needs the plugins' answers, merged over all resources of the container.",
    )
    demo.show("kubedevices devices example.com/gpu", "devices", "example.com/gpu")
    (train,) = (item for item in training["containers"] if item["name"] == "train")
    options: dict[str, Any] = train["options"]
    say("   options of the container `train`:")
    for key, value in options.items():
        if value:
            say(f"     {key}: {json.dumps(value)}")
    return options


def run_container(demo: Demo, resource: str, options: dict[str, Any]) -> None:
    demo.step(
        "A real container",
        "runc starts the container with these options. The container tries to open its device, and "
        "a device that it did not get.",
    )
    lacking = []
    if os.geteuid() != 0:
        lacking.append("root")
    lacking += [name for name in ("runc", "busybox") if not shutil.which(name)]
    if not resource:
        lacking.append("a device file that containers do not have by default")
    if lacking:
        demo.missing.append(
            f"{', '.join(lacking)}: no container was started "
            "(as root: `make test-deps` installs runc and busybox, then `make demo`)"
        )
        say(f"   left out: this host lacks {', '.join(lacking)}")
        return
    from examples.demo_container import prove_access  # noqa: PLC0415 - only needed with runc

    for line in prove_access(demo.directory / "bundle", options):
        say(f"     {line}", "32" if line.startswith("opened") else "")


def restart_the_node(demo: Demo) -> None:
    demo.step(
        "The node restarts",
        "Plugins must notice the restart and register again; many plugins in use do not.",
    )
    before = {name: item["allocatable"] for name, item in demo.resources().items()}
    demo.stop("node")
    say("   node stopped; kubelet.sock is gone, the plugins continue")
    demo.start("node", "node", note="kubedevices node")
    begin = time.monotonic()
    demo.wait_until((demo.sockets / "kubelet.sock").exists, "kubelet.sock")
    up = time.monotonic()

    def all_back() -> bool:
        if not demo.node_answers():
            return False
        return before == {name: item["allocatable"] for name, item in demo.resources().items()}

    demo.wait_until(all_back, "the new registration of all plugins")
    say(
        f"   node up after {up - begin:.1f} s, all {len(before)} resources back and allocatable "
        f"at most {time.monotonic() - up:.1f} s later"
    )


def summarise(demo: Demo, seconds: float) -> None:
    say("\nDone", "1;32")
    say(
        f"{demo.steps} steps in {seconds:.0f} s: a node allocated host devices and simulated "
        "devices to two pods, and all plugins registered again after a restart of the node."
    )
    for line in demo.missing:
        say(f"  without {line}")
    say("Next: README.md for the ten-line plugin, `kubedevices --help` for every verb.")


@contextlib.contextmanager
def stage() -> Iterator[Demo]:
    """Create the directory of the demo; stop all processes and remove the directory at the end."""
    directory = Path(tempfile.mkdtemp(prefix="kubedevices-demo-", dir="/tmp"))
    demo = Demo(directory)
    try:
        yield demo
    finally:
        for name in list(demo.running):
            demo.stop(name)
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    """Run all steps; return the exit code."""
    say("kubedevices: a container gets a device of this host", "1")
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with stage() as demo:
            start_the_node(demo)
            expose_the_host(demo)
            simulate_gpus(demo)
            resource, training = admit_pods(demo)
            options = show_holders(demo, training)
            run_container(demo, resource, options)
            restart_the_node(demo)
            summarise(demo, time.monotonic() - begin)
    except DemoFailed as error:
        say(f"\nThe demo failed: {error}", "1;31")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
