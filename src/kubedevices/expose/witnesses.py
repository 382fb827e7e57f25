"""Asks who holds devices, when IDs have to be decided: the kubelet and the list of `cordon`.

A process that has lost its file of names must not give a held device a second ID. So it reads the
kubelet's checkpoint, which is in the plugin directory, and asks its podresources socket, which also
tells the devices of DRA claims. Every witness may be missing.
"""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from kubedevices.errors import CannotAsk, CannotRead
from kubedevices.expose.held_ids import Holds, gather
from kubedevices.host import deadlines

_TIMEOUT = 2.0
"""Seconds for a kubelet to answer; one that only starts does not answer."""

_log = logging.getLogger(__name__)


class Witnesses:
    """The witnesses of one domain; None for a file or a socket that does not exist here."""

    def __init__(
        self,
        domain: str = "",
        *,
        checkpoint: Path | None = None,
        pod_resources: Path | None = None,
        cordoned: Path | None = None,
    ) -> None:
        self._domain, self._checkpoint = domain, checkpoint
        self._pod_resources, self._cordoned_file = pod_resources, cordoned
        self._asked: set[tuple[str, str]] = set()
        self._labels: frozenset[str] = frozenset()
        self._held: Sequence[tuple[str, str, Collection[str]]] | None = None
        self._cordoned: Sequence[tuple[str, str]] | None = None

    async def ask(self) -> None:
        """Ask the podresources socket; its answer counts until `forget`. Raises nothing."""
        if self._pod_resources is None or not self._pod_resources.is_socket():
            return
        from kubedevices.kubelet_api.kubelet_devices import ask_kubelet  # noqa: PLC0415

        try:
            async with deadlines.timeout(_TIMEOUT):
                document = await ask_kubelet(self._pod_resources, timeout=_TIMEOUT)
        except (CannotAsk, TimeoutError) as error:
            _log.debug("who holds devices is not known from the kubelet: %s", error)
            return
        self._asked = {
            (resource["resource"], device["id"])
            for resource in document["resources"]
            for device in resource["devices"]
            if device["held_by"]
        }
        claims = [each for each in document["claims"] if each["driver"] == self._domain]
        self._labels = frozenset(name for each in claims for name in each["devices"])

    def forget(self) -> None:
        """Forget all answers, at the end of a look: later the checkpoint is the newer witness."""
        self._asked, self._labels = set(), frozenset()
        self._held = self._cordoned = None

    def holds(self, device_type: str) -> Holds:
        """Return who holds devices of one resource. Blocking; raises nothing.

        The files are read once until `forget`, however many resources there are.
        """
        if self._held is None:
            self._held = self._read_checkpoint()
        if self._cordoned is None:
            self._cordoned = self._read_cordoned()
        resource = f"{self._domain}/{device_type}"
        held: dict[str, Collection[str]] = {
            device_id: () for name, device_id in self._asked if name == resource
        }
        held |= {device_id: files for name, device_id, files in self._held if name == resource}
        cordoned = [device_id for name, device_id in self._cordoned if name == resource]
        return gather(held.items(), cordoned, self._labels)

    def _read_checkpoint(self) -> list[tuple[str, str, Collection[str]]]:
        """Return resource and ID of each held device, with the files of its answer."""
        if self._checkpoint is None or not self._checkpoint.exists():
            return []
        # Imported here: most looks find no new device.
        from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE  # noqa: PLC0415
        from kubedevices.node.checkpoint.file import read_bytes  # noqa: PLC0415
        from kubedevices.node.checkpoint.text import (  # noqa: PLC0415
            BadCheckpoint,
            parse_checkpoint,
            restore,
        )

        try:
            data = read_bytes(self._checkpoint)
        except CannotRead as error:
            _log.debug("%s", error)
            return []
        checkpoint = parse_checkpoint(data) if data else BadCheckpoint("there is no file")
        if isinstance(checkpoint, BadCheckpoint):
            return []
        found: list[tuple[str, str, Collection[str]]] = []
        for each in restore(checkpoint, CONTAINER_RESPONSE.from_wire).holdings:
            ids, answer = each.held.device_ids, each.held.response
            # The answer for several devices does not tell whose file is whose.
            files = [spec.host_path for spec in answer.devices] if len(ids) == 1 else []
            found += [(each.resource, device_id, files) for device_id in ids]
        return found

    def _read_cordoned(self) -> list[tuple[str, str]]:
        if self._cordoned_file is None or not self._cordoned_file.exists():
            return []
        from kubedevices.rules.cordon_file import read_cordoned  # noqa: PLC0415

        try:
            cordoned = read_cordoned(self._cordoned_file)
        except CannotRead as error:
            _log.debug("%s", error)
            return []
        return [(each.resource, each.id) for each in cordoned]
