"""The page on DRA lists the permissions of a driver."""

import re
from pathlib import Path

import yaml

from kubedevices.dra import api_client, holder_wait, service
from kubedevices.manifests.dra_access import RULES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/dra-operate.md").read_text()


def test_the_rules_of_the_page_are_those_that_are_used() -> None:
    """The tests on a real Kubernetes use the same rules, and the client has no other calls."""
    (block,) = re.findall(r"```yaml\n(- \{apiGroups.*?)```", PAGE, re.DOTALL)
    rules = yaml.safe_load(block)
    assert rules == RULES
    source = Path(api_client.__file__).read_text()
    called = set(re.findall(r'"(\w+)", "(nodes|resourceclaims|resourceslices)"', source))
    # `pages` lists any kind, for `explain` too: of a driver it lists the claims.
    called |= {("list", "resourceclaims") for _ in re.findall(r"self\.pages\(_CLAIMS", source)}
    allowed = {
        (verb, resource)
        for each in rules
        for verb in each["verbs"]
        for resource in each["resources"]
    }
    assert called == allowed


def test_the_page_says_how_long_a_claim_waits_for_its_holder() -> None:
    """The time is longer than that of a forced deletion, where Prepare comes before Unprepare."""
    page = " ".join((ROOT / "docs/dra-claims.md").read_text().split())
    assert f"at most {holder_wait.HOLDER_LIMIT:g} s" in page
    assert holder_wait.HOLDER_LIMIT < service.ANSWER_LIMIT
