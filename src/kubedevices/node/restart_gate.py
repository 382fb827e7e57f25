"""What may be believed of the time before our start: the rule, and nothing else.

A pod from before holds its devices, but nobody has vouched for them since. Its running containers
are left alone whatever their plugins do. A container that is to start gets its devices only when
its plugin has listed them healthy since our start: that check, which admission skipped, is made
then. Once made, the pod is like any other.

Pure. Who is running is an argument: pairs of pod uid and container name of which any instance
runs, or None when nobody can tell; then what was admitted in this boot counts as running. The
waiting is for `after_restart`.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kubedevices.node.pod import Pod

Part = tuple[str, str]
"""Container name and resource."""

Running = Collection[tuple[str, str]]
"""Pod uid and container name of everything that runs."""


class _Restored(NamedTuple):
    is_of_this_boot: bool
    unverified: set[Part]


class RestartGate:
    """The pods from before our start of which something is unverified."""

    def __init__(self) -> None:
        self._restored: dict[str, _Restored] = {}

    def __repr__(self) -> str:
        return f"<RestartGate of {len(self._restored)} unverified pods>"

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._restored

    def restore(self, pod_uid: str, parts: Iterable[Part], *, is_of_this_boot: bool) -> None:
        """Take in a pod from before our start and what its containers hold."""
        if unverified := set(parts):
            self._restored[pod_uid] = _Restored(is_of_this_boot, unverified)

    def forget(self, pod_uid: str) -> None:
        """Take note that a pod was released."""
        self._restored.pop(pod_uid, None)

    def is_of_this_boot(self, pod_uid: str) -> bool:
        """Whether a container of the pod may be running: not if all is from before the boot."""
        restored = self._restored.get(pod_uid)
        return restored is None or restored.is_of_this_boot

    def is_settled(self, pod: Pod, container: str, resource: str, running: Running | None) -> bool:
        """Whether an admission must leave this part as it is.

        True for all that a started pod holds: a finished init container, or one that is about to
        be restarted, is no reason to turn down a pod whose other containers run.
        """
        restored = self._restored.get(pod.uid)
        if restored is None:
            return False
        is_held = (container, resource) in restored.unverified
        if running is None:
            return is_held and restored.is_of_this_boot
        if (pod.uid, container) in running:
            return True
        return is_held and any((pod.uid, each.name) in running for each in pod)

    def to_verify(self, pod_uid: str, container: str, running: Running | None) -> tuple[str, ...]:
        """Return the resources whose devices must be vouched for before the container starts."""
        restored = self._restored.get(pod_uid)
        if restored is None:
            return ()
        if running is None:
            is_running = restored.is_of_this_boot
        else:
            is_running = (pod_uid, container) in running
        if is_running:
            return ()
        return tuple(sorted(name for owner, name in restored.unverified if owner == container))

    def parts(self, pod_uid: str) -> frozenset[Part]:
        """Return what is unverified of a pod."""
        restored = self._restored.get(pod_uid)
        return frozenset(restored.unverified if restored else ())

    def verify(self, pod_uid: str, container: str, resource: str) -> bool:
        """Take note that the plugin vouches for this part; say whether that was the pod's last."""
        restored = self._restored.get(pod_uid)
        if restored is None:
            return False
        restored.unverified.discard((container, resource))
        if restored.unverified:
            return False
        del self._restored[pod_uid]
        return True
