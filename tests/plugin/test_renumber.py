"""Variables numbered within a container."""

from kubedevices.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.plugin.renumber import renumber


def test_each_container_counts_from_zero_in_the_order_of_the_values() -> None:
    """Other variables are left alone."""
    first = ContainerAllocateResponse(env={"QAT_b": "10", "PATH": "/", "QAT_a": "9"})
    second = ContainerAllocateResponse(env={"QAT_c": "7"})
    renumber(AllocateResponse([first, second, ContainerAllocateResponse()]), "QAT")
    assert first.env == {"PATH": "/", "QAT0": "9", "QAT1": "10"}
    assert second.env == {"QAT0": "7"}


def test_twice_is_once() -> None:
    """Numbers are numbered the same again."""
    container = ContainerAllocateResponse(env={"BDF10": "a", "BDF2": "b"})
    for _ in range(2):
        renumber(AllocateResponse([container]), "BDF")
        assert container.env == {"BDF0": "a", "BDF1": "b"}
