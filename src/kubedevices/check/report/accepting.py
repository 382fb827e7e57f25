"""Adds the findings of a run to the file that `--expect` reads, with an empty reason for each.

The old text of the file does not change: reasons, comments, findings that are gone.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from kubedevices.check.check import Status
from kubedevices.check.report.expected import Expected, load_unexplained
from kubedevices.check.results import CheckResult
from kubedevices.config.yaml_source import find, parse_yaml
from kubedevices.errors import CannotAsk, CannotRead, ConfigError

_HEAD = """\
# Findings of `kubedevices check` that are accepted. Write a reason for each of them:
# --expect refuses a file in which a reason is missing.
findings: []
"""
_LONGEST_REMARK = 90


class FindingsFile:
    """A file of known findings to which findings are added; the file need not exist yet."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises `CannotRead`, and `ConfigError` if the content is wrong."""
        self._file = file
        try:
            self._text = file.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            self._text = _HEAD
        except (OSError, UnicodeDecodeError) as error:
            raise CannotRead(str(file), getattr(error, "strerror", "") or str(error)) from error
        self._text = self._text if self._text.strip() else _HEAD
        self._node = parse_yaml(self._text.encode(), file)
        self._known = load_unexplained(self._node, file)

    def missing(self, results: Sequence[CheckResult]) -> list[CheckResult]:
        """Return the failures and warnings that the file does not cover."""
        found = [each for each in results if each.status in (Status.FAIL, Status.WARN)]
        return [each for each in found if not any(known.covers(each) for known in self._known)]

    def without_reason(self) -> list[Expected]:
        """Return the findings of the file whose reason is still missing."""
        return [each for each in self._known if not each.reason.strip()]

    def with_added(self, results: Sequence[CheckResult]) -> str:
        """Return the text of the file with an entry for each of `results`.

        Raises `CannotAsk` if the YAML style of the file does not allow another entry.
        """
        text = self._with_added(results) if results else self._text
        try:
            found = load_unexplained(parse_yaml(text.encode(), self._file), self._file)
        except ConfigError:
            found = ()
        if found[: len(self._known)] != self._known or len(found) < len(self._known) + len(results):
            raise CannotAsk(
                f"cannot add findings to {self._file}: write the file as `findings:` with a line "
                f"`- check: …` for each finding (docs/ci.md)"
            )
        return text

    def _with_added(self, results: Sequence[CheckResult]) -> str:
        place = find(self._node, ("findings",))
        if isinstance(place, yaml.SequenceNode) and not place.flow_style:
            margin = " " * place.start_mark.column
            return f"{self._text.rstrip()}\n{_entries(results, margin)}"
        # `findings: [{…}]` or an empty list becomes a list with a line for each entry.
        before, after = self._text[: place.start_mark.index], self._text[place.end_mark.index :]
        old = place.value if isinstance(place, yaml.SequenceNode) else []
        items = [self._text[each.start_mark.index : each.end_mark.index] for each in old]
        kept = "".join(f"- {item}\n" for item in items)
        return f"{before.rstrip()}\n{kept}{_entries(results)}{after.lstrip()}"


def _entries(results: Sequence[CheckResult], margin: str = "") -> str:
    lines = [line for each in results for line in _entry(each)]
    return "".join(f"{margin}{line}\n" for line in lines)


def _entry(result: CheckResult) -> list[str]:
    words = " ".join(result.verdict.evidence.split())
    remark = "".join(letter for letter in words if letter.isprintable())
    if len(remark) > _LONGEST_REMARK:
        remark = remark[: _LONGEST_REMARK - 1] + "…"
    return [
        f"# {remark}".rstrip(),
        f"- check: {result.check.id}",
        f"  resource: {json.dumps(result.resource)}",
        f"  status: {result.status}",
        '  reason: ""',
    ]
