"""The work on devices that several claims have: done at the first share, undone at the last. Pure.

The group of a shared device is in the checkpoint of each claim that has a share, with the result of
the work. So a claim can take the work over from any other claim, also after a restart.
"""

from collections.abc import Iterable, Mapping, Sequence

from kubedevices.dra.claims import DeviceGroup
from kubedevices.errors import ClaimRefused
from kubedevices.values.allocation import ClaimReference

Work = Mapping[str, DeviceGroup]
"""The finished work on devices, by the labels of the devices."""


class SharedDevices:
    """Which claims use the work on a shared device, beside the claims that are ready.

    The caller makes sure that no two claims change their work at the same time.
    """

    def __init__(self) -> None:
        # By UID: what differs from the checkpoint.
        self._changed: dict[str, tuple[DeviceGroup, ...]] = {}

    def note_done(self, uid: str, groups: Iterable[DeviceGroup]) -> None:
        """Record the work of a claim that is not ready yet."""
        self._changed[uid] = tuple(groups)

    def note_undone(self, uid: str) -> None:
        """Record that the work of a claim is undone, though the checkpoint still has the claim."""
        self._changed[uid] = ()

    def forget(self, uid: str) -> None:
        """Forget a claim: from now on only the checkpoint counts."""
        self._changed.pop(uid, None)

    def work_of_others(self, uid: str, ready: Mapping[str, Sequence[DeviceGroup]]) -> Work:
        """Return the work that other claims than `uid` use; `ready` are the ready claims by UID."""
        claims = {**ready, **self._changed}
        return {
            group.label: group
            for other, groups in claims.items()
            if other != uid
            for group in groups
            if group.label
        }


def check_configuration(claim: ClaimReference, group: DeviceGroup, other: DeviceGroup) -> None:
    """Raise `ClaimRefused` if a claim wants a device otherwise than it is prepared already."""
    if group.configuration != other.configuration:
        raise ClaimRefused(
            str(claim),
            f"the request {group.request}: device {group.label} is prepared with another "
            f"configuration for the claim {other.first}, which shares it",
        )


def groups_to_undo(groups: Iterable[DeviceGroup], others: Work) -> tuple[DeviceGroup, ...]:
    """Return the groups whose work no other claim uses."""
    return tuple(each for each in groups if not each.label or each.label not in others)
