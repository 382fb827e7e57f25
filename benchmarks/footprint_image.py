"""How large the image is, and of which parts."""

import json
from typing import NamedTuple

from tests.image_host import ImageHost

LAYER_LIMIT = 15
"""MB of us and what we depend on, over Debian's minimal Python."""


class Sizes(NamedTuple):
    """MB (10⁶ bytes) of files in the layers of an image."""

    base: float
    python: float
    ours: float
    whole: float


def image_sizes(host: ImageHost) -> Sizes:
    """Return how much of the image comes from whom."""
    (image,) = json.loads(host.podman("image", "inspect", host.image))
    layers = json.loads(host.podman("history", "--format=json", host.image))
    parts = {"base": 0, "python": 0, "ours": 0}
    for layer in layers:
        by = layer["CreatedBy"]
        parts["ours" if "COPY" in by else "python" if "apt-get" in by else "base"] += layer["size"]
    return Sizes(**{name: size / 1e6 for name, size in parts.items()}, whole=image["Size"] / 1e6)
