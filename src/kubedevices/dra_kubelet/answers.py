"""What is wrong with the answer of a driver, in the words of a kubelet. Pure.

A pod waits until nothing is wrong: the kubelet calls again.
"""

from collections.abc import Iterable, Mapping

from kubedevices.allocation import ClaimReference


def answer_problem(method: str, asked: Iterable[ClaimReference], errors: Mapping[str, str]) -> str:
    """Return what is wrong, or nothing; `errors` has by UID what the driver says, maybe nothing.

    `method` is `NodePrepareResources` or `NodeUnprepareResources`.
    """
    names = {each.uid: each.name for each in asked}
    for uid, error in errors.items():
        if uid not in names:
            return f"{method} returned result for unknown claim UID {uid}"
        if error:
            return f"{method} failed for ResourceClaim {names[uid]}: {error}"
    if skipped := len(names) - len(errors):
        return f"{method} skipped {skipped} ResourceClaims"
    return ""
