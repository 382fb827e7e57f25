"""How a device gets into a container: by its device nodes, by the name of a CDI device, or both."""

from typing import Literal, TypeAlias

Inject: TypeAlias = Literal["nodes", "cdi", "both"]
