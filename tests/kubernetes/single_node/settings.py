"""Arguments and configuration files of the services."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.single_node.layout import (
    CNI_PROGRAMS,
    NODE,
    NODE_ADDRESS,
    PLANE,
    REGISTRY,
    Layout,
)

_ETCD = "http://127.0.0.1:2379"
_PEER = "http://127.0.0.1:2380"

NETWORK = {
    "cniVersion": "1.0.0",
    "name": "test",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.138.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
"""The CNI configuration of the node."""

CONTAINERD = f"""\
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{REGISTRY}/local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
"""Format 2 is read by containerd 1.7 and, after a conversion of its own, by 2.x."""


@dataclass(frozen=True)
class Options:
    """What a user may change of a cluster."""

    gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates of all components."""
    kubelet: tuple[str, ...] = ()
    """Further arguments of the kubelet."""
    apiserver: tuple[str, ...] = ()
    """Further arguments of the API server."""

    @classmethod
    def read(cls, text: str) -> "Options":
        """Return the options that `text` has."""
        read = json.loads(text)
        return cls(read["gates"], tuple(read["kubelet"]), tuple(read["apiserver"]))

    def text(self) -> str:
        """Return the options as text for `read`."""
        return json.dumps(vars(self))


def arguments(name: str, layout: Layout, options: Options) -> list[str]:
    """Return the arguments of a service."""
    made = [f"--{key}={value}" for key, value in _arguments(name, layout)]
    if options.gates and name in PLANE[1:]:
        made.append("--feature-gates=" + ",".join(f"{k}={v}" for k, v in options.gates.items()))
    if name == "kube-apiserver":
        # The scheduler would wait for ever for the API of a gate that is on.
        made += ["--runtime-config=api/all=true"] if options.gates else []
        made += options.apiserver
    if name == "kubelet":
        made += options.kubelet
    return made


def _arguments(name: str, layout: Layout) -> Iterable[tuple[str, object]]:
    keys, config = layout.credentials, layout.directory
    match name:
        case "etcd":
            yield "data-dir", config / "etcd"
            yield "listen-client-urls", _ETCD
            yield "advertise-client-urls", _ETCD
            yield "listen-peer-urls", _PEER
            yield "initial-advertise-peer-urls", _PEER
            yield "initial-cluster", f"default={_PEER}"
        case "kube-apiserver":
            yield "etcd-servers", _ETCD
            yield "bind-address", "0.0.0.0"
            yield "secure-port", 443
            yield "advertise-address", NODE_ADDRESS
            yield "service-cluster-ip-range", "10.137.0.0/24"
            yield "tls-cert-file", keys / "apiserver.crt"
            yield "tls-private-key-file", keys / "apiserver.key"
            yield "client-ca-file", keys / "ca.crt"
            yield "token-auth-file", keys / "tokens.csv"
            yield "authorization-mode", "Node,RBAC"
            yield "enable-admission-plugins", "NodeRestriction"
            yield "allow-privileged", "true"
            yield "service-account-issuer", "https://kubernetes.default.svc"
            yield "service-account-key-file", keys / "sa.pub"
            yield "service-account-signing-key-file", keys / "sa.key"
            yield "kubelet-client-certificate", keys / "kubelet-client.crt"
            yield "kubelet-client-key", keys / "kubelet-client.key"
            yield "kubelet-certificate-authority", keys / "ca.crt"
            yield "kubelet-preferred-address-types", "InternalIP"
        case "kube-controller-manager":
            yield "kubeconfig", keys / "controller-manager.kubeconfig"
            yield "service-account-private-key-file", keys / "sa.key"
            yield "root-ca-file", keys / "ca.crt"
            yield "cluster-signing-cert-file", keys / "ca.crt"
            yield "cluster-signing-key-file", keys / "ca.key"
            yield "use-service-account-credentials", "true"
            yield "flex-volume-plugin-dir", layout.kubelet / "volumeplugins"
            yield "node-monitor-period", "1s"
            yield "leader-elect", "false"
        case "kube-scheduler":
            yield "kubeconfig", keys / "scheduler.kubeconfig"
            yield "leader-elect", "false"
        case "containerd":
            yield "config", config / "containerd.toml"
        case "kubelet":
            yield "config", config / "kubelet.json"
            yield "kubeconfig", keys / "kubelet.kubeconfig"
            yield "hostname-override", NODE
            yield "node-ip", NODE_ADDRESS
            yield "v", 2


def kubelet_configuration(layout: Layout, cgroup: str, options: Options) -> str:
    """Return the kubelet's configuration file. `cgroup` is the name of the cluster's cgroup."""
    keys = layout.credentials
    made: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "x509": {"clientCAFile": str(keys / "ca.crt")},
            "webhook": {"enabled": True},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(keys / "kubelet.crt"),
        "tlsPrivateKeyFile": str(keys / "kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": "",
        "clusterDNS": ["10.137.0.10"],
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "staticPodPath": "/etc/kubernetes/manifests",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "nodeStatusUpdateFrequency": "1s",
        "featureGates": dict(options.gates),
    }
    return json.dumps(made, indent=1)
