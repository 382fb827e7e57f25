"""What a kubelet asks first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.check.grpc_driver import messages

VERSIONS = (
    *("v1.DRAPlugin", "v1beta1.DRAPlugin"),
    *("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"),
)


class Registration:
    """The service of the registration socket."""

    versions: tuple[str, ...] = VERSIONS

    def __init__(self, driver: str, endpoint: Path, log: Callable[[str], None]) -> None:
        self.driver, self.endpoint, self.log = driver, endpoint, log
        self.was_asked = False
        self.on_accepted: Callable[[], None] = lambda: None

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.was_asked = True
        return messages.PluginInfo(
            type="DRAPlugin",
            name=self.driver,
            endpoint=str(self.endpoint),
            supported_versions=self.versions,
        )

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.plugin_registered:
            self.on_accepted()
        else:
            self.refused(request.error)
        return messages.RegistrationStatusResponse()

    def refused(self, text: str) -> None:
        """Say it, and keep serving: the kubelet tries again."""
        self.log(f"the kubelet refused the registration: {text}")
