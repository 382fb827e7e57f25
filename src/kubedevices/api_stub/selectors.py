"""Field selectors, such as `spec.driver=a,spec.nodeName!=b`. Pure."""

from collections.abc import Callable

from kubedevices.api_stub.kinds import KINDS, Object
from kubedevices.errors import ApiRefused

_ALWAYS = ("metadata.name", "metadata.namespace")


def field_selector(plural: str, text: str) -> Callable[[Object], bool]:
    """Return what decides whether an object is selected; raises `ApiRefused`, a bad request."""
    terms: list[tuple[str, str, bool]] = []
    for term in filter(None, text.split(",")):
        key, _, value = term.partition("=")
        is_equal = not key.endswith("!")
        key, value = key.removesuffix("!"), value.removeprefix("=")
        if key not in (*_ALWAYS, *KINDS[plural].fields):
            problem = f'field label not supported: "{key}"'
            raise ApiRefused(f"list {plural}", 400, "BadRequest", problem)
        terms.append((key, value, is_equal))
    return lambda found: all((_value(found, key) == value) == equal for key, value, equal in terms)


def _value(found: Object, key: str) -> str:
    value: object = found
    for part in key.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
