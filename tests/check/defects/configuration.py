"""Parameters of a claim, taken in a wrong way."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from kubedevices.dra import service
from kubedevices.dra.claims import configuration_of
from tests.check.defects import patch, variant


def _configuring(change: Callable[[list[Any]], list[Any]]) -> None:
    """Let the driver read other entries of the configuration, in another order."""

    def read(claim: Mapping[str, Any], driver: str) -> Mapping[str, Any]:
        found = copy.deepcopy(dict(claim))
        devices = found["status"]["allocation"]["devices"]
        devices["config"] = change(devices.get("config", []))
        return configuration_of(found, driver)

    patch(service, configuration_of=read)


@variant("class-wins")
def _class_wins() -> None:
    def change(entries: list[Any]) -> list[Any]:
        of_class = [each for each in entries if each["source"] == "FromClass"]
        return [{**each, "source": "FromClaim"} for each in of_class] or entries

    _configuring(change)


@variant("first-wins")
def _first_wins() -> None:
    _configuring(lambda entries: entries[::-1])


@variant("ignores-parent")
def _ignores_the_parent() -> None:
    _configuring(lambda entries: [each for each in entries if each["requests"] != ["gpu"]])


@variant("lenient")
def _leaves_unknown_fields_out() -> None:
    def change(entries: list[Any]) -> list[Any]:
        for each in entries:
            each["opaque"]["parameters"].pop("noSuchField", None)
        return entries

    _configuring(change)


@variant("any-version")
def _takes_any_version() -> None:
    def change(entries: list[Any]) -> list[Any]:
        for each in entries:
            if each["opaque"]["parameters"].get("kind") != "NoSuchKind":
                each["opaque"]["parameters"].pop("apiVersion", None)
        return entries

    _configuring(change)
