"""`make demo-dra`: pods over a change from device plugin to DRA, and over a reboot of the node.

The folder that KUBEDEVICES_KUBERNETES names has the program that starts a real Kubernetes of one
node, as docs/development/real-kubernetes.md says. With `--dir DIR` a cluster is used that runs.
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

    def __init__(self, program: Path, directory: Path) -> None:
        self.directory = directory
        self.mode_file = directory / "demo-mode"
        self.words = [str(program), "--dir", str(directory)]
        self._log = directory / "demo-plugin.log"
        self._config = directory / "demo.kubeconfig"
        self._plugin: subprocess.Popen[bytes] | None = None
        self._steps = 0

    def step(self, title: str, why: str) -> None:
        """Begin the next step."""
        self._steps += 1
        say(f"\n{self._steps}. {title}", "1;36")
        say(f"   {why}", "2")

    # ------------------------------------------------------------ the cluster

    def run(
        self, *arguments: str, stdin: str = "", timeout: float = DEADLINE
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command of the cluster to its end."""
        words = [*self.words, *arguments]
        return subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )

    def __call__(self, *arguments: str, **options: Any) -> str:
        """Run a command that has to succeed; return what it printed."""
        done = self.run(*arguments, **options)
        if done.returncode:
            raise DemoFailed(f"`{' '.join(arguments)}`: {done.stderr.strip() or done.stdout}")
        return done.stdout

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """Run kubectl as admin in the namespace of the demo."""
        return self("kubectl", f"--namespace={NAMESPACE}", *arguments, **options)

    def wait(self, what: str, condition: Callable[[], object]) -> float:
        """Wait until `condition()`; return how many seconds it took."""
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
        """Give the plugin an account with the rights of a driver, and a class to its devices."""
        words = [KUBEDEVICES, "manifests", "simulate", "--mode-file", "/etc/demo/mode"]
        words += ["--namespace", NAMESPACE, "--name", "demo"]
        env = os.environ | {"RESOURCE_NAME": RESOURCE}
        printed = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
        import yaml  # noqa: PLC0415 - a demo that cannot run needs none

        made = [each for each in yaml.safe_load_all(printed) if each["kind"] in _OF_THE_DRIVER]
        items = {"apiVersion": "v1", "kind": "List", "items": made}
        self("kubectl", "apply", "--filename=-", stdin=json.dumps(items))
        config = json.loads(self("kubectl", "config", "view", "--raw", "--output=json"))
        config["users"][0]["user"] = {"token": self.kubectl("create", "token", "demo").strip()}
        self._config.write_text(json.dumps(config))
        self._config.chmod(0o600)

    def choose(self, mode: str) -> None:
        """Write the mode as an administrator does."""
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
        """Whether the plugin has its sockets, those of a device plugin and of a driver."""
        text = self._log.read_text()
        return "device-plugins/" in text and "plugins_registry/" in text

    def stop(self) -> None:
        """End the plugin."""
        if self._plugin is not None:
            self._plugin.terminate()
            self._plugin.wait(30)
            self._plugin = None

    def forget(self) -> None:
        """Take it as ended: its node is going down."""
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            plugin.kill()
            plugin.wait(30)

    # ------------------------------------------------------------ what there is

    def allocatable(self) -> int:
        """Return how many devices the scheduler counts as those of a device plugin."""
        (node,) = json.loads(self("kubectl", "get", "nodes", "--output=json"))["items"]
        return int(node["status"]["allocatable"].get(RESOURCE, 0))

    def published(self) -> list[str]:
        """Return the devices in ResourceSlices."""
        found = json.loads(self("kubectl", "get", "resourceslices", "--output=json"))["items"]
        ours = [each["spec"] for each in found if each["spec"]["driver"] == DOMAIN]
        return [device["name"] for spec in ours for device in spec.get("devices", [])]

    def pod(self, name: str) -> Any:
        """Return a pod as the API has it."""
        return json.loads(self.kubectl("get", "pod", name, "--output=json"))

    def device_of(self, name: str) -> str:
        """Wait until a pod runs; return its device, as its container sees it."""
        ready = (f"pod/{name}", "--for=condition=Ready", f"--timeout={DEADLINE}s")
        self.kubectl("wait", *ready, timeout=DEADLINE + 30)
        self.wait("its environment", lambda: self.kubectl("logs", name))
        found = [line for line in self.kubectl("logs", name).splitlines() if "GPU_" in line]
        return found[0].partition("=")[0].removeprefix("GPU_") if len(found) == 1 else str(found)

    def show_pods(self, names: Sequence[str]) -> dict[str, str]:
        """Print who has which device by which API; raise `DemoFailed` for one held twice."""
        devices = {name: self.device_of(name) for name in names}
        say(f"     {'POD':6} {'DEVICE':14} {'API':14} RESTARTS")
        for name, device in devices.items():
            status = self.pod(name)["status"]
            api = "DRA" if "extendedResourceClaimStatus" in status else "device plugin"
            restarts = status["containerStatuses"][0]["restartCount"]
            say(f"     {name:6} {device:14} {api:14} {restarts}")
        if len({*devices.values()}) < len(devices):
            raise DemoFailed("two pods have one device")
        return devices

    def create_pod(self, name: str) -> None:
        """Create a pod with `limits:`."""
        say(f"   $ kubectl create --filename pod-{name}.yaml", "32")
        self.kubectl("create", "--filename=-", stdin=POD.replace("NAME", name))


