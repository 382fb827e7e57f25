"""The answers of a simulated resource to the kubelet. Faults come from `rules.faults`."""

from kubedevices.errors import RpcError, StatusCode
from kubedevices.plugin.allocation_policy import choose_all
from kubedevices.plugin.capabilities import (
    USE_DEFAULT,
    AllocateAnswer,
    Allocator,
    PreferredAllocator,
)
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.simulate.devices import SimulatedDevices
from kubedevices.values.allocation import (
    AllocateRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)


class Answers(Allocator):
    """Allocates; refuses unknown devices with the error text of simple-device-plugin."""

    def __init__(self, config: SimulatorConfig, devices: SimulatedDevices) -> None:
        self.config, self._devices = config, devices

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse unknown devices; the framework answers for all others."""
        known = self._devices.of(self.config.device_type)
        for container in request.containers:
            for device_id in container.device_ids:
                if device_id not in known:
                    text = f"requested device {device_id} is not available"
                    raise RpcError(StatusCode.NOT_FOUND, text)
        return USE_DEFAULT


class _AnswersWithPreference(Answers, PreferredAllocator):
    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose by policy; devices with the same NUMA nodes count as one physical device."""
        return choose_all(self.config.preferred or "none", request, physical=self._node_of)

    def _node_of(self, device_id: str) -> str:
        device = self._devices.of(self.config.device_type).get(device_id)
        nodes = device.numa_nodes if device else ()
        return "-".join(map(str, nodes)) if nodes else device_id


def answers_for(config: SimulatorConfig, devices: SimulatedDevices) -> Answers:
    """Return the abilities of a resource: with a preference only if `config` has a policy.

    A kubelet calls GetPreferredAllocation before each Allocate of a plugin that offers it.
    """
    return (Answers if config.preferred is None else _AnswersWithPreference)(config, devices)
