"""Systemd units: a plugin or a node as a service of the host.

The plugin starts before every kubelet, and counts as started when it serves, so that it registers
as soon as the kubelet listens. A kubelet that starts the plugin itself, as a DaemonSet, rejects the
pods with devices that ran before a reboot.
"""

import re
from collections.abc import Mapping, Sequence

KUBELETS = (
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.microk8s.daemon-kubelite.service",
)
NODE_ARGUMENTS = (
    *("node", "-o", "json", "--admission-wait", "30"),
    *("--plugin-registry", "/var/lib/kubelet/plugins_registry"),
    *("--pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock"),
    *("--listen", "127.0.0.1:9464"),
)

_LIMITS = """\
UMask=0077
LimitNOFILE=65536
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
PrivateTmp=yes
DevicePolicy=closed
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""

_RELOADED = ("expose", "proxy")  # read their configuration again at SIGHUP


def plugin_unit(
    program: str, arguments: Sequence[str], env: Mapping[str, str], *, has_dra: bool = False
) -> str:
    """Return the unit of a plugin, or of a DRA driver, beside a kubelet or a kubedevices node."""
    service = [
        *(f"Environment={_assignment(name, value)}" for name, value in env.items()),
        f"ExecStart={_command(program, arguments)}",
        *(["ExecReload=/bin/kill -HUP $MAINPID"] if arguments[0] in _RELOADED else []),
        "# A kubelet does not wait longer than this for the plugin.",
        "TimeoutStartSec=30",
        "Restart=always",
        "RestartSec=1",
        "# Exit code 2 is a mistake in the configuration: a restart does not help.",
        "RestartPreventExitStatus=2",
        "# If the plugin registers too late on a busy host, the kubelet rejects pods.",
        "Nice=-10",
    ]
    about = [
        f"Description=Kubernetes {'DRA driver' if has_dra else 'device plugin'}, kubedevices "
        + arguments[0],
        "After=local-fs.target",
        "# After a reboot, pods get their devices again only if the plugin starts first.",
        f"Before={' '.join(KUBELETS)}",
    ]
    return _unit(about, service)


def node_unit(program: str) -> str:
    """Return the unit of a node for a host without Kubernetes."""
    service = [
        f"ExecStart={_command(program, NODE_ARGUMENTS)}",
        "Restart=always",
        "RestartSec=1",
        "StateDirectory=kubedevices",
        "StateDirectoryMode=0700",
    ]
    about = [
        "Description=Device manager for Kubernetes device plugins",
        "Conflicts=kubelet.service",
        "After=local-fs.target",
    ]
    return _unit(about, service)


def _unit(about: Sequence[str], service: Sequence[str]) -> str:
    about = [
        *about,
        "# systemd starts the service again however often it ended.",
        "StartLimitIntervalSec=0",
    ]
    lines = ["[Unit]", *about, "", "[Service]", "Type=notify", *service]
    return "\n".join(lines) + f"\n{_LIMITS}\n[Install]\nWantedBy=multi-user.target\n"


def _command(program: str, arguments: Sequence[str]) -> str:
    """Return a command for ExecStart=: systemd.service(5).

    `$` is doubled in arguments. In the path of the program it has no meaning.
    """
    return " ".join([_quoted(program), *(_quoted(each.replace("$", "$$")) for each in arguments)])


def _assignment(name: str, value: str) -> str:
    """Return a variable for Environment=, in which `$` has no meaning: systemd.exec(5)."""
    return _quoted(f"{name}={value}")


def _quoted(text: str) -> str:
    """Quote one word by systemd.syntax(7); a `%` stands for itself: systemd.unit(5)."""
    text = text.replace("\\", "\\\\").replace("%", "%%")
    if re.fullmatch(r"[\w@:/.,=+*%$\[\]-]+", text):
        return text
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(character: str) -> str:
    if character == '"':
        return '\\"'
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
