"""The answers of an exposed resource: which devices it prefers, and how many a container gets.

They always use the current configuration, so that a reload needs no new registration.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from kubedevices.expose.config import ResourceRule
from kubedevices.plugin.allocation_policy import choose_all
from kubedevices.plugin.capabilities import (
    USE_DEFAULT,
    AllocateAnswer,
    Allocator,
    PreferredAllocator,
)
from kubedevices.rules.replica_choice import check_shares
from kubedevices.rules.replicas import device_of
from kubedevices.values.allocation import (
    AllocateRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)


class ExposedResource(Allocator):
    """The abilities of one resource: `get_rule` returns its rule, `list_ids` its device IDs."""

    def __init__(
        self,
        get_rule: Callable[[], ResourceRule | None],
        list_ids: Callable[[], Iterable[str]],
    ) -> None:
        self._get_rule, self._list_ids = get_rule, list_ids

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse several devices for one container if the rule does not allow them."""
        rule = self._get_rule()
        if rule is not None and rule.fail_requests_greater_than_one:
            check_shares(request, rule.device_type, per_container=1, distinct=False)
        return USE_DEFAULT


class _ResourceWithPreference(ExposedResource, PreferredAllocator):
    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose by the policy of the resource."""
        rule = self._get_rule()
        policy = rule.allocation if rule is not None else "none"
        total = Counter(map(device_of, self._list_ids()))
        return choose_all(policy, request, physical=device_of, total=total)


def abilities_for(
    get_rule: Callable[[], ResourceRule | None], list_ids: Callable[[], Iterable[str]]
) -> ExposedResource:
    """Return the abilities of a resource: with a preference only if the rule has one.

    A kubelet calls GetPreferredAllocation before each Allocate of a plugin that offers it.
    """
    rule = get_rule()
    kind = _ResourceWithPreference if rule is not None and has_preference(rule) else ExposedResource
    return kind(get_rule, list_ids)


def has_preference(rule: ResourceRule) -> bool:
    """Whether it matters which devices of the resource are allocated first."""
    return rule.replicas > 1 or rule.allocation != "none"
