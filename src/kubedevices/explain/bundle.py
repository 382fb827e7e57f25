"""A bundle for a bug report: a .tar.gz with what `explain` read and its answer.

Of a cluster it has the objects, as far as `explain` reads them: no environment, no annotations and
no parameters of drivers. Elsewhere they give the same answer, and answers about other subjects. Of
a node it has the findings, and the facts without the values of environment and annotations.
"""

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.config.documents.json_text import read_json
from kubedevices.config.documents.shape import Shape, fit
from kubedevices.errors import NotJson, UsageError, WrongShape
from kubedevices.explain.in_cluster.objects import ClusterObjects
from kubedevices.explain.in_cluster.read_objects import SHAPES
from kubedevices.explain.on_node.diagnosis import Diagnosis
from kubedevices.explain.on_node.look_node import NodeFacts
from kubedevices.version import VERSION

LIMIT = 256 * 2**20
"""Bytes of the one file in a bundle that is read. A cluster of 5,000 slices has about 20 MB."""

_VALUES = 20_000_000
_FORMAT = 1
_ABOUT: Shape = {"format!": int, "kubedevices!": str, "subject!": [str]}
_FINDING: Shape = {
    **{f"{name}!": str for name in ("step", "result", "looked_at", "found")},
    **dict.fromkeys(("advice", "command"), str),
}
_NODE: Shape = {
    "about!": _ABOUT,
    "answer!": {
        "socket_dir!": str,
        "source!": str,
        "findings!": [_FINDING],
        "resources!": [
            {
                "resource!": str,
                **dict.fromkeys(("capacity", "allocatable", "held"), int),
                "findings!": [_FINDING],
            }
        ],
    },
}
_KINDS = {
    "pods": "pods",
    "claims": "resourceclaims",
    "templates": "resourceclaimtemplates",
    "classes": "deviceclasses",
    "slices": "resourceslices",
    "listed_nodes": "nodes",
    "events": "events",
}
_CLUSTER: Shape = {
    "about!": _ABOUT,
    "objects!": {f"{name}!": [SHAPES[plural]] for name, plural in _KINDS.items()},
    "unread!": dict,
    "notes!": [str],
    "read_at!": int,
}
_SECRET = ("env", "annotations")


class ReadBundle(NamedTuple):
    """What a bundle has: the words after `explain`, and a cluster or the answer about a node."""

    subject: tuple[str, ...]
    cluster: ClusterObjects | None = None
    answer: Diagnosis | None = None


def write_cluster(file: Path, subject: Sequence[str], cluster: ClusterObjects) -> None:
    """Write a bundle about a cluster; raises `UsageError`."""
    _write(
        file,
        "cluster.json",
        {
            "about": _about(subject),
            "objects": {name: getattr(cluster, name) for name in _KINDS},
            "unread": dict(cluster.unread),
            "notes": cluster.notes,
            "read_at": int(cluster.read_at),
        },
    )


def write_node(file: Path, subject: Sequence[str], answer: Diagnosis, facts: NodeFacts) -> None:
    """Write a bundle about a node; raises `UsageError`."""
    content = {"about": _about(subject), "answer": answer.as_dict(), "facts": plain(facts)}
    _write(file, "node.json", content)


def read_bundle(file: Path) -> ReadBundle:
    """Return what a bundle has; raises `UsageError`. Whoever wrote it may be a stranger."""
    try:
        name, text = _read(file)
        found = read_json(text, limit=LIMIT, values=_VALUES)
        fit(found, _NODE if name == "node.json" else _CLUSTER, name)
        subject = tuple(found["about"]["subject"])
        if found["about"]["format"] != _FORMAT:
            by = found["about"]["kubedevices"]
            raise UsageError(f"{file} was written by kubedevices {by}, in a form that is not known")
        if name == "node.json":
            return ReadBundle(subject, answer=Diagnosis.from_dict(found["answer"]))
    except (NotJson, WrongShape, ValueError) as error:
        raise UsageError(
            f"{file} is damaged, or no bundle of kubedevices explain: {error}"
        ) from None
    unread = {str(key): str(why) for key, why in found["unread"].items()}
    cluster = ClusterObjects(
        **found["objects"],
        unread=unread,
        notes=tuple(found["notes"]),
        read_at=found["read_at"],
    )
    return ReadBundle(subject, cluster=cluster)


def plain(value: Any) -> Any:
    """Return facts as JSON has them; of environment and annotations only the names."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: _hidden(name, each) for name, each in pairs.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _hidden(name, each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {_key(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is None or type(value) in (bool, int, float, str):
        return value
    return str(value.value if isinstance(value, Enum) else value)


def _hidden(name: str, value: Any) -> Any:
    if name in _SECRET and isinstance(value, Mapping):
        return {str(each): f"{len(str(text))} characters" for each, text in value.items()}
    return plain(value)


def _key(name: object) -> str:
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _about(subject: Sequence[str]) -> dict[str, Any]:
    return {"format": _FORMAT, "kubedevices": VERSION, "subject": [*subject]}


def _write(file: Path, name: str, content: object) -> None:
    """Write the bundle; only its owner may read it, and an existing file is left alone."""
    text = json.dumps(content, indent=1).encode()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(text), 0o644
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(text))
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            target.write(packed.getbuffer())
    except OSError as error:
        raise UsageError(f"{file} cannot be written, choose another: {error.strerror}") from None


def _read(file: Path) -> tuple[str, bytes]:
    """Return name and content of the first file in a bundle; raises `ValueError`."""
    try:
        with gzip.open(file) as unpacked:
            # Only the beginning: a small file of a stranger can unpack to any size.
            data = io.BytesIO(unpacked.read(LIMIT))
        with tarfile.open(fileobj=data, mode="r:") as archive:
            member = archive.next()
            if member is None or member.name not in ("cluster.json", "node.json"):
                raise ValueError("it has no cluster.json or node.json")
            content = archive.extractfile(member)
            if content is None:
                raise ValueError(f"{member.name} is no file")
            return member.name, content.read()
    except gzip.BadGzipFile:
        raise ValueError("it is not compressed with gzip") from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
