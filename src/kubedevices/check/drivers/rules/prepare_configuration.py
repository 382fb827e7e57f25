"""Opaque parameters of claims and DeviceClasses.

What a valid parameter is only the driver knows: with --parameters the user gives two sets, A and B.
"""

from collections.abc import Iterator

from kubedevices.check.check import FAIL, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.drivers.claims import TestClaim, cdi_ids
from kubedevices.check.drivers.node import DriverNode
from kubedevices.values.scheduling.kinds import Object

theme = Theme("prepare", harm=Harm.WRONG_DEVICE, needs=("prepare.answers",))
_OTHER = "other.example.com"
_HEAD = ("apiVersion", "kind")


@theme.check(
    "config-strict",
    FAIL,
    suffers="A mistake in a claim is ignored, and the container runs with other settings.",
    source="KEP-4381: opaque parameters are the driver's to validate",
    mend="Decode strictly: refuse unknown kinds, versions and fields, by name, before any effect.",
)
async def config_strict(node: DriverNode) -> str:
    """Parameters of an unknown kind are refused; so are an unknown version, an unknown field and a
    wrong type, which the refusal names. The claim leaves nothing.
    """
    weak, tried = [], []
    for what, word, parameters in _mistakes(node):
        async with TestClaim(node).allocate() as claim:
            claim.set_results(claim.results, config=[_entry(node, parameters)])
            answer = await claim.try_prepare()
            if not isinstance(answer, str):
                if what == "version":
                    weak.append("another version was accepted")
                    continue
                raise Broken(f"parameters with the {what} {word} were accepted")
            if word not in answer and what in ("unknown field", "wrong type"):
                weak.append(f"{what} {word}: the refusal does not name it: {answer}")
            if left := node.files.cdi_files_of(claim.uid):
                weak.append(f"{what} {word}: the refused claim left the CDI file {left[0]}")
        tried.append(what)
    if weak:
        raise Fragile(weak[0])
    return f"refused: {', '.join(tried)}"


def _mistakes(node: DriverNode) -> Iterator[tuple[str, str, Object]]:
    """Yield what is wrong, the word that a refusal should have, and the parameters."""
    head = {"apiVersion": f"{node.driver}/v0", "kind": "NoSuchKind"}
    yield "kind", "NoSuchKind", head | {"noSuchField": 1}
    for good in node.target.parameters[:1]:
        yield "unknown field", "noSuchField", good | {"noSuchField": 1}
        if "apiVersion" in good:
            group = str(good["apiVersion"]).rpartition("/")[0] or node.driver
            yield "version", "v0", good | {"apiVersion": f"{group}/v0"}
        for name in [each for each in good if each not in _HEAD][:1]:
            wrong = 7 if isinstance(good[name], dict | list) else [{"no": "such"}]
            yield "wrong type", name, good | {name: wrong}


@theme.check(
    "config-foreign",
    FAIL,
    suffers="A claim with devices of two drivers cannot be prepared.",
    source="KEP-4381: a configuration entry names its driver",
    mend="Ignore entries of other drivers.",
)
async def config_foreign(node: DriverNode) -> str:
    """Parameters for another driver are ignored."""
    other = _entry(node, {"kind": "Other", "noSuchField": 1}, source="FromClass", driver=_OTHER)
    async with TestClaim(node).allocate() as claim:
        claim.set_results(claim.results, config=[other])
        await claim.prepare()
    return "ignored"


@theme.check(
    "config-order",
    FAIL,
    needs=("prepare.config-foreign",),
    suffers="What a user writes into a claim has no effect: the settings of the class win.",
    source="KEP-4381: entries of the DeviceClass come first, the claim overrides; an entry without"
    " requests is for all",
    mend="Take, for each request, the last entry of the claim that names it or names none, then the"
    " last of the class.",
    seen="drivers in which the entry of the class wins, because it names the request",
)
async def config_order(node: DriverNode) -> str:
    """With the parameters A before B, for example A in the class and B in the claim, a container
    gets what B alone gives.
    """
    a, b = two_sets(node)
    alone = await edits_with(node, _entry(node, b))
    if alone != await edits_with(node, _entry(node, b)):
        raise NotTried("its CDI edits differ between two claims with equal parameters")
    if alone == await edits_with(node, _entry(node, a)):
        raise NotTried("the parameters A and B give the same CDI edits")
    class_a = _entry(node, a, "one", source="FromClass")  # as a scheduler copies it
    forms = {
        "class B": [_entry(node, b, "one", source="FromClass")],
        "class A, claim B": [class_a, _entry(node, b)],
        "class A, claim B for the request": [class_a, _entry(node, b, "one")],
        "A for all, then B for the request": [_entry(node, a), _entry(node, b, "one")],
        "A, then B": [_entry(node, a), _entry(node, b)],
        "B, and A for another request": [_entry(node, b), _entry(node, a, "two")],
        "B, and A for another driver": [_entry(node, b), _entry(node, a, driver=_OTHER)],
    }
    for form, entries in forms.items():
        if await edits_with(node, *entries) != alone:
            raise Broken(f"{form}: the CDI edits are not those of B alone")
    return f"B counts in {len(forms)} forms"


async def judge_subrequest(node: DriverNode) -> str:
    """Return evidence that parameters for `gpu` and for `gpu/big` count for a device of `gpu/big`.

    Raises `Broken`; there is no evidence without parameters that have different effects.
    """
    if not node.target.parameters:
        return ""
    a, b = node.target.parameters
    alone = await edits_with(node, _entry(node, b), request="gpu/big")
    if alone == await edits_with(node, _entry(node, a), request="gpu/big"):
        return ""  # `prepare.config-order` says so
    for name in ("gpu", "gpu/big"):
        if await edits_with(node, _entry(node, b, name), request="gpu/big") != alone:
            raise Broken(f"parameters for {name} do not count for a device of gpu/big")
    return ", with parameters for gpu and for gpu/big"


def two_sets(node: DriverNode) -> tuple[Object, Object]:
    """Return the parameter sets A and B; raises `NotTried` without them."""
    if not node.target.parameters:
        raise NotTried("needs --parameters FILE, with two valid parameter sets of the driver")
    a, b = node.target.parameters
    return a, b


async def edits_with(node: DriverNode, *entries: Object, request: str = "one") -> str:
    """Return the CDI edits of a claim with these entries, without what names the claim.

    Raises `Broken` if the claim is refused, and `NotTried` if the driver gives no CDI devices.
    """
    async with TestClaim(node).allocate() as claim:
        claim.set_results([claim.results[0] | {"request": request}], config=entries)
        prepared = await claim.prepare()
        edits = node.files.cdi_edits(cdi_ids(prepared))
        return edits.replace(claim.uid, "UID").replace(claim.name, "NAME")


def _entry(
    node: DriverNode,
    parameters: Object,
    *requests: str,
    source: str = "FromClaim",
    driver: str = "",
) -> Object:
    opaque = {"driver": driver or node.driver, "parameters": parameters}
    return {"requests": [*requests], "source": source, "opaque": opaque}
