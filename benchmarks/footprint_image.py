"""The size of the image and of its parts."""

import json
from typing import NamedTuple

from tests.image_host import ImageHost

LAYER_LIMIT = 15
"""Target: MB of kubedevices and its dependencies, without Debian's minimal Python."""


class Sizes(NamedTuple):
    """MB (10⁶ bytes) of the files in the layers of an image.

    `ours` is kubedevices with its dependencies, `python` is Debian's Python.
    """

    base: float
    python: float
    ours: float
    whole: float


def image_sizes(host: ImageHost) -> Sizes:
    """Return the size of each part. The command that created a layer tells the part."""
    (image,) = json.loads(host.podman("image", "inspect", host.image))
    layers = json.loads(host.podman("history", "--format=json", host.image))
    parts = {"base": 0, "python": 0, "ours": 0}
    for layer in layers:
        by = layer["CreatedBy"]
        parts["ours" if "COPY" in by else "python" if "apt-get" in by else "base"] += layer["size"]
    return Sizes(**{name: size / 1e6 for name, size in parts.items()}, whole=image["Size"] / 1e6)
