"""Readers of files that another user, a plugin or a damaged disk may have written.

Each reads a file in a directory of its own, as in a running process. Only our own errors may come
out: each of them is a message for the user.
"""

import atexit
import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from kubedevices.dra import claim_log
from kubedevices.dra.claims import Result
from kubedevices.dra.kubeconfig import read_kubeconfig
from kubedevices.dra.prepared_file import PreparedClaim, PreparedClaims, PreparedDevice
from kubedevices.errors import InvalidCdiSpec, KubedevicesError
from kubedevices.expose.config import load_expose_config
from kubedevices.host import cdi_specs
from kubedevices.node.checkpoint import file as checkpoint_file
from kubedevices.node.checkpoint import text as checkpoint_text
from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod
from kubedevices.proxy.known_sockets import FILE_NAME, KnownSockets
from kubedevices.proxy.proxy_config import ProxyRule, load_proxy_config
from kubedevices.proxy.record_reader import read_recording
from kubedevices.proxy.saved_list import SavedList, SavedLists, document_of
from kubedevices.rules import cordon_file
from kubedevices.values.allocation import ClaimReference, ContainerAllocateResponse
from kubedevices.values.device import Device
from tests.fuzz.target import Target

ROOT = Path(__file__).parents[3]

JSON = (
    b"[", b"]", b'{"a":', b"}", b'""', b"null", b"1e999", b"-0", b"NaN", b'"\\ud800"', b"9" * 5000,
    b"1.5", b"true", b'"version":', b"\\u0000", b"Infinity",
)  # fmt: skip
YAML = (
    *JSON, b"&a ", b"*a", b"- ", b"? ", b": ", b"\n", b"  ", b"!!bool perhaps", b"!!python/none x",
    b"0x_", b"1:99", b"<<: ", b"---\n", b"|\n", b"2026-99-99", b"!!binary =", b"%YAML 9.9\n", b"#",
    b"!!set {a}", b"!!omap [a]", b"\xef\xbb\xbf",
)  # fmt: skip


