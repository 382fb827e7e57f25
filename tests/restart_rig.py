"""A node that is stopped, killed or rebooted and started again; tests set the running containers.

Killed means here: the files have the content of that time. `tests/stories/test_kill_node.py` kills
a real process with SIGKILL.
"""

import asyncio
import shutil
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Self

import pytest

from kubedevices.errors import AdmissionRejected
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.values.allocation import ContainerOptions
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.golden_data import load

End = Literal["stopped", "killed", "rebooted"]
ENDS: tuple[End, ...] = ("stopped", "killed", "rebooted")


def pod(name: str, count: int = 1, *, resource: str = RESOURCE) -> Pod:
    """Return a pod with one container, `main`."""
    return Pod(name, containers=(Container("main", {resource: count}),))


async def still_waits(*tasks: "asyncio.Task[Any]") -> bool:
    """Return whether none of the tasks ends within a moment."""
    done, _ = await asyncio.wait(tasks, timeout=0.1)
    return not done


def ids(options: ContainerOptions | None) -> tuple[str, ...]:
    """Return the devices that a container was started with."""
    return () if options is None else tuple(spec.host_path[5:] for spec in options.devices)


def kubelet_rejection(text: str) -> str:
    """Return a rejection in the kubelet's words; `text` is the key of a golden message."""
    messages = load("messages")
    message: str = messages["admission"]["message"].replace("<err>", messages[text])
    return message.replace("v.example/r", RESOURCE)


_ASKED = ("running_containers", "active_pods", "store")
"""Arguments of `DeviceManager` that are not in `NodeSettings`."""


class RestartRig:
    """One plugin directory and state directory for several starts of a node.

    `running` has the containers that the runtime reports; None is a node without a runtime. Every
    manager gets `options`.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        self.sockets, self.state = directory / "p", directory / "s"
        self.options = {"start_wait": 0.2, **options}
        self.running: Collection[tuple[str, str]] | None = None
        self._boot = directory / "boot_id"
        self._boots = 0
        self._saved = directory / "saved"
        self._manager: DeviceManager | None = None
        self._plugins = AsyncExitStack()

    @property
    def manager(self) -> DeviceManager:
        """The manager of the present start."""
        assert self._manager is not None
        return self._manager

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.stop()
        await self._plugins.aclose()

    async def start(self) -> None:
        """Start the node."""
        self._boot.write_text(f"boot-{self._boots}")
        settings = {"boot_id_file": self._boot, **self.options}
        asked = {name: settings.pop(name) for name in _ASKED if name in settings}
        if self.running is not None:
            asked["running_containers"] = lambda: self.running
        self._manager = DeviceManager(
            self.sockets, state_dir=self.state, settings=NodeSettings(**settings), **asked
        )
        await self._manager.start()

    async def restart(self, end: End = "stopped") -> None:
        """End the node and start it again; no plugin has registered yet."""
        if end != "stopped":
            self._save()
        await self.manager.stop()
        await self._plugins.aclose()
        if end != "stopped":
            self._bring_back()
        self._boots += end == "rebooted"
        await self.start()

    def _save(self) -> None:
        for directory in (self.sockets, self.state):
            shutil.rmtree(self._saved / directory.name, ignore_errors=True)
            shutil.copytree(
                directory,
                self._saved / directory.name,
                ignore=lambda parent, names: [
                    name
                    for name in names
                    if name.endswith((".new", ".tmp")) or (Path(parent) / name).is_socket()
                ],
            )

    def _bring_back(self) -> None:
        for directory in (self.sockets, self.state):
            shutil.rmtree(directory)
            shutil.copytree(self._saved / directory.name, directory)

    async def plugin(
        self,
        *device_ids: str,
        resource: str = RESOURCE,
        reports: bool = True,
        **options: Any,
    ) -> FakePlugin:
        """Register a plugin; with `reports`, wait until its list has arrived."""
        name = f"{resource.partition('/')[2]}.sock"
        made = FakePlugin(
            self.sockets, resource, socket_name=name, devices=healthy(*device_ids), **options
        )
        await self._plugins.enter_async_context(made)
        if not reports:
            await made.send_bytes(None)
        await made.register()
        if reports:
            await self.manager.wait_for(resource, capacity=len(device_ids))
        return made

    async def admit(self, name: str, count: int = 1) -> tuple[str, ...]:
        """Admit a pod of one container; return its devices."""
        return (await self.manager.allocate(pod(name, count)))["main"][RESOURCE]

    async def refused(self, asked: Pod) -> str:
        """Admit a pod, which must fail; return the message."""
        with pytest.raises(AdmissionRejected) as error:
            await self.manager.allocate(asked)
        return error.value.message

    async def start_container(self, name: str) -> tuple[str, ...]:
        """Return the devices in the options of a pod's container, as at its start."""
        asked = self.manager.get_pod(pod(name).uid) or pod(name)
        return ids(await self.manager.get_device_run_container_options(asked, "main"))

    def held(self) -> Mapping[str, set[str]]:
        """Return the held devices by name of the pod."""
        return {
            each.name: {
                device
                for resources in self.manager.get_allocation(each.uid).values()
                for devices in resources.values()
                for device in devices
            }
            for each in self.manager.pods()
        }
