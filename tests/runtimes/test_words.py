"""Container options as arguments of podman and docker, and as environment variables."""

from collections.abc import Callable

import pytest

from kubedevices.allocation import ContainerOptions
from kubedevices.device import DeviceSpec, Mount
from kubedevices.errors import NotExpressible, UsageError
from kubedevices.runtimes import FORMATS, docker, env, podman

OPTIONS = ContainerOptions(
    env={"A": "x y", "B": ""},
    devices=(DeviceSpec("/dev/a"), DeviceSpec("/dev/b", "/dev/c", "rwm")),
    mounts=(Mount("/h", "/c", read_only=True), Mount("/i, j", '/k"l')),
    annotations={"example.com/a": "1"},
    cdi_devices=("example.com/w=0",),
)
WORDS = [
    "--env=A=x y",
    "--env=B=",
    "--device=/dev/a:/dev/a:rw",
    "--device=/dev/b:/dev/c:rwm",
    "--mount=type=bind,source=/h,target=/c,readonly",
    '--mount=type=bind,"source=/i, j","target=/k""l"',
    "--annotation=example.com/a=1",
    "--device=example.com/w=0",
]


@pytest.mark.parametrize("args", [podman.args, docker.args], ids=["podman", "docker"])
def test_every_option_becomes_one_argument(
    args: Callable[[ContainerOptions], list[str]],
) -> None:
    """Words are not quoted for a shell; commas and quotes inside a mount are, as CSV."""
    assert args(OPTIONS) == WORDS


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (ContainerOptions(devices=(DeviceSpec("/dev/a:b"),)), "the device path /dev/a:b"),
        (ContainerOptions(devices=(DeviceSpec("/dev/a", "/x:y"),)), "the device path /x:y"),
        (ContainerOptions(mounts=(Mount("/a\nb", "/c"),)), "line break"),
        (ContainerOptions(env={"A=B": "c"}), "the environment variable name 'A=B'"),
        (ContainerOptions(env={"": "c"}), "the environment variable name ''"),
        (ContainerOptions(annotations={"a=b": "c"}), "the annotation name 'a=b'"),
    ],
)
def test_options_that_arguments_cannot_express_are_refused(
    options: ContainerOptions, what: str
) -> None:
    """Neither podman nor docker can quote a colon in a device; a wrong device would be worse."""
    for name, runtime in (("podman", podman.args), ("docker", docker.args)):
        with pytest.raises(NotExpressible, match=what) as caught:
            runtime(options)
        assert caught.value.runtime == name
        assert isinstance(caught.value, UsageError)


def test_env_has_only_the_variables() -> None:
    """Devices and mounts are there for a program of the host anyway."""
    options = ContainerOptions(env=OPTIONS.env, devices=OPTIONS.devices, mounts=OPTIONS.mounts)
    assert env.words(options) == ["A=x y", "B="]


@pytest.mark.parametrize("name", ["", "a=b", "-i"])
def test_env_refuses_names_that_env_would_misread(name: str) -> None:
    """`env -i=1` is no assignment."""
    with pytest.raises(NotExpressible, match=f"variable name '{name}'") as caught:
        env.words(ContainerOptions(env={name: "1"}))
    assert caught.value.runtime == "env"


def test_env_does_not_hide_a_cdi_device() -> None:
    """What a name means is not known here."""
    with pytest.raises(NotExpressible, match=r"the CDI devices example\.com/w=0"):
        env.words(OPTIONS)


def test_formats_are_named_after_the_modules() -> None:
    """The command line offers exactly these."""
    assert FORMATS == ("podman", "docker", "oci", "cdi", "env")
