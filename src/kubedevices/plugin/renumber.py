"""Numbers variables within a container: `QAT_0000:6b:01.0` and its like become `QAT0`. Pure.

A device cannot know which number it will have beside others; whoever answers Allocate can. For
`PostAllocator.post_allocate`.
"""

from kubedevices.allocation import AllocateResponse
from kubedevices.device import natural_key


def renumber(response: AllocateResponse, prefix: str) -> None:
    """Rename every variable that begins with `prefix` to `prefix` and a number, in place.

    Numbers count from 0 in each container and follow the natural order of the values, so that the
    answer does not depend on the order in which devices were asked for.
    """
    for container in response.containers:
        matching = [name for name in container.env if name.startswith(prefix)]
        values = sorted((container.env.pop(name) for name in matching), key=natural_key)
        container.env.update({f"{prefix}{i}": value for i, value in enumerate(values)})
