"""What an author may choose, and how a wrong choice is told."""

import os
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import SocketPathTooLong, UsageError
from kubedevices.plugin.options import RunnerOptions, Settings
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR
from tests.widgets import without_instance


def test_the_typed_options_and_the_settings_are_the_same() -> None:
    """Every documented option exists, and no other."""
    given = {name for name, each in Settings.__dataclass_fields__.items() if each.init}
    assert RunnerOptions.__annotations__.keys() == given
    for name in RunnerOptions.__annotations__:
        assert name in (RunnerOptions.__doc__ or ""), name


def test_the_default_is_the_kubelets_directory() -> None:
    """Without options a plugin registers at the kubelet of this host."""
    settings = Settings()
    assert settings.kubelet_socket == DEVICE_PLUGIN_DIR / "kubelet.sock"
    socket = settings.socket_of("example.com/widget", "widget")
    assert socket.parent == DEVICE_PLUGIN_DIR
    assert without_instance([socket.name]) == ["example.com-widget.sock"]


def test_each_instance_has_a_socket_of_its_own() -> None:
    """A later one sorts behind; for the same instance it is the same each time."""
    instances = [Settings() for _ in range(50)]
    names = [each.socket_of("example.com/widget", "widget").name for each in instances]
    assert sorted(set(names)) == names
    assert instances[0].socket_of("example.com/widget", "widget").name == names[0]


def test_a_plugin_without_registration_has_a_fixed_socket_name() -> None:
    """Without a registration nobody is told where the socket is."""
    settings = Settings(registration="none")
    assert settings.kubelet_socket is None
    socket = settings.socket_of("example.com/widget", "widget")
    assert socket == DEVICE_PLUGIN_DIR / "example.com-widget.sock"


def test_a_relative_directory_is_made_absolute() -> None:
    """A later change of the working directory does not move the sockets."""
    settings = Settings(socket_dir=Path("here"))
    assert settings.socket_dir == Path.cwd() / "here"


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("registration", "sometimes", "one of 'register', 'watch', 'none', not 'sometimes'"),
        ("on_server_error", "ignore", "one of 'exit', 'isolate', not 'ignore'"),
        ("preferred_errors", "raise", "one of 'ignore', 'fail', not 'raise'"),
        ("env_merge", "first", "one of 'last', 'join', 'error', not 'first'"),
        ("min_update_interval", -1, "must not be negative: -1"),
        ("max_list_size", 0, "must be positive: 0"),
        ("allocate_timeout", 0, "must be positive: 0"),
        ("preferred_timeout", -1, "must be positive: -1"),
        ("pre_start_timeout", float("nan"), "must be positive: nan"),
    ],
)
def test_a_wrong_choice_names_the_right_ones(option: str, value: Any, says: str) -> None:
    """A value that is not allowed is a usage error that lists those that are."""
    with pytest.raises(UsageError, match=f"{option} must .*{says}|{option} {says}"):
        Settings(**{option: value})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/abs.sock", "kubelet.sock"])
def test_a_socket_name_must_be_a_file_of_ours(name: str) -> None:
    """A socket outside the plugin directory, or in place of kubelet.sock, is refused."""
    settings = Settings(socket_name=lambda _: name)
    with pytest.raises(UsageError, match=r"example.com/widget: .* cannot be the name"):
        settings.socket_of("example.com/widget", "widget")


def test_an_author_may_choose_the_socket_name() -> None:
    """The name of the socket can be chosen per device type."""
    settings = Settings(socket_dir=Path("/d"), socket_name=lambda kind: f"mine-{kind}.sock")
    socket = settings.socket_of("example.com/widget", "widget")
    assert socket.parent == Path("/d")
    assert without_instance([socket.name]) == ["mine-widget.sock"]


def test_a_path_too_long_says_how_long() -> None:
    """108 bytes and more are an error that names the length and the limit."""
    directory = Path("/" + "x" * 90)
    with pytest.raises(SocketPathTooLong, match=r"has \d+ bytes, Linux allows 107"):
        Settings(socket_dir=directory).socket_of("example.com/widget", "widget")
    name = "x" * (107 - len(os.fsencode("/d/")))
    served = Settings(socket_dir=Path("/d"), socket_name=lambda _: name, registration="none")
    assert served.socket_of("a/b", "b") == Path("/d") / name
    served = Settings(socket_dir=Path("/d"), socket_name=lambda _: name + "x", registration="none")
    with pytest.raises(SocketPathTooLong, match=r"has 108 bytes.* a shorter name"):
        served.socket_of("a/b", "b")
