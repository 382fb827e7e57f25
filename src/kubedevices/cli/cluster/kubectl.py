"""Runs kubectl, which has the address of the cluster and the credentials of the user."""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from kubedevices.config.documents.json_text import read_json_object
from kubedevices.errors import CannotAsk, KubedevicesError, NotJson
from kubedevices.host.kept_output import KEPT_HEAD
from kubedevices.host.programs import start_failure

_ANSWER_LIMIT = 2**26
DEADLINE = 180
"""Seconds for one command. `kubectl delete` waits until its objects are gone."""
LONGEST_ANSWER = 64 * 1024 * 1024
"""Most bytes of the answer of one command."""

ADVICE = (
    "install the Debian package kubernetes-client, or apply what `kubedevices manifests` prints "
    "elsewhere"
)


class ClusterRefused(KubedevicesError):
    """A kubectl command failed; `reason` is its stderr."""

    def __init__(self, command: str, reason: str) -> None:
        self.command, self.reason = command, reason
        super().__init__(f"kubectl {command}: {reason}")

    @property
    def is_forbidden(self) -> bool:
        """Whether the user lacks the right; then the object may exist or not."""
        return "(Forbidden)" in self.reason


class Kubectl:
    """Runs kubectl in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def run(self, *arguments: str, documents: Iterable[Any] = ()) -> str:
        """Return what a command prints; raises `CannotAsk` and `ClusterRefused`."""
        found = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        words = json.dumps(found) if found["items"] else ""
        try:
            code, output, error_output = _run(
                ["kubectl", "--namespace", self.namespace, *arguments], words
            )
        except OSError as error:
            reason, is_there = start_failure("kubectl", error)
            if not is_there:
                raise CannotAsk(f"kubectl is missing: {ADVICE} ({reason})") from None
            raise CannotAsk(f"cannot run kubectl: {reason}") from error
        except subprocess.TimeoutExpired:
            raise ClusterRefused(arguments[0], f"did not end within {DEADLINE} s") from None
        if code:
            reason = error_output.strip() or f"ended with exit code {code}"
            raise ClusterRefused(arguments[0], reason)
        if len(output) > LONGEST_ANSWER:
            raise ClusterRefused(arguments[0], f"its answer is longer than {LONGEST_ANSWER} bytes")
        return output.decode()

    def get(self, *arguments: str, documents: Iterable[Any] = ()) -> list[Any]:
        """Return the objects that exist; a missing object is no error."""
        command = ("get", *arguments, "--ignore-not-found", "--output=json")
        text = self.run(*command, documents=documents)
        if not text.strip():
            return []
        try:
            found = read_json_object(text, limit=_ANSWER_LIMIT)
        except NotJson as error:
            raise ClusterRefused("get", f"kubectl printed no JSON: {error}") from error
        return list(found["items"]) if "items" in found else [found]

    def get_known(self, kinds: Sequence[str], selector: str) -> list[Any]:
        """Return the objects of those `kinds` that the cluster has and the user may list."""
        try:
            return self.get(",".join(kinds), f"--selector={selector}")
        except ClusterRefused:  # kubectl does not say which kind failed: try each one
            each_alone = kinds if len(kinds) > 1 else ()
            return [found for kind in each_alone for found in self.get_known([kind], selector)]


def _run(command: Sequence[str], words: str) -> tuple[int, bytes, str]:
    """Return exit code, output and errors; of long output only the part that decides."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(words.encode())
        given.seek(0)
        done = subprocess.run(
            command, stdin=given, stdout=out, stderr=errors, timeout=DEADLINE, check=False
        )
        for file in (out, errors):
            file.seek(0)
        return (
            done.returncode,
            out.read(LONGEST_ANSWER + 1),
            errors.read(KEPT_HEAD).decode(errors="replace"),
        )
