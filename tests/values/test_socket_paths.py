"""Where sockets live, and what does not fit into 107 bytes."""

import hashlib
from pathlib import Path

import pytest

from kubedevices.errors import SocketPathTooLong
from kubedevices.values.socket_paths import (
    DEVICE_PLUGIN_DIR,
    STATE_DIR,
    check_socket_path,
    default_state_dir,
    plugin_socket,
)


def test_a_plugin_socket_is_named_after_its_resource() -> None:
    """The slash of the resource becomes a dash."""
    path = plugin_socket(DEVICE_PLUGIN_DIR, "qat.intel.com/cy")
    assert path == Path("/var/lib/kubelet/device-plugins/qat.intel.com-cy.sock")


def test_a_long_name_is_hashed() -> None:
    """Where 107 bytes are exceeded, ten digits of a hash stand for the resource."""
    resource = "example.com/" + "w" * 63
    directory = Path("/tmp/" + "d" * 30)
    path = plugin_socket(directory, resource)
    digest = hashlib.sha1(resource.encode(), usedforsecurity=False).hexdigest()[:10]
    assert path == directory / f"example.com-{digest}.sock"


def test_the_limit_is_107_bytes() -> None:
    """A path of 107 bytes is used as it is, one more byte makes it a hash."""
    resource = "example.com/widget"
    room = 107 - len("/" + "/example.com-widget.sock")
    fits, too_long = Path("/" + "d" * room), Path("/" + "d" * (room + 1))
    assert plugin_socket(fits, resource).name == "example.com-widget.sock"
    with pytest.raises(SocketPathTooLong, match=r"has 112 bytes, .* shorter --socket-dir"):
        plugin_socket(too_long, resource)


def test_bytes_count_and_not_characters() -> None:
    """A path is measured as the kernel does."""
    path = Path("/" + "ä" * 54)
    with pytest.raises(SocketPathTooLong, match=r"has 109 bytes, .* \(choose a shorter path\)"):
        check_socket_path(path)
    assert check_socket_path(Path("/" + "ä" * 53)) == Path("/" + "ä" * 53)


def test_the_state_directory_is_never_in_the_plugin_directory() -> None:
    """The plugin directory gets cleaned, so state lives beside it."""
    assert default_state_dir(DEVICE_PLUGIN_DIR) == STATE_DIR
    assert default_state_dir(Path("/tmp/sockets")) == Path("/tmp/sockets.state")
