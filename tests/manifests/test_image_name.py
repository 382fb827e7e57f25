"""Which registry the name of an image means to a container runtime."""

import pytest

from kubedevices.manifests.image import DEFAULT_REGISTRY, pulled_as, registry, remark


@pytest.mark.parametrize(
    ("image", "host", "pulled"),
    [
        ("lab.example.com/lab/gpu:1", "lab.example.com", "lab.example.com/lab/gpu:1"),
        ("registry:5000/gpu", "registry:5000", "registry:5000/gpu"),
        ("localhost/gpu", "localhost", "localhost/gpu"),
        ("lab/gpu:1.0", None, f"{DEFAULT_REGISTRY}/lab/gpu:1.0"),
        ("hosts/gpu", None, f"{DEFAULT_REGISTRY}/hosts/gpu"),
        ("gpu:1.0", None, f"{DEFAULT_REGISTRY}/library/gpu:1.0"),
    ],
)
def test_a_host_has_a_dot_or_a_port_or_is_this_host(
    image: str, host: str | None, pulled: str
) -> None:
    """Everything else comes from the public registry; only images of this host are remarked on."""
    assert registry(image) == host
    assert pulled_as(image) == pulled
    assert bool(remark(image)) is (host == "localhost")
