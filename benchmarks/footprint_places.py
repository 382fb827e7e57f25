"""The two places where the footprint of a plugin is measured: on this machine, or in a container.

In both places the file `began` in the directory of the run has the time when the process started
(nanoseconds since 1970).
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kubedevices.manifests.deployment import PLUGIN_DIR, Deployment
from kubedevices.manifests.workload import documents
from tests.deploy.pod_arguments import podman_arguments
from tests.image_host import ImageHost

UNDISTURBED = ("--cgroup-parent=/", "--cpu-shares=262144")
"""A container cannot have real-time priority, so it gets the largest share of the processor."""

NOTE_BEGIN = 'date +%s%N > "$0"; exec "$@"'


class Place(Protocol):
    """A place to run processes. `plugin` and `python` are the commands to start them there."""

    plugin: Sequence[str]
    python: Sequence[str]

    def start(
        self, command: Sequence[str], directory: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Run `command`, which sees `directory` at the same path, until the end of the context."""


class OnHost:
    """Processes of this machine."""

    plugin: Sequence[str] = (sys.executable, "-m", "kubedevices.cli")
    python: Sequence[str] = (sys.executable,)

    @contextlib.asynccontextmanager
    async def start(
        self, command: Sequence[str], directory: Path, env: Mapping[str, str]
    ) -> AsyncIterator[None]:
        """Run `command` as a child process."""
        wrapped = ("sh", "-c", NOTE_BEGIN, str(directory / "began"), *command)
        process = await asyncio.create_subprocess_exec(
            *wrapped,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin"} | dict(env),
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()


class InContainer:
    """Containers of the image, with the restrictions of the manifests."""

    plugin: Sequence[str] = ("tini", "--", "kubedevices")
    python: Sequence[str] = ("python3",)

    def __init__(self, host: ImageHost) -> None:
        self.host = host

    @contextlib.asynccontextmanager
    async def start(
        self, command: Sequence[str], directory: Path, env: Mapping[str, str]
    ) -> AsyncIterator[None]:
        """Run `command` in a container, on the network of the host so that its pages are reachable.

        The only variable in `env` may be PYTHONPATH; the path of the image is appended.
        """
        pod = documents(Deployment("simulate", self.host.image))[-1]["spec"]["template"]["spec"]
        image = self.host.image
        arguments = podman_arguments(pod, {PLUGIN_DIR: directory / "p"})
        options = [each for each in arguments[: arguments.index(image)] if "--network" not in each]
        options += ["--network=host", f"--volume={directory}:{directory}", "--entrypoint=sh"]
        options += [f"--env={name}={path}:/opt/kubedevices" for name, path in env.items()]
        options += UNDISTURBED
        words = ("-c", NOTE_BEGIN, str(directory / "began"), *command)
        name = f"footprint-{time.monotonic_ns()}"
        podman = self.host.podman
        await asyncio.to_thread(
            podman, "run", "--detach", f"--name={name}", *options, image, *words
        )
        try:
            yield
        finally:
            await asyncio.to_thread(podman, "rm", "--force", "--time=0", name)
