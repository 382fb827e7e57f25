"""The image, built once for all tests that look at it."""

from collections.abc import Iterator

import pytest

from tests.image_host import ImageHost, build_image, image_host


@pytest.fixture(scope="session")
def built() -> Iterator[ImageHost]:
    """Give a host that has our image."""
    with image_host() as host:
        build_image(host)
        yield host
