"""Container options as environment variables only: for a program of the host, without a container.

Such a program has the device files and directories of the host already. CDI names are not
expressible, because a CDI device may have further variables. A plugin chooses the names. On the
host, some names make a program run other code or use other servers, so these are refused.
"""

import re
from collections.abc import Collection, Mapping

from kubedevices.errors import NotExpressible, UnsafeVariable
from kubedevices.values.allocation import ContainerOptions

_NAME = re.compile(r"[A-Za-z_.][-._A-Za-z0-9]*")
"""What Kubernetes accepts as the name of a variable of a container, without a leading `-`."""

_DANGEROUS_BEGINNINGS = (
    *("LD_", "DYLD_", "GLIBC_", "MALLOC_", "BASH", "SHELL", "KUBEDEVICES_"),
    *("PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_", "NODE_", "NPM_", "JAVA_", "JDK_", "LUA_"),
    *("PHP", "GIT_", "SSH_", "SUDO_", "DOCKER_", "CONTAINER", "COMPOSE_", "BUILDKIT_", "PODMAN_"),
    *("SYSTEMD_", "DBUS_", "LISTEN_", "XDG_", "OPENSSL_", "SSL_", "CURL_", "NIX_", "LESS"),
    *("GTK_", "GIO_", "QT_", "VK_", "OCL_ICD_", "PIP_", "UV_", "CONDA_", "VIRTUAL_ENV"),
)
"""Loaders, shells, interpreters, version control, container engines, TLS, plug-ins of libraries."""

_DANGEROUS_ENDINGS = ("_PRELOAD", "_INJECTION64_PATH", "_PROXY", "_CA_BUNDLE", "_DRIVERS_PATH")
"""Libraries that a program loads, and servers and certificates that it trusts."""

_DANGEROUS = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD", "CDPATH"),
        *("IFS", "ENV", "PS0", "PS1", "PS2", "PS4", "PROMPT_COMMAND", "INPUTRC"),
        *("ZDOTDIR", "FPATH"),
        *("EDITOR", "VISUAL", "PAGER", "BROWSER", "MANPAGER", "TERM", "TERMCAP", "TERMINFO"),
        *("GCONV_PATH", "LOCPATH", "NLSPATH", "TZDIR", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS"),
        *("RESOLV_HOST_CONF", "CLASSPATH", "_JAVA_OPTIONS", "TCLLIBPATH", "R_HOME", "R_PROFILE"),
        *("GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "MAKEFLAGS", "KUBECONFIG"),
        *("NOTIFY_SOCKET", "WATCHDOG_PID", "HSA_TOOLS_LIB", "ROCP_TOOL_LIB"),
        "OMPI_MCA_PARAM_FILES",
    )
)


def why_unsafe(name: str) -> str:
    """Return why a program of the host must not get a variable of a plugin; empty if it may.

    Upper and lower case count as equal: `http_proxy` works like `HTTP_PROXY`.
    """
    if not _NAME.fullmatch(name):
        return "this is not the name of a variable"
    capitals = name.upper()
    if (
        capitals in _DANGEROUS
        or capitals.startswith(_DANGEROUS_BEGINNINGS)
        or capitals.endswith(_DANGEROUS_ENDINGS)
    ):
        return "with this variable a program of the host may run other code"
    return ""


def variables(
    options: ContainerOptions, *, plugin: str = "", allowed: Collection[str] = ()
) -> Mapping[str, str]:
    """Return the variables for a program of the host.

    `plugin` says in an error where they come from. `allowed` has names that are accepted although
    `why_unsafe` has a reason against them; a name that is invalid is never accepted. Raises
    `NotExpressible`, and `UnsafeVariable` for the first name that is refused.
    """
    if options.cdi_devices:
        raise NotExpressible("env", f"the CDI devices {', '.join(options.cdi_devices)}")
    for name, value in options.env.items():
        reason = why_unsafe(name)
        if reason and not (name in allowed and _NAME.fullmatch(name)):
            raise UnsafeVariable(name, plugin, reason, can_allow=_NAME.fullmatch(name) is not None)
        if "\0" in value:
            raise NotExpressible("env", f"the value of {name}, because of its NUL character")
    return options.env


def words(
    options: ContainerOptions, *, plugin: str = "", allowed: Collection[str] = ()
) -> list[str]:
    """Return `variables` as `NAME=value` arguments for the command `env`."""
    found = variables(options, plugin=plugin, allowed=allowed)
    return [f"{name}={value}" for name, value in found.items()]
