"""The settings of a device manager, as one value."""

from dataclasses import dataclass, field
from pathlib import Path

from kubedevices.host.boot_id import BOOT_ID_FILE
from kubedevices.node.admission.after_restart import START_WAIT
from kubedevices.node.arrival.endpoint import RECEIVE_LIMIT, PluginTimeouts
from kubedevices.node.inventory.inventory import GRACE_PERIOD
from kubedevices.node.topology.options import TopologySettings


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The settings of a device manager. All times are in seconds."""

    grace_period: float = GRACE_PERIOD
    """How long the devices of a lost plugin stay in the capacity."""

    timeouts: PluginTimeouts = field(default_factory=PluginTimeouts)
    """The deadlines of calls to a plugin."""

    receive_limit: int = RECEIVE_LIMIT
    """Largest message from a plugin, in bytes."""

    admission_wait: float = 0
    """How long an admission waits for plugins that did not register since the node started."""

    start_wait: float = START_WAIT
    """How long the start of a container waits for such a plugin."""

    boot_id_file: Path = BOOT_ID_FILE
    """A file with an ID that differs after each boot of the machine."""

    topology: TopologySettings = field(default_factory=TopologySettings)
    """The settings of the topology manager, made by `topology.options.check_settings`."""


DEFAULTS = NodeSettings()
