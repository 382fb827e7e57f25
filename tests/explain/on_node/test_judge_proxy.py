"""What is said about a resource with a proxy before it."""

import pytest

from kubedevices.explain.finding import Outcome
from kubedevices.explain.on_node.judge_proxy import cordoned_of, judge_behind, judge_proxy
from kubedevices.values.proxied_plugin import HIDDEN, DeviceReason, OutsideResource, ProxiedPlugin

INSIDE, OUTSIDE = "vendor.example/card", "example.com/card"
PLUGIN = ProxiedPlugin(
    INSIDE,
    "/in/card.sock",
    is_here=True,
    healthy=2,
    unhealthy=1,
    rules=("calls card card",),
    outside=(OutsideResource(OUTSIDE, 4, 2),),
)
AWAY = PLUGIN._replace(is_here=False, socket="")


def test_a_plugin_that_is_connected_is_named_with_its_rules() -> None:
    """Plugin, rules, kubelet: in this order."""
    (told,) = judge_proxy(OUTSIDE, [PLUGIN])
    assert (told.step, told.result, told.looked_at) == ("proxy", Outcome.OK, f"proxy, {INSIDE}")
    assert told.found == (
        "its plugin at /in/card.sock lists 3 devices, 2 healthy; rules: calls card card; "
        "the kubelet gets 6 devices, 4 healthy"
    )
    (told,) = judge_proxy(OUTSIDE, [PLUGIN._replace(rules=())])
    assert "no rule changes it" in told.found


@pytest.mark.parametrize("healthy", [4, 0])
def test_a_plugin_that_is_away_is_a_problem_also_while_its_list_is_held(healthy: int) -> None:
    """New pods wait or stay Pending, however many devices of running pods are healthy."""
    plugin = AWAY._replace(outside=(OutsideResource(OUTSIDE, healthy, 6 - healthy),))
    (told,) = judge_proxy(OUTSIDE, [plugin])
    assert told.result is Outcome.PROBLEM
    assert told.found.startswith("its plugin is not connected to the proxy; ")
    assert told.advice


def test_the_name_inside_leads_to_the_name_outside() -> None:
    """And a hidden resource to the file that hides it."""
    (told,) = judge_proxy(INSIDE, [PLUGIN])
    assert told.result is Outcome.PROBLEM
    assert told.command == f"kubedevices explain {OUTSIDE}"
    hidden = PLUGIN._replace(rules=("hidden from the kubelet",), outside=())
    (told,) = judge_proxy(INSIDE, [hidden])
    assert told.found == "the proxy does not serve it: rules: hidden from the kubelet"


def test_a_proxy_does_not_concern_other_resources() -> None:
    """A proxy changes nothing that is not behind it."""
    assert judge_proxy("example.com/other", [PLUGIN]) == []


def test_all_resources_have_a_line_per_plugin_behind_the_proxy() -> None:
    """What is wrong with a resource of the kubelet's is told there, and not here again."""
    (told,) = judge_behind([PLUGIN], {OUTSIDE})
    assert (told.result, told.looked_at) == (Outcome.OK, f"proxy, {INSIDE}")
    assert told.found == (
        "its plugin at /in/card.sock lists 3 devices, 2 healthy; rules: calls card card; "
        f"the kubelet gets {OUTSIDE}"
    )
    assert [*judge_behind([AWAY], {OUTSIDE})] == []
    (told,) = judge_behind([PLUGIN._replace(outside=(OutsideResource(OUTSIDE, 0, 0),))], ())
    assert told.found.endswith("the kubelet gets 0 devices, 0 healthy")
    hidden = AWAY._replace(rules=(HIDDEN,), outside=())
    (told,) = judge_behind([hidden], ())
    assert told.result is Outcome.OK
    assert told.found == f"its plugin is not connected to the proxy; rules: {HIDDEN}"
    broken = AWAY._replace(rules=("not served, the log of the proxy says why",), outside=())
    assert [each.result for each in judge_behind([broken], ())] == [Outcome.PROBLEM]


def test_the_proxy_says_which_devices_are_cordoned_and_without_it_the_list() -> None:
    """Of the resource in question, by the names of the kubelet; the rule `cordon` may be off."""
    fan, other = DeviceReason(OUTSIDE, "c1", "fan"), DeviceReason("example.com/b", "c2", "x")
    assert cordoned_of(OUTSIDE, [PLUGIN._replace(cordoned=(fan, other)), AWAY], []) == (fan,)
    assert cordoned_of(OUTSIDE, [PLUGIN], [fan]) == ()
    assert cordoned_of("example.com/b", [PLUGIN], [fan, other]) == (other,)
