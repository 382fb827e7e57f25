"""Drivers with a mistake in the parameters of a claim."""

from collections.abc import Iterator
from typing import Any

from tests.check.grpc_driver.claims import KIND, ClaimReader, api_version
from tests.check.grpc_driver.defects.registry import defect

Object = dict[str, Any]


@defect("prepare.config-strict")
class TakesAnyParameters(ClaimReader):
    def decoded(self, parameters: Object) -> Object:
        return {"fields": {}}


@defect("prepare.config-foreign")
class ReadsParametersOfOthers(ClaimReader):
    def is_mine(self, opaque: Object) -> bool:
        return True


@defect("prepare.config-strict", "unknown-field")
class LeavesUnknownFieldsOut(ClaimReader):
    def decoded(self, parameters: Object) -> Object:
        return super().decoded({k: v for k, v in parameters.items() if k != "noSuchField"})


@defect("prepare.config-strict", "any-version")
class TakesAnyVersion(ClaimReader):
    def decoded(self, parameters: Object) -> Object:
        is_ours = parameters.get("kind") == KIND
        return super().decoded(
            parameters | ({"apiVersion": api_version(self.driver)} if is_ours else {})
        )


@defect("prepare.config-order")
class TheClassWins(ClaimReader):
    def configs(self, allocation: Object) -> Iterator[Object]:
        yield from reversed([*super().configs(allocation)])


@defect("prepare.config-order", "first-wins")
class TheFirstOfAClaimWins(ClaimReader):
    def merged(self, configs: list[Object], request: str) -> Object:
        of_claim = [each for each in configs if each["source"] == "FromClaim"]
        return super().merged([*reversed(of_claim)] or configs, request)


@defect("prepare.subrequest", "parent-ignored")
class IgnoresTheParent(ClaimReader):
    def merged(self, configs: list[Object], request: str) -> Object:
        exact = [each for each in configs if not each["requests"] or request in each["requests"]]
        return super().merged(exact, request)