# ---------------------------------------------------------------- the steps


def as_device_plugin(story: Story) -> None:
    """Begin with the API that every cluster has."""
    story.step(
        "A scanner as a device plugin",
        f"Three pretended GPUs; pods say `limits: {{{RESOURCE}: 1}}`.",
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
        "The mode of the node is changed",
        "No restart. The device of the running pod is withheld: DRA would give it away again.",
    )
    story.choose("dra")
    took = story.wait("two devices in DRA", lambda: len(story.published()) == DEVICES - 1)
    say(f"     ResourceSlices after {took:.1f} s: {', '.join(sorted(story.published()))}")
    say(f"     device plugin: {story.allocatable()} allocatable")


def second_pod(story: Story) -> dict[str, str]:
    """Let the scheduler serve the same manifest by DRA."""
    story.step(
        "A second pod with the same manifest",
        "It gets its device through DRA, another than the first.",
    )
    story.create_pod("two")
    return story.show_pods(["one", "two"])


class Node(Protocol):
    """A node of which `run` runs a command of its cluster."""

    directory: Path

    @property
    def run(self) -> "Callable[..., subprocess.CompletedProcess[str]]": ...

    @property
    def wait(self) -> Callable[[str, Callable[[], object]], object]: ...


def reboot_node(
    node: Node, words: Sequence[str], start: Callable[[], None], serves: Callable[[], bool]
) -> None:
    """Reboot the node; its kubelet waits for the plugin of `start`, as systemd orders services."""
    boot_id = node.directory / "boot_id"
    before = boot_id.read_text()
    reboot = subprocess.Popen([*words, "reboot"])

    def is_node_there() -> bool:
        """Look while the reboot rests, and let it go on for a moment if it has not come so far."""
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
        node.wait("the node", is_node_there)  # long before its kubelet
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
    """Reboot the node; the plugin is there before the kubelet, as systemd orders services."""
    story.step(
        "The node reboots",
        "Its kubelet admits the first pod only if a device plugin lists the device; so it does.",
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
    """Let the device of the first pod go over to DRA."""
    story.step(
        "The first pod ends", "Its device is free, so DRA offers it too. The change is complete."
    )
    say("   $ kubectl delete pod one", "32")
    story.kubectl("delete", "pod", "one", "--now")
    took = story.wait("the device in DRA", lambda: device in story.published())
    say(f"     ResourceSlices after {took:.1f} s: {', '.join(sorted(story.published()))}")


@contextlib.contextmanager
def stage(program: Path, directory: Path | None) -> Iterator[Story]:
    """Give a cluster, and leave nothing of the demo; one that was started here ends."""
    if directory is not None:
        story = Story(program, directory)
    else:
        story = Story(program, Path(tempfile.mkdtemp(prefix="kd-demo-dra-", dir="/tmp")))
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
    """Remove pods first, then what they use."""
    story.run("kubectl", f"--namespace={NAMESPACE}", "delete", "pods", "--all", "--now")
    story.stop()
    ours = f"--selector=kubedevices-namespace={NAMESPACE}"
    story.run("kubectl", "delete", "clusterrole,clusterrolebinding,deviceclass", ours)
    story.run("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")
    only = f"--field-selector=spec.driver={DOMAIN}"
    story.run("kubectl", "delete", "resourceslices", only)


def main() -> int:
    """Tell the story; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo_dra", description=__doc__)
    parser.add_argument("--dir", type=Path, help="use the cluster that runs there")
    directory = parser.parse_args().dir
    folder = os.environ.get(FOLDER)
    if not folder or not (program := Path(folder).resolve() / "cluster").is_file():
        say(
            f"make demo-dra needs a real Kubernetes: let {FOLDER} name a folder with the program "
            "`cluster`, as docs/development/real-kubernetes.md says"
        )
        return 2
    say("kubedevices: a node changes from device plugin to DRA while its pods run", "1")
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with stage(program, directory) as story:
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
    say(f"{time.monotonic() - began:.0f} s. No device was held twice. Next: docs/dra.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
