"""Strict JSON schemas of kinds that do not belong to Kubernetes: an unknown key is an error.

The sources are the custom resource definitions of node-feature-discovery (nfd-api-crds.yaml), of
OpenShift (securitycontextconstraints.security.openshift.io, v1) and of KWOK (stages.kwok.x-k8s.io,
v1alpha1), reduced to the parts that we use.
"""

from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
_TEXT_OF_EACH: Schema = {"type": "object", "additionalProperties": TEXT}


def texts(*values: str) -> Schema:
    return {"type": "array", "items": {"enum": list(values)} if values else TEXT}


def strict(required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def document(api_version: str, kind: str, required: list[str], **properties: Schema) -> Schema:
    return strict(
        ["apiVersion", "kind", "metadata", *required],
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=strict(["name"], name=TEXT, labels=_TEXT_OF_EACH, annotations=_TEXT_OF_EACH),
        **properties,
    )


# fmt: off
_OPERATORS = [
    "In", "NotIn", "InRegexp", "Exists", "DoesNotExist", "Gt", "Ge", "Lt", "Le", "GtLt", "GeLe",
    "IsTrue", "IsFalse",
]
# fmt: on
_EXPRESSION = strict(["op"], op={"enum": _OPERATORS}, value=texts())
_FEATURES: Schema = {
    "type": "array",
    "minItems": 1,
    "items": strict(
        ["feature"],
        feature={
            "enum": ["pci.device", "usb.device", "kernel.loadedmodule", "kernel.enabledmodule"]
        },
        matchExpressions={"type": "object", "additionalProperties": _EXPRESSION},
        matchName=_EXPRESSION,
    ),
}
_RULE = strict(
    ["name"],
    name=TEXT,
    labels={"type": "object", "additionalProperties": TEXT},
    matchFeatures=_FEATURES,
    matchAny={"type": "array", "items": strict(["matchFeatures"], matchFeatures=_FEATURES)},
)

NODE_FEATURE_RULE = document(
    "nfd.k8s-sigs.io/v1alpha1",
    "NodeFeatureRule",
    ["spec"],
    spec=strict(["rules"], rules={"type": "array", "minItems": 1, "items": _RULE}),
)

_RUN_AS = ["MustRunAs", "MustRunAsNonRoot", "MustRunAsRange", "RunAsAny"]
_NULLABLE: Schema = {"type": ["array", "null"], "items": TEXT}

SECURITY_CONTEXT_CONSTRAINTS = document(
    "security.openshift.io/v1",
    "SecurityContextConstraints",
    [
        "allowHostDirVolumePlugin",
        "allowHostIPC",
        "allowHostNetwork",
        "allowHostPID",
        "allowHostPorts",
        "allowPrivilegedContainer",
        "allowedCapabilities",
        "defaultAddCapabilities",
        "priority",
        "readOnlyRootFilesystem",
        "requiredDropCapabilities",
        "volumes",
    ],
    allowHostDirVolumePlugin=FLAG,
    allowHostIPC=FLAG,
    allowHostNetwork=FLAG,
    allowHostPID=FLAG,
    allowHostPorts=FLAG,
    allowPrivilegeEscalation=FLAG,
    allowPrivilegedContainer=FLAG,
    allowedCapabilities=_NULLABLE,
    defaultAddCapabilities=_NULLABLE,
    priority={"type": ["integer", "null"]},
    readOnlyRootFilesystem=FLAG,
    requiredDropCapabilities=_NULLABLE,
    runAsUser=strict(["type"], type={"enum": _RUN_AS}),
    seLinuxContext=strict(["type"], type={"enum": ["MustRunAs", "RunAsAny"]}),
    seccompProfiles=texts("runtime/default"),
    fsGroup=strict(["type"], type={"enum": ["MustRunAs", "RunAsAny"]}),
    supplementalGroups=strict(["type"], type={"enum": ["MustRunAs", "RunAsAny"]}),
    users=texts(),
    volumes=texts("configMap", "hostPath", "emptyDir", "projected"),
)

BY_KIND = {
    "NodeFeatureRule": NODE_FEATURE_RULE,
    "SecurityContextConstraints": SECURITY_CONTEXT_CONSTRAINTS,
}

STAGE = document(
    "kwok.x-k8s.io/v1alpha1",
    "Stage",
    ["spec"],
    spec=strict(
        ["resourceRef", "selector", "next"],
        resourceRef=strict(["kind"], apiGroup=TEXT, kind=TEXT),
        selector=strict(
            [],
            matchLabels={"type": "object", "additionalProperties": TEXT},
            matchAnnotations={"type": "object", "additionalProperties": TEXT},
            matchExpressions={
                "type": "array",
                "items": strict(
                    ["key", "operator"],
                    key=TEXT,
                    operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    values=texts(),
                ),
            },
        ),
        weight={"type": "integer", "minimum": 0},
        delay=strict([], durationMilliseconds={"type": "integer", "minimum": 0}),
        next=strict(
            [],
            patches={
                "type": "array",
                "items": strict(
                    [],
                    root=TEXT,
                    subresource=TEXT,
                    template=TEXT,
                    type={"enum": ["json", "merge", "strategic"]},
                ),
            },
        ),
    ),
)
