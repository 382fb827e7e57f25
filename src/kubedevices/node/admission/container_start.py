"""The steps before each start and restart of a container: PreStartContainer, then run options.

The device manager is the caller. It has found the pod, and gives devices to a container that lacks
them.
"""

import logging
from collections.abc import Callable

from kubedevices.errors import EndpointNotFound, EndpointStopped, NothingAllocated, PreStartFailed
from kubedevices.node.admission.concurrency import concurrently
from kubedevices.node.arrival.endpoint import Endpoint
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.container_options import container_options
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.values.allocation import ContainerOptions

logger = logging.getLogger(__name__)


class ContainerStart:
    """The start of one container of a pod."""

    def __init__(
        self,
        pod: Pod,
        container: Container,
        inventory: Inventory,
        pod_devices: PodDevices,
        find_endpoint: Callable[[str], Endpoint | None],
    ) -> None:
        self._pod, self._container = pod, container
        self._inventory, self._pod_devices = inventory, pod_devices
        self._find_endpoint = find_endpoint
        self._resources = [
            resource
            for resource, count in container.limits.items()
            if count and inventory.is_known(resource)
        ]

    @property
    def lacks_devices(self) -> bool:
        """Whether a resource of the container became known only after the pod's admission."""
        return not all(self._device_ids(resource) for resource in self._resources)

    async def call_plugins(self) -> None:
        """Call PreStartContainer of each plugin that requires it; raises `AllocationError`."""
        if self._resources:
            await concurrently([self._pre_start(resource) for resource in self._resources])

    def options(self) -> ContainerOptions | None:
        """Return the merged answers of the plugins, None if the container holds no devices."""
        merged = container_options(
            self._pod_devices.of_container(self._pod.uid, self._container.name)
        )
        if merged is None:
            return None
        for conflict in merged.conflicts:
            logger.warning(
                "pod %s container %s: %s", self._pod.full_name, self._container.name, conflict
            )
        return merged.options

    async def _pre_start(self, resource: str) -> None:
        instance = self._inventory.endpoint(resource)
        if instance is None:
            raise EndpointNotFound(resource)
        # Without options the plugin has not registered since the start of the node. The kubelet
        # skips the call in this case too.
        if instance.options is None or not instance.options.pre_start_required:
            return
        device_ids = self._device_ids(resource)
        if not device_ids:
            raise NothingAllocated(self._pod.uid, self._container.name, resource)
        endpoint = self._find_endpoint(resource)
        # The plugin requires the call, but its stream has ended, so it cannot be called.
        if endpoint is None:
            raise PreStartFailed(str(EndpointStopped(f"{resource} at {instance.socket}")))
        await endpoint.pre_start_container(device_ids)

    def _device_ids(self, resource: str) -> tuple[str, ...]:
        return self._pod_devices.device_ids(self._pod.uid, self._container.name, resource)
