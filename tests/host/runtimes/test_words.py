"""Container options as arguments of podman and docker, and as environment variables."""

import pytest

from kubedevices.errors import NotExpressible, UnsafeVariable, UsageError
from kubedevices.host.runtimes import FORMATS, engine, env
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import DeviceSpec, Mount

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


def test_every_option_becomes_one_argument() -> None:
    """Words are not quoted for a shell; commas and quotes inside a mount are, as CSV."""
    assert engine.args("podman", OPTIONS) == WORDS


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
    for name in ("podman", "docker"):
        with pytest.raises(NotExpressible, match=what) as caught:
            engine.args(name, options)
        assert caught.value.runtime == name
        assert isinstance(caught.value, UsageError)


def test_env_has_only_the_variables() -> None:
    """Devices and mounts are there for a program of the host anyway."""
    options = ContainerOptions(env=OPTIONS.env, devices=OPTIONS.devices, mounts=OPTIONS.mounts)
    assert env.words(options) == ["A=x y", "B="]


@pytest.mark.parametrize("name", ["", "a=b", "-i", "a b", "a\nb", "a\0", "BASH_FUNC_ls%%", "ä"])
def test_env_refuses_names_that_are_no_names(name: str) -> None:
    """`env -i=1` is no assignment; a name with `%%` is a function for bash. None can be allowed."""
    with pytest.raises(UnsafeVariable, match="not the name of a variable") as caught:
        env.words(ContainerOptions(env={name: "1"}), allowed=[name])
    assert "--allow-env" not in str(caught.value)


DANGEROUS = """
LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT GLIBC_TUNABLES MALLOC_CONF PATH HOME IFS ENV BASH_ENV SHELLOPTS
BASHOPTS PS4 PROMPT_COMMAND CDPATH TMPDIR PYTHONPATH PYTHONSTARTUP PYTHONHOME PERL5LIB PERL5OPT
RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH
GIT_SSH_COMMAND GIT_EXEC_PATH GIT_CONFIG_COUNT SSH_ASKPASS EDITOR VISUAL PAGER LESSOPEN GCONV_PATH
DOCKER_HOST CONTAINER_HOST CONTAINERS_CONF COMPOSE_FILE KUBECONFIG XDG_CONFIG_HOME http_proxy
HTTPS_PROXY ALL_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE OPENSSL_CONF NOTIFY_SOCKET LISTEN_FDS
CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH VK_ICD_FILENAMES OCL_ICD_VENDORS PHPRC LUA_PATH
KUBEDEVICES_X TERMINFO HOSTALIASES RES_OPTIONS
"""


@pytest.mark.parametrize("name", DANGEROUS.split())
def test_env_refuses_variables_that_make_a_program_run_other_code(name: str) -> None:
    """The message names variable and plugin and the option; with the option the program gets it."""
    options = ContainerOptions(env={"A": "1", name: "x"})
    with pytest.raises(UnsafeVariable) as caught:
        env.variables(options, plugin="example.com/gpu", allowed=["OTHER"])
    for word in (repr(name), "example.com/gpu", f"--allow-env {name}"):
        assert word in str(caught.value)
    assert env.variables(options, allowed=[name]) == options.env


USUAL = """
NVIDIA_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK IDS x.y
PCIDEVICE_INTEL_COM_SRIOV GPU_gpu-n-2 WIDGET_PATH HOMER
"""


@pytest.mark.parametrize("name", USUAL.split())
def test_env_passes_the_variables_of_usual_plugins(name: str) -> None:
    """Also names with `-` and `.`, which Kubernetes accepts."""
    assert env.words(ContainerOptions(env={name: "1"})) == [f"{name}=1"]


def test_no_runtime_gets_a_nul_character() -> None:
    """The operating system would cut or refuse the argument."""
    options = ContainerOptions(env={"A": "x\0y"})
    with pytest.raises(NotExpressible, match="NUL"):
        engine.args("docker", options)
    with pytest.raises(NotExpressible, match="NUL"):
        env.words(options)


def test_containers_get_every_variable() -> None:
    """In a container the plugin decides, as with a kubelet."""
    options = ContainerOptions(env={"LD_PRELOAD": "/x.so", "PATH": "/x"})
    assert engine.args("docker", options) == ["--env=LD_PRELOAD=/x.so", "--env=PATH=/x"]


def test_env_does_not_hide_a_cdi_device() -> None:
    """What a name means is not known here."""
    with pytest.raises(NotExpressible, match=r"the CDI devices example\.com/w=0"):
        env.words(OPTIONS)


def test_the_formats() -> None:
    """The command line offers exactly these."""
    assert FORMATS == ("podman", "docker", "oci", "cdi", "env")
