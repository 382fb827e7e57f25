"""Known findings: the file of `--expect`, and the results that it covers.

findings:
  - check: life.stop-code
    resource: example.com/gpu   # default: every resource
    status: warn                # default: fail; a worse finding is a new finding
    reason: the vendor corrects it in 2.4
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from kubedevices.check.check import Status
from kubedevices.check.checks import ALL
from kubedevices.check.drivers import known_rules
from kubedevices.check.results import CheckResult
from kubedevices.config.keys import key
from kubedevices.config.yaml_config import load_config, load_node
from kubedevices.errors.words import did_you_mean

LEVELS = {"fail": (Status.FAIL,), "warn": (Status.FAIL, Status.WARN), "never": ()}
"""By the value of `--fail-on`: new findings with these statuses make the exit code 1."""

_COVERED = {"fail": (Status.FAIL, Status.WARN, Status.NOTE), "warn": (Status.WARN, Status.NOTE)}


def _wrong_id(name: str) -> str:
    ids = [*(check.id for check in ALL), *known_rules()]
    return "" if name in ids else f"there is no check {name!r}{did_you_mean(name, ids)}"


def _no_reason(text: str) -> str:
    return "" if text.strip() else "there is no reason yet: write why the finding is accepted"


@dataclass(frozen=True)
class Expected:
    """One known finding, and the reason why it is accepted."""

    check: str = key(check=_wrong_id)
    reason: str = key(check=_no_reason)
    resource: str = key(default="")
    status: str = key(default="fail", choices=(*_COVERED,))

    def concerns(self, result: CheckResult) -> bool:
        """Whether this entry is for the check and the resource of `result`."""
        return self.check == result.check.id and self.resource in ("", result.resource)

    def covers(self, result: CheckResult) -> bool:
        """Whether `result` is this known finding, with this status or a milder one."""
        return self.concerns(result) and result.status in _COVERED[self.status]

    def is_gone(self, results: Sequence[CheckResult]) -> bool:
        """Whether the check ran and did not find this."""
        tried = {each.status for each in results if self.concerns(each)} - {Status.SKIP}
        return bool(tried) and not tried & {*_COVERED["fail"]}

    def __str__(self) -> str:
        return self.check + (f" of {self.resource}" if self.resource else "")


@dataclass(frozen=True)
class _File:
    findings: tuple[Expected, ...] = key(default=())


@dataclass(frozen=True)
class _Unexplained(Expected):
    reason: str = key(default="")


@dataclass(frozen=True)
class _UnexplainedFile:
    findings: tuple[_Unexplained, ...] = key(default=())


def load_expected(file: Path) -> tuple[Expected, ...]:
    """Read a file of known findings; raises `CannotRead`, and `ConfigError` with all mistakes."""
    config, _ = load_config(file, _File)
    return config.findings


def load_unexplained(node: yaml.Node, file: Path) -> tuple[Expected, ...]:
    """Return the findings of a parsed file; reasons may be missing. Raises `ConfigError`."""
    config, _ = load_node(node, _UnexplainedFile, str(file))
    return config.findings
