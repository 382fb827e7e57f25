"""`make demo-dra`: a node changes from device plugin to DRA and reboots; pods keep their devices.

KUBEDEVICES_KUBERNETES names a folder with the binaries of a Kubernetes release, see
docs/development/real-kubernetes.md. `--dir DIR` uses a cluster that already runs.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from examples.demo import KUBEDEVICES, DemoFailed, say
from tests.kubernetes.single_node.layout import program

FOLDER = "KUBEDEVICES_KUBERNETES"
DOMAIN = "demo.example.com"
RESOURCE = f"{DOMAIN}/gpu"
NAMESPACE = "demo-dra"
DEADLINE = 90
DEVICES = 3
_OF_THE_DRIVER = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DeviceClass")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: local/busybox:1
    command: [sh, -c, "tr '\\\\0' '\\\\n' </proc/1/environ | grep GPU_; sleep 1000000"]
    resources: {limits: {demo.example.com/gpu: 1}}
"""


class Story:
    """The cluster, the plugin on its node, and the steps so far."""

    def __init__(self, words: Sequence[str], directory: Path) -> None:
        self.directory = directory
        self.mode_file = directory / "demo-mode"
        self.words = [*words, "--dir", str(directory)]
        self._log = directory / "demo-plugin.log"
        self._config = directory / "demo.kubeconfig"
        self._plugin: subprocess.Popen[bytes] | None = None
        self._steps = 0

    def step(self, title: str, why: str) -> None:
        """Print the title of the next step, and its reason."""
        self._steps += 1
        say(f"\n{self._steps}. {title}", "1;36")
        say(f"   {why}", "2")

    # ------------------------------------------------------------ the cluster

    def run(
        self, *arguments: str, stdin: str = "", timeout: float = DEADLINE
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command of the cluster program and wait for its end."""
        words = [*self.words, *arguments]
        return subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )

    def __call__(self, *arguments: str, **options: Any) -> str:
        """Run a command that must succeed; return its output. Raises `DemoFailed`."""
        done = self.run(*arguments, **options)
        if done.returncode:
            raise DemoFailed(f"`{' '.join(arguments)}`: {done.stderr.strip() or done.stdout}")
        return done.stdout

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """Run kubectl as admin in the namespace of the demo."""
        return self("kubectl", f"--namespace={NAMESPACE}", *arguments, **options)

    def wait(self, what: str, condition: Callable[[], object]) -> float:
        """Wait until `condition()` is true; return the seconds. Raises `DemoFailed`."""
        began = time.monotonic()
        while not condition():
            if self._plugin is not None and self._plugin.poll() is not None:
                raise DemoFailed(f"the plugin ended by itself:\n{self._log.read_text()[-2000:]}")
            if time.monotonic() - began > DEADLINE:
                raise DemoFailed(f"not within {DEADLINE} s: {what}")
            time.sleep(0.2)
        return time.monotonic() - began

    # ------------------------------------------------------------ the plugin

    def allow(self) -> None:
        """Create an account with the rights of a driver, and a DeviceClass for the devices."""
        words = [KUBEDEVICES, "manifests", "simulate", "--mode-file", "/etc/demo/mode"]
        words += ["--namespace", NAMESPACE, "--name", "demo"]
        env = os.environ | {"RESOURCE_NAME": RESOURCE}
        printed = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
        import yaml  # noqa: PLC0415 - without a cluster, the demo ends before this line

        made = [each for each in yaml.safe_load_all(printed) if each["kind"] in _OF_THE_DRIVER]
        items = {"apiVersion": "v1", "kind": "List", "items": made}
        self("kubectl", "apply", "--filename=-", stdin=json.dumps(items))
        config = json.loads(self("kubectl", "config", "view", "--raw", "--output=json"))
        config["users"][0]["user"] = {"token": self.kubectl("create", "token", "demo").strip()}
        self._config.write_text(json.dumps(config))
        self._config.chmod(0o600)

    def choose(self, mode: str) -> None:
        """Write the mode file, as an administrator does."""
        say(f"   $ echo {mode} > /etc/kubedevices/mode", "32")
        self.mode_file.write_text(f"{mode}\n")

    def start(self) -> None:
        """Start the plugin as a service of the node."""
        words = [KUBEDEVICES, "simulate", "--resource-name", RESOURCE, "--env-prefix", "GPU"]
        words += ["--device-id-prefix", "gpu", "--number-devices", str(DEVICES)]
        words += ["--mode-file", str(self.mode_file), "--kubeconfig", str(self._config)]
        with self._log.open("wb") as log:
            self._plugin = subprocess.Popen(
                [*self.words, "exec", *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def serves(self) -> bool:
        """Whether the log names both sockets: of the device plugin and of the DRA driver."""
        text = self._log.read_text()
        return "device-plugins/" in text and "plugins_registry/" in text

    def stop(self) -> None:
        """Stop the plugin and wait for its end."""
        if self._plugin is not None:
            self._plugin.terminate()
            self._plugin.wait(30)
            self._plugin = None

    def forget(self) -> None:
        """Kill the plugin, because its node shuts down."""
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            plugin.kill()
            plugin.wait(30)

    # ------------------------------------------------------------ devices and pods

    def allocatable(self) -> int:
        """Return the allocatable devices of the node, which are devices of a device plugin."""
        (node,) = json.loads(self("kubectl", "get", "nodes", "--output=json"))["items"]
        return int(node["status"]["allocatable"].get(RESOURCE, 0))

    def published(self) -> list[str]:
        """Return the names of all devices in our ResourceSlices."""
        found = json.loads(self("kubectl", "get", "resourceslices", "--output=json"))["items"]
        ours = [each["spec"] for each in found if each["spec"]["driver"] == DOMAIN]
        return [device["name"] for spec in ours for device in spec.get("devices", [])]

    def pod(self, name: str) -> Any:
        """Return the object of a pod from the API server."""
        return json.loads(self.kubectl("get", "pod", name, "--output=json"))

    def device_of(self, name: str) -> str:
        """Wait until a pod runs; return its device, from the environment of its container."""
        ready = (f"pod/{name}", "--for=condition=Ready", f"--timeout={DEADLINE}s")
        self.kubectl("wait", *ready, timeout=DEADLINE + 30)
        self.wait("its environment", lambda: self.kubectl("logs", name))
        found = [line for line in self.kubectl("logs", name).splitlines() if "GPU_" in line]
        return found[0].partition("=")[0].removeprefix("GPU_") if len(found) == 1 else str(found)

    def show_pods(self, names: Sequence[str]) -> dict[str, str]:
        """Print each pod with its device and API; raise `DemoFailed` for a device of two pods."""
        devices = {name: self.device_of(name) for name in names}
        say(f"     {'POD':6} {'DEVICE':14} {'API':14} RESTARTS")
        for name, device in devices.items():
            status = self.pod(name)["status"]
            api = "DRA" if "extendedResourceClaimStatus" in status else "device plugin"
            restarts = status["containerStatuses"][0]["restartCount"]
            say(f"     {name:6} {device:14} {api:14} {restarts}")
        if len({*devices.values()}) < len(devices):
            raise DemoFailed("two pods have the same device")
        return devices

    def create_pod(self, name: str) -> None:
        """Create a pod that requests its device with `limits:`."""
        say(f"   $ kubectl create --filename pod-{name}.yaml", "32")
        self.kubectl("create", "--filename=-", stdin=POD.replace("NAME", name))


# ---------------------------------------------------------------- the steps


def as_device_plugin(story: Story) -> None:
    """Start the plugin as a device plugin, the API that every cluster has; create a pod."""
    story.step(
        "A scanner as a device plugin",
        f"Three simulated GPUs; pods have `limits: {{{RESOURCE}: 1}}`.",
    )
    story.allow()
    story.choose("device-plugin")
    say("   $ kubedevices simulate --mode-file /etc/kubedevices/mode …  &", "32")
    story.start()
    story.wait("the device plugin", lambda: story.allocatable() == DEVICES)
    story.create_pod("one")
    story.show_pods(["one"])


def switch(story: Story) -> None:
    """Change the mode while the pod runs."""
    story.step(
        "The administrator changes the mode of the node",
        "No restart. DRA does not offer the device of the running pod until the pod ends.",
    )
    story.choose("dra")
    took = story.wait("two devices in DRA", lambda: len(story.published()) == DEVICES - 1)
    say(f"     ResourceSlices after {took:.1f} s: {', '.join(sorted(story.published()))}")
    say(f"     device plugin: {story.allocatable()} allocatable")


def second_pod(story: Story) -> dict[str, str]:
    """Create a second pod from the same manifest; the scheduler uses DRA for this pod."""
    story.step(
        "A second pod with the same manifest",
        "The pod gets its device through DRA, and not the device of the first pod.",
    )
    story.create_pod("two")
    return story.show_pods(["one", "two"])


class Node(Protocol):
    """A node; `run` runs a command of its cluster."""

    directory: Path

    @property
    def run(self) -> "Callable[..., subprocess.CompletedProcess[str]]": ...

    @property
    def wait(self) -> Callable[[str, Callable[[], object]], object]: ...


def reboot_node(
    node: Node, words: Sequence[str], start: Callable[[], None], serves: Callable[[], bool]
) -> None:
    """Reboot the node; `start` starts the plugin before the kubelet, as systemd would do.

    The signals pause the reboot when the node runs and its kubelet does not run yet.
    """
    boot_id = node.directory / "boot_id"
    before = boot_id.read_text()
    reboot = subprocess.Popen([*words, "reboot"])

    def is_node_there() -> bool:
        """Whether the node runs; the reboot is paused during the question and if it does."""
        reboot.send_signal(signal.SIGSTOP)
        if not node.run("exec", "true").returncode:
            return True
        reboot.send_signal(signal.SIGCONT)
        return False

    try:
        deadline = time.monotonic() + DEADLINE
        while boot_id.read_text() in ("", before):
            if time.monotonic() > deadline:
                raise DemoFailed("the node does not boot")
            time.sleep(0.005)
        node.wait("the node", is_node_there)  # returns before the kubelet of the node runs
        try:
            start()
            node.wait("the sockets of the plugin", serves)
        finally:
            reboot.send_signal(signal.SIGCONT)
        if reboot.wait(120):
            raise DemoFailed("the node did not come back")
    finally:
        reboot.kill()


def reboot(story: Story, before: dict[str, str]) -> None:
    """Reboot the node; the plugin runs before the kubelet, as systemd would order them."""
    story.step(
        "The node reboots",
        "The kubelet admits the first pod again only if a device plugin lists its device.",
    )
    story.forget()
    reboot_node(story, story.words, story.start, story.serves)

    def is_back(name: str) -> bool:
        status = story.pod(name)["status"]
        if status["phase"] == "Failed":
            raise DemoFailed(f"pod {name}: {status.get('message')}")
        found = status.get("containerStatuses", [])
        return any("running" in each["state"] and each["restartCount"] for each in found)

    for name in before:
        story.wait(f"pod {name}", lambda name=name: is_back(name))  # type: ignore[misc]
    if story.show_pods([*before]) != before:
        raise DemoFailed("a pod came back with another device")


def end_of_the_first(story: Story, device: str) -> None:
    """Delete the first pod; then DRA offers its device."""
    story.step(
        "The first pod ends", "Its device is free, so DRA offers it too. The change is complete."
    )
    say("   $ kubectl delete pod one", "32")
    story.kubectl("delete", "pod", "one", "--now")
    took = story.wait("the device in DRA", lambda: device in story.published())
    say(f"     ResourceSlices after {took:.1f} s: {', '.join(sorted(story.published()))}")


@contextlib.contextmanager
def stage(words: Sequence[str], directory: Path | None) -> Iterator[Story]:
    """Yield the cluster; remove all objects of the demo, or stop a cluster that we started."""
    if directory is not None:
        story = Story(words, directory)
    else:
        story = Story(words, Path(tempfile.mkdtemp(prefix="kd-demo-dra-", dir="/tmp")))
        say("A Kubernetes of one node starts …", "2")
        story("up", "--fresh", timeout=300)
    try:
        yield story
    finally:
        if directory is None:
            story.stop()
            story.run("down")
            subprocess.run(["rm", "-rf", str(story.directory)], check=False)
        else:
            clean_up(story)


def clean_up(story: Story) -> None:
    """Remove the objects of the demo: pods first, because the plugin must release their devices."""
    story.run("kubectl", f"--namespace={NAMESPACE}", "delete", "pods", "--all", "--now")
    story.stop()
    ours = f"--selector=kubedevices-namespace={NAMESPACE}"
    story.run("kubectl", "delete", "clusterrole,clusterrolebinding,deviceclass", ours)
    story.run("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")
    only = f"--field-selector=spec.driver={DOMAIN}"
    story.run("kubectl", "delete", "resourceslices", only)


def main() -> int:
    """Run all steps; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo_dra", description=__doc__)
    parser.add_argument("--dir", type=Path, help="use the running cluster of this directory")
    directory = parser.parse_args().dir
    folder = os.environ.get(FOLDER)
    if not folder:
        say(
            f"make demo-dra needs a real Kubernetes: set {FOLDER} to a folder with the binaries of "
            "a release (docs/development/real-kubernetes.md)"
        )
        return 2
    say("kubedevices: a node changes from device plugin to DRA while its pods run", "1")
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with stage(program(Path(folder)), directory) as story:
            as_device_plugin(story)
            switch(story)
            before = second_pod(story)
            reboot(story, before)
            end_of_the_first(story, before["one"])
    except DemoFailed as error:
        say(f"\nThe demo failed: {error}", "1;31")
        return 1
    except KeyboardInterrupt:
        return 130
    say("\nDone", "1;32")
    say(f"{time.monotonic() - began:.0f} s. No two pods held the same device. Next: docs/dra.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
