"""The calls of `Bench` that cause faults for device plugins: of Register, and of streams."""

from kubedevices.errors import NotInTime, UnregisteredResource
from kubedevices.testing.kubelet.arrival import LIKE_A_KUBELET, RegisterBehavior
from kubedevices.testing.workbench.node import BenchNode, Registrations
from kubedevices.testing.workbench.plugins import PluginHolder

__tracebackhide__ = True  # a failing test shows its own lines, not ours


class Fault:
    """A fault that lasts until the end of `with`, or until `Bench.behave`."""

    def __init__(self, bench: "FaultCalls") -> None:
        self._bench = bench

    def __enter__(self) -> None:
        """Do nothing: the fault began when it was created."""

    def __exit__(self, *_: object) -> None:
        self._bench.behave()


class FaultCalls(PluginHolder):
    """The faults of `Bench`."""

    _node: BenchNode
    _registrations: Registrations

    def cancel_stream(self, resource: str) -> None:
        """End the stream of the plugin of `resource`; all sockets stay, so no file changes.

        A plugin of kubedevices waits up to 10 s before it registers again: another instance may
        have replaced it.
        """
        plugins = self._node.get_watcher_handler()

        def cancel() -> None:
            if (endpoint := plugins.find(resource)) is None:
                raise UnregisteredResource(resource)
            plugins.disconnect(resource, endpoint.socket, "the bench cancelled its stream")

        self._thread.do(cancel)

    def refuse(self, reason: str = "refused by the test bench") -> Fault:
        """Refuse every Register with this text, until `behave` or the end of `with`.

        Registered plugins stay registered until they register again, for example after `restart`.
        """
        return self._misbehave(RegisterBehavior(refusal=reason))

    def hang(self) -> Fault:
        """Do not answer Register, until `behave` or the end of `with`."""
        return self._misbehave(RegisterBehavior(delay=float("inf")))

    def slow(self, seconds: float) -> Fault:
        """Answer every Register after `seconds`, until `behave` or the end of `with`."""
        return self._misbehave(RegisterBehavior(delay=seconds))

    def behave(self) -> None:
        """End `refuse`, `hang` and `slow`; the node answers waiting Register calls now."""
        self._misbehave(LIKE_A_KUBELET)

    def _misbehave(self, behavior: RegisterBehavior) -> Fault:
        self._thread.do(lambda: self._registrations.behave(behavior))
        return Fault(self)

    def attempts(self, resource: str) -> int:
        """Return how often `resource` called Register so far, accepted or not."""
        return self._registrations.attempts[resource]

    def wait_attempts(self, resource: str, number: int, *, timeout: float = 20) -> None:
        """Return after `resource` has called Register `number` times; raises `NotInTime`."""
        waiting = self._registrations.wait_attempts(resource, number, timeout)
        if not self._call(waiting):
            seen = f"{self.attempts(resource)} times"
            raise NotInTime(resource, f"registering {number} times", timeout, seen)
