"""How a simulated resource answers, well or badly on purpose. Made by `answers_for`."""

import asyncio

from kubedevices.allocation import (
    AllocateRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
)
from kubedevices.builtin.simulated_devices import SimulatedDevices
from kubedevices.builtin.simulator_config import SimulatorConfig
from kubedevices.errors import RpcError, StatusCode
from kubedevices.plugin.allocation_policy import choose
from kubedevices.plugin.capabilities import (
    USE_DEFAULT,
    AllocateAnswer,
    Allocator,
    ContainerPreStarter,
    PreferredAllocator,
)


class Answers(Allocator):
    """Allocates; refuses unknown devices in the words of simple-device-plugin."""

    def __init__(self, config: SimulatorConfig, devices: SimulatedDevices) -> None:
        self.config, self._devices = config, devices
        self._allocations = self._starts = 0

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse what there is not, do the damage that is asked for, leave the rest to us."""
        faults = self.config.faults
        known = self._devices.of(self.config.device_type)
        for container in request.containers:
            for device_id in container.device_ids:
                if device_id not in known:
                    text = f"requested device {device_id} is not available"
                    raise RpcError(StatusCode.NOT_FOUND, text)
        self._allocations += 1
        await asyncio.sleep(faults.allocate_delay)
        if _is_turn(self._allocations, faults.fail_allocate_every):
            raise RpcError(StatusCode.INTERNAL, f"simulated failure of call {self._allocations}")
        return USE_DEFAULT


class _Preferring(Answers, PreferredAllocator):
    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose by policy; what has the same NUMA nodes counts as one physical device."""
        if self.config.faults.wrong_ids:
            wrong = tuple(f"wrong-{i}" for i in range(max(c.size for c in request.containers)))
            return PreferredAllocationResponse(tuple(wrong[: c.size] for c in request.containers))
        return PreferredAllocationResponse(
            tuple(
                tuple(
                    choose(
                        self.config.preferred or "none",
                        container.available,
                        container.must_include,
                        container.size,
                        physical=self._node_of,
                    )
                )
                for container in request.containers
            )
        )

    def _node_of(self, device_id: str) -> str:
        device = self._devices.of(self.config.device_type).get(device_id)
        nodes = device.numa_nodes if device else ()
        return "-".join(map(str, nodes)) if nodes else device_id


class _Starting(Answers, ContainerPreStarter):
    async def pre_start_container(self, request: PreStartContainerRequest) -> None:
        """Take a while, and fail now and then."""
        rule = self.config.pre_start
        assert rule is not None
        self._starts += 1
        await asyncio.sleep(rule.delay)
        if _is_turn(self._starts, rule.fail_every):
            raise RpcError(StatusCode.INTERNAL, f"simulated failure of start {self._starts}")


class _PreferringAndStarting(_Preferring, _Starting):
    pass


def answers_for(config: SimulatorConfig, devices: SimulatedDevices) -> Answers:
    """Return an object with just the abilities that `config` asks for."""
    prefers = config.preferred is not None or config.faults.wrong_ids
    kinds = {
        (False, False): Answers,
        (True, False): _Preferring,
        (False, True): _Starting,
        (True, True): _PreferringAndStarting,
    }
    return kinds[prefers, config.pre_start is not None](config, devices)


def _is_turn(number: int, every: int) -> bool:
    return every > 0 and number % every == 0
