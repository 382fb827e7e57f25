"""Random pauses: the drivers of all nodes must not call the API server at the same time. Pure.

This would happen after an outage of the API server, and after an update of the driver.
"""

import random


def at_random(longest: float) -> float:
    """Return a pause of at least half of `longest`."""
    return longest * random.uniform(0.5, 1)