@cache
def directory() -> Path:
    """Return the directory of this process for the files, which is removed at its end."""
    made = Path(tempfile.mkdtemp(prefix="kd-fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def written(name: str, data: bytes) -> Path:
    """Return the file `name` with this content."""
    path = directory() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def refused_or_read(read: Callable[[Path], object], name: str, data: bytes) -> None:
    """`read` returns something or raises an error of ours."""
    with contextlib.suppress(KubedevicesError):
        read(written(name, data))


def check_cdi(data: bytes) -> None:
    """A CDI file is read or has problems. What is read has a text that is read as the same."""
    for name in ("cdi/a.json", "cdi/a.yaml"):
        found = cdi_specs.read_spec_file(written(name, data))
        assert found.spec is not None or found.problems
    if found.spec is not None:
        with contextlib.suppress(InvalidCdiSpec):  # the rules for what we write are stricter
            text = cdi_specs.text_of(found.spec)
            again = cdi_specs.read_spec_file(written(name, text.encode())).spec
            assert again is not None
            assert cdi_specs.text_of(again) == text


def check_checkpoint(data: bytes) -> None:
    """A checkpoint is read or damaged, and what is read is written as the same."""
    found = checkpoint_text.parse_checkpoint(data)
    if isinstance(found, checkpoint_text.Checkpoint):
        text = checkpoint_text.format_checkpoint(found)
        assert isinstance(checkpoint_text.parse_checkpoint(text), checkpoint_text.Checkpoint)
    checkpoint_file.move_in(written("checkpoint/kubelet_internal_checkpoint", data), "boot")
    for each in (directory() / "checkpoint").iterdir():
        each.unlink()


def check_ledger(data: bytes) -> None:
    """A damaged ledger is refused; no column gives a value of another type."""
    for ending in ("-wal", "-shm"):
        (directory() / f"ledger{ending}").unlink(missing_ok=True)
    with contextlib.suppress(KubedevicesError):
        opened = LedgerFile.open(written("ledger", data))
        if opened is not None:
            with contextlib.closing(opened):
                opened.load("boot")


def check_cordoned(data: bytes) -> None:
    """The file of cordons is read or refused, and what is read is written as the same."""
    try:
        found = cordon_file.read_cordoned(written("cordoned.json", data))
    except KubedevicesError:
        return
    assert cordon_file.parse_cordoned(cordon_file.encode_cordoned(found)) == found


HELD = ProxyRule(hold=300.0, hold_over_reboot=True)


def check_state(data: bytes) -> None:
    """What the proxy and the driver find in their state directories never ends them."""
    written(FILE_NAME, data)
    KnownSockets(directory()).load()
    written("lists/example.com_gpu.json", data)
    SavedLists(directory(), lambda _: HELD).load()
    claim_log.read_refusals(written("refused.json", data))
    PreparedClaims.read(written("prepared.json", data))


def _cdi() -> tuple[bytes, ...]:
    spec = {
        "cdiVersion": "0.6.0", "kind": "example.com/gpu", "annotations": {"a": "b"},
        "devices": [{"name": "0", "containerEdits": {
            "env": ["A=1"], "deviceNodes": [{"path": "/dev/null", "permissions": "rw"}],
            "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
            "hooks": [{"hookName": "createContainer", "path": "/bin/true", "timeout": 1}]}}],
    }  # fmt: skip
    lines = "cdiVersion: 0.6.0\nkind: a/b\ndevices:\n- name: '0'\n  containerEdits: {env: [A=1]}\n"
    return (json.dumps(spec).encode(), lines.encode())


def _prepared() -> bytes:
    path = directory() / "seed.json"
    claim = ClaimReference("default", "uid", "claim")
    held = PreparedDevice(Result("r", "pool", "device"), ("a/b=c",))
    PreparedClaims(path).put(PreparedClaim(claim, "boot", True, (held,), "{}"))
    return path.read_bytes()


def _ledger() -> bytes:
    path = directory() / "seed-ledger"
    has = HeldDevices({0: ["a"]}, ContainerAllocateResponse({"A": "1"}))
    pod = Pod("p", containers=(Container("c", {"example.com/gpu": 1}),))
    admitted = AdmittedPod(pod, [Holding(pod.uid, "c", "example.com/gpu", has)], True)
    made = LedgerFile.create(path, [admitted], ["example.com/gpu"], "boot")
    made.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def _lists() -> bytes:
    known = SavedList((Device("a"), Device("b")))
    return json.dumps(document_of("example.com/gpu", known)).encode()


def _texts(*paths: str) -> tuple[bytes, ...]:
    return tuple(each.read_bytes() for path in paths for each in sorted(ROOT.glob(path)))


_KUBECONFIG = b"""\
apiVersion: v1
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://localhost:6443", certificate-authority-data: YQ==}}]
users: [{name: u, user: {token: word, client-certificate-data: YQ==, client-key-data: YQ==}}]
"""
_RULES = b"""\
resources:
- {resource: example.com/gpu, rename: example.com/card, replicas: 2, leaveOut: [a*]}
- resource: example.com/nic
  inject: {env: {A: "{id}"}, mounts: [{hostPath: /a, containerPath: /b}]}
  health: [{file: "/sys/{id}", equals: "1"}]
"""
_SOCKETS = b'{"version": 1, "sockets": {"example.com/gpu": "/var/lib/kubelet/a.sock"}}'
_REFUSED = b'[{"claim": {"namespace": "n", "uid": "u", "name": "c"}, "reason": "r", "at": 1.5}]'
_CORDONED = (
    b'{"version": 1, "devices": [{"resource": "a.b/c", "id": "d", "reason": "r", "since": ""}]}'
)
_RECORD = b"""\
{"kubedevices-record":1,"time":"2026-01-01T00:00:00.000000Z","redacted":[]}
{"time":"2026-01-01T00:00:01.000000Z","from":"plugin","resource":"a.b/c","call":"ListAndWatch",\
"devices":[{"ID":"a","health":"Healthy"}]}
{"time":"2026-01-01T00:00:02.000000Z","from":"node","resource":"a.b/c","call":"Allocate","id":1,\
"request":{"containerRequests":[{"devicesIds":["a"]}]}}
{"time":"2026-01-01T00:00:03.000000Z","from":"plugin","resource":"a.b/c","call":"Allocate","id":1,\
"response":{"containerResponses":[{"envs":{"A":"1"}}]}}
"""


def _reader(name: str, read: Callable[[Path], Any], *seeds: bytes, tokens: Any = YAML) -> Target:
    return Target(name, partial(refused_or_read, read, name), seeds, tokens)


TARGETS = [
    Target("cdi", check_cdi, _cdi(), YAML),
    _reader("expose-config", load_expose_config, *_texts("examples/host-devices.yaml")),
    _reader("proxy-config", load_proxy_config, _RULES),
    _reader("kubeconfig", read_kubeconfig, _KUBECONFIG),
    _reader("record", lambda file: read_recording([file]), _RECORD, tokens=JSON),
    Target("checkpoint", check_checkpoint, _texts("tests/golden/checkpoints*/0*.json"), JSON),
    Target("ledger", check_ledger, (_ledger(),), (b"\x7f\xff", b"\r\0\0\0")),
    Target("cordoned", check_cordoned, (_CORDONED,), JSON),
    Target("state", check_state, (_SOCKETS, _REFUSED, _prepared(), _lists()), JSON),
]
