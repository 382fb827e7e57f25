"""Opaque parameters of claims and DeviceClasses."""

from kubedevices.check.check import Broken, Harm, Severity, Theme
from kubedevices.check.drivers.claims import TestClaim
from kubedevices.check.drivers.node import DriverNode

FAIL = Severity.FAIL
theme = Theme("prepare", harm=Harm.WRONG_DEVICE)


@theme.check(
    "config-strict",
    FAIL,
    suffers="A mistake in a claim is ignored, and the container runs with other settings.",
    source="KEP-4381: opaque parameters are the driver's to validate",
    mend="Decode strictly: refuse unknown kinds, versions and fields, by name.",
)
async def config_strict(node: DriverNode) -> str:
    """Parameters of an unknown kind are refused, and the claim leaves nothing."""
    parameters = {"apiVersion": f"{node.driver}/v0", "kind": "NoSuchKind", "noSuchField": 1}
    entry = {
        "requests": [],
        "source": "FromClaim",
        "opaque": {"driver": node.driver, "parameters": parameters},
    }
    async with TestClaim(node).allocate() as claim:
        claim.set_results(claim.results, config=[entry])
        answer = await claim.try_prepare()
        if not isinstance(answer, str):
            raise Broken("parameters of the kind NoSuchKind were accepted")
        return f"refused: {answer}"


@theme.check(
    "config-foreign",
    FAIL,
    suffers="A claim with devices of two drivers cannot be prepared.",
    source="KEP-4381: a configuration entry names its driver",
    mend="Ignore entries of other drivers.",
)
async def config_foreign(node: DriverNode) -> str:
    """Parameters for another driver are ignored."""
    opaque = {"driver": "other.example.com", "parameters": {"kind": "Other", "noSuchField": 1}}
    entry = {"requests": [], "source": "FromClass", "opaque": opaque}
    async with TestClaim(node).allocate() as claim:
        claim.set_results(claim.results, config=[entry])
        await claim.prepare()
    return "ignored"
