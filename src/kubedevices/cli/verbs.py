"""The verbs of the command line: their groups, the first line of their help, their pages."""

from collections.abc import Mapping
from typing import NamedTuple


class Group(NamedTuple):
    """Verbs that belong together in the help."""

    folder: str
    """The folder of their modules, beside this file."""
    verbs: Mapping[str, str]
    """Each verb and the first line of its `HELP`. The copy lets the help load no verb."""


GROUPS = {
    "Find mistakes": Group(
        "find_mistakes",
        {
            "check": "find the mistakes of a device plugin or a DRA driver in any language",
            "explain": "say why a pod waits, or why a device cannot be allocated or used",
        },
    ),
    "Write a plugin": Group(
        "write",
        {
            "init": "write the project of a plugin: code, tests, image, manifests, CI",
            "scan": "run a scanner once and print its devices; needs no root and no kubelet",
            "run": "serve a plugin written in Python",
        },
    ),
    "Ready plugins": Group(
        "ready_plugins",
        {
            "expose": "serve devices of this host, chosen by a profile or a YAML file",
            "simulate": "serve simulated devices",
        },
    ),
    "Other vendors' plugins": Group(
        "other_plugins",
        {
            "proxy": "share, hold, check or repair another plugin's devices, or offer them by DRA",
            "record": "record what device plugins and the kubelet say, for kubedevices replay",
            "replay": "serve a record as a plugin: the same lists, the same answers",
            "cordon": "take a device from new pods: Unhealthy, and refused with the reason",
            "uncordon": "let new pods have a cordoned device again",
        },
    ),
    "Node": Group(
        "node",
        {
            "node": "run a node without Kubernetes: accept plugins, allocate their devices",
            "devices": "list devices of a node or a cluster: health, NUMA node, holder",
            "wait": "wait until a resource has devices to allocate",
            "allocate": "allocate devices for a container, as a kubelet does",
            "with": "run a command with devices, and release the devices when the command ends",
            "release": "release the devices of a pod, or of a claim that no pod uses",
        },
    ),
    "Cluster": Group(
        "cluster",
        {
            "manifests": "print the Kubernetes manifests that deploy a plugin",
            "deploy": (
                "deploy a plugin into the cluster of kubectl; if the plugin does not start, say why"
            ),
            "undeploy": "remove a plugin from the cluster of kubectl",
        },
    ),
    "Look closer": Group(
        "look_closer",
        {
            "cdi": "list CDI devices, check CDI files, say why a name does not resolve",
            "checkpoint": (
                "read a kubelet's device checkpoint: allocations, and whether the file is damaged"
            ),
            "completion": "print the completion for bash, zsh or fish",
            "help": "print the help of a verb, or the help of all verbs as a man page",
        },
    ),
}
"""The groups of `kubedevices --help`, in its order."""

VERBS = {name: summary for group in GROUPS.values() for name, summary in group.verbs.items()}

FOLDER_OF = {name: group.folder for group in GROUPS.values() for name in group.verbs}

PAGES = {
    "check": ("conformance", "dra-conformance", "ci"),
    "explain": ("troubleshoot",),
    "init": ("ship",),
    "scan": ("writing-a-plugin",),
    "run": ("writing-a-plugin", "dra"),
    "expose": ("expose", "health"),
    "simulate": ("simulate",),
    "proxy": ("proxy", "proxy-rules", "proxy-deploy"),
    "record": ("record",),
    "replay": ("record",),
    "cordon": ("cordon",),
    "uncordon": ("cordon",),
    "node": ("node", "containers"),
    "devices": ("observe",),
    "wait": ("node",),
    "allocate": ("node", "containers"),
    "with": ("containers",),
    "release": ("node", "dra-operate"),
    "manifests": ("deploy", "proxy-deploy", "helm", "kwok", "install"),
    "deploy": ("deploy",),
    "undeploy": ("deploy",),
    "cdi": ("troubleshoot",),
    "checkpoint": ("node",),
}
"""The pages in `docs` that explain a verb, the first one most."""
