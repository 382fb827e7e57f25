"""The driver's rights at the API server, compared with its manifests at the end of a run."""

from collections.abc import Collection

from kubedevices.check.check import FAIL, NOTE, WARN, Broken, Harm, NotTried, Theme
from kubedevices.check.drivers.cluster import WRITES
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.rights import ANY, CLAIMS, Right, is_granted
from kubedevices.check.drivers.target import AFTERWARDS
from kubedevices.errors.words import counted, some_of

theme = Theme("rights", track=AFTERWARDS, harm=Harm.OTHER)


def _granted(node: DriverNode) -> frozenset[Right]:
    if node.target.granted is None:
        raise NotTried("needs --manifests FILE, with the ClusterRole of the driver")
    if not node.target.granted:
        raise Broken("the manifests have no Role and no ClusterRole with rules")
    return node.target.granted


@theme.check(
    "missing",
    FAIL,
    harm=Harm.ALL_DEVICES,
    suffers="In a cluster with RBAC the driver publishes nothing, or cannot read claims.",
    source="Kubernetes RBAC",
    mend="Add the verbs to the ClusterRole of the driver.",
)
async def missing(node: DriverNode) -> str:
    """The ClusterRole gives each right that the driver used."""
    granted = _granted(node)
    lost = [str(each) for each in sorted(node.shared.rights) if not is_granted(each, granted)]
    if lost:
        raise Broken(f"not granted: {some_of(lost, limit=8)}")
    _need_claims(node)
    return f"{counted(len(node.shared.rights), 'right')} used"


@theme.check(
    "unused",
    NOTE,  # nobody can tell here which verbs the driver needs in other situations
    suffers="Whoever takes over the driver's pod can do more to the cluster than the driver does.",
    source="Kubernetes RBAC good practices: least privilege",
    mend="Remove verbs that the driver does not use. A run tries only what the check can play.",
)
async def unused(node: DriverNode) -> str:
    """The ClusterRole gives no right on slices, claims and nodes that the driver did not use."""
    granted, used = _granted(node), node.shared.rights
    _need_claims(node)
    resources = {each.resource for each in used}
    more = [
        each
        for each in sorted(granted - used)
        if each.resource in resources and each.verb != ANY and not _goes_with(each, used)
    ]
    if more:
        raise Broken(f"not used: {some_of([str(each) for each in more], limit=8)}")
    return "nothing more"


def _need_claims(node: DriverNode) -> None:
    """Raise `NotTried` if no check made the driver read a claim: much of its work is unseen."""
    if not any(each.resource == CLAIMS for each in node.shared.rights):
        raise NotTried("the driver has read no claim; choose prepare.answers too, or all checks")


def _goes_with(right: Right, used: Collection[Right]) -> bool:
    """Whether a driver needs a right beside those that it used.

    A client that watches lists where the server has no streaming lists, and who creates slices
    deletes those that are too many.
    """
    beside = {"list": "watch", "delete": "create"}.get(right.verb)
    return beside is not None and right._replace(verb=beside) in used


@theme.check(
    "wide",
    WARN,
    suffers="Whoever takes over the driver's pod owns the cluster.",
    source="Kubernetes RBAC good practices: wildcards, secrets",
    mend="Name each resource and each verb, and do not read Secrets.",
)
async def wide(node: DriverNode) -> str:
    """The ClusterRole has no wildcard and gives no access to Secrets."""
    bad = [each for each in sorted(_granted(node)) if ANY in each or each.resource == "secrets"]
    if bad:
        raise Broken(f"granted: {some_of([*map(str, bad)], limit=8)}")
    return "no wildcard, no Secrets"


@theme.check(
    "other-nodes",
    WARN,
    suffers="Whoever takes over one node removes the devices of all nodes, or offers false ones.",
    source="RBAC cannot limit writes to a node; KEP-4381: a ValidatingAdmissionPolicy can",
    mend="Add a ValidatingAdmissionPolicy, with its Binding, that compares spec.nodeName with the"
    " node in the token of the service account, as dra-example-driver does.",
)
async def other_nodes(node: DriverNode) -> str:
    """Who may write ResourceSlices is limited to its own node by an admission policy."""
    writes = [each for each in _granted(node) if each.resource in ("resourceslices", ANY)]
    if not any(each.verb in WRITES | {ANY} for each in writes):
        return "no right to write ResourceSlices"
    if not node.target.guarded:
        raise Broken("the manifests have no admission policy for ResourceSlices with a Binding")
    return "an admission policy looks at ResourceSlices"
