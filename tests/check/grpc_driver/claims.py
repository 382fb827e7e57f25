"""What a ResourceClaim asks of this driver. Pure; refuses before anything has an effect."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

Object = dict[str, Any]
KIND = "DeviceConfig"
MODES = ("safe", "fast")


class Refused(Exception):
    """The claim cannot be prepared; the text is an event of the pod."""


def api_version(driver: str) -> str:
    """Return the version of our parameters."""
    return f"{driver}/v1"


class ClaimReader:
    """Reads claims for the driver of this name on this node."""

    def __init__(self, driver: str, node: str) -> None:
        self.driver, self.node = driver, node

    def read(self, claim: Object, uid: str, devices: Container[str]) -> list[Object]:
        """Return what to prepare for each of our results; raises `Refused`."""
        name = claim["metadata"]["name"]
        self.check_uid(claim, uid)
        allocation = self.allocation(claim)
        results = [*self.results(allocation)]
        if not results:
            raise Refused(f"nothing of {self.driver} is allocated to the claim {name}")
        self.check_reservation(claim)
        configs = [*self.configs(allocation)]
        wanted = []
        for each in results:
            self.check_device(each, devices)
            parameters = self.merged(configs, each["request"])
            wanted.append(self.wanted(each, parameters))
        return wanted

    def check_uid(self, claim: Object, uid: str) -> None:
        """Refuse a claim that was replaced by a new one of its name."""
        if claim["metadata"]["uid"] != uid:
            raise Refused(f"the claim {claim['metadata']['name']} was replaced by a new one")

    def allocation(self, claim: Object) -> Object:
        """Return what the scheduler has written."""
        found: Object | None = claim.get("status", {}).get("allocation")
        if not found:
            raise Refused(f"the claim {claim['metadata']['name']} is not allocated")
        return found

    def check_reservation(self, claim: Object) -> None:
        """Any number of pods may share a claim."""

    def results(self, allocation: Object) -> Iterator[Object]:
        """Yield our results."""
        for each in allocation.get("devices", {}).get("results", ()):
            if each["driver"] == self.driver:
                yield each

    def check_device(self, result: Object, devices: Container[str]) -> None:
        """Refuse devices that we do not have."""
        if result["pool"] != self.node or result["device"] not in devices:
            raise Refused(f"there is no device {result['device']} in the pool {result['pool']}")

    def wanted(self, result: Object, parameters: Mapping[str, Any]) -> Object:
        """Return what to prepare for a result."""
        return {
            "request": self.request_name(result["request"]),
            "pool": result["pool"],
            "device": result["device"],
            "share": result.get("shareID", ""),
            "admin": bool(result.get("adminAccess")),
            "parameters": dict(parameters),
        }

    def request_name(self, request: str) -> str:
        """Return the name that a container uses: without the subrequest."""
        return request.partition("/")[0]

    # ------------------------------------------------------------ parameters

    def configs(self, allocation: Object) -> Iterator[Object]:
        """Yield the entries for this driver, decoded, the weakest first."""
        entries = allocation.get("devices", {}).get("config", ())
        for source in ("FromClass", "FromClaim"):
            for each in entries:
                if each.get("source") == source and self.is_mine(each.get("opaque") or {}):
                    parameters = each["opaque"].get("parameters") or {}
                    for_requests = each.get("requests") or ()
                    decoded = self.decoded(parameters)
                    yield {"source": source, "requests": for_requests, **decoded}

    def is_mine(self, opaque: Object) -> bool:
        """Whether an entry is for this driver."""
        return bool(opaque.get("driver") == self.driver)

    def decoded(self, parameters: Object) -> Object:
        """Return checked parameters; raises `Refused` with the name of the field."""
        wanted = f"{api_version(self.driver)} {KIND}"
        found = f"{parameters.get('apiVersion', '')} {parameters.get('kind', '')}".strip()
        if found != wanted:
            raise Refused(f"parameters: {found} is unknown; use {wanted}")
        fields = {key: parameters[key] for key in parameters.keys() - {"apiVersion", "kind"}}
        if unknown := sorted(fields.keys() - {"mode", "level"}):
            raise Refused(f"parameters: the field {unknown[0]} is unknown")
        if fields.get("mode", MODES[0]) not in MODES:
            raise Refused(f"parameters: mode is {' or '.join(MODES)}")
        if type(fields.get("level", 0)) is not int:
            raise Refused("parameters: level is a number")
        return {"fields": fields}

    def merged(self, configs: list[Object], request: str) -> Object:
        """Return the parameters of a result: the last entry that is for its request counts."""
        names = {request, request.partition("/")[0]}
        for each in reversed(configs):
            if not each["requests"] or names & {*each["requests"]}:
                found: Object = each["fields"]
                return found
        return {}
