"""grpc-go on the other side of a socket: builds `go/`, runs it, and talks with it in records.

Debian's grpc-go is 1.33, what kubelets of 2020 to 2021 have; its wire behaviour is that of today's
in everything tested here. Without it `binary` skips the test.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.host_needs import require

SOURCES = Path(__file__).parent / "go"
ROOT = Path(__file__).parents[2]
GOPATH = Path("/usr/share/gocode")
BUILD_TIMEOUT = 120


@cache
def binary() -> Path:
    """Build the peer; skips the test where there is no Go."""
    require("go", "grpc-go")
    return build(SOURCES, "go-peer")


def build(sources: Path, name: str) -> Path:
    """Build a Go program, once for all processes of all runs until its sources change."""
    content = b"".join(path.read_bytes() for path in sorted(sources.glob("*.go")))
    built = ROOT / ".pytest_cache" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    built.parent.mkdir(exist_ok=True)
    with built.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(sources, name, built)
    return built


def _build(sources: Path, name: str, built: Path) -> None:
    for old in built.parent.glob(f"{name}-*"):
        old.unlink()
    unfinished = built.with_name(f"{name}.new")
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(GOPATH), "CGO_ENABLED": "0"}
    done = subprocess.run(
        ["go", "build", "-o", unfinished, "."],
        check=False, cwd=sources, env=environment, timeout=BUILD_TIMEOUT,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    unfinished.rename(built)


class Record(NamedTuple):
    """What the peer told: its fields, and the bytes that came with them."""

    fields: dict[str, Any]
    payload: bytes

    @property
    def op(self) -> str:
        """Which kind it is."""
        return str(self.fields["op"])


class GoPeer:
    """The running program; every record it tells goes to `act`."""

    def __init__(self, process: asyncio.subprocess.Process, act: Callable[[Record], None]) -> None:
        self.process = process
        self._act = act
        self._reader = asyncio.create_task(self._read(), name="records of a Go peer")

    @classmethod
    async def start(
        cls, mode: str, path: Path, options: dict[str, Any], act: Callable[[Record], None]
    ) -> Self:
        """Start a `client` or `server` of `path`."""
        environment = {"PATH": os.environ["PATH"], "GOMAXPROCS": "2"}
        if "GODEBUG" in os.environ:
            environment["GODEBUG"] = os.environ["GODEBUG"]
        process = await asyncio.create_subprocess_exec(
            binary(), mode, path, json.dumps(options), stdin=PIPE, stdout=PIPE, env=environment
        )
        return cls(process, act)

    async def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            fields = json.loads(line)
            self._act(Record(fields, await stdout.readexactly(fields["size"])))

    def tell(self, op: str, number: int = 0, payload: bytes = b"", **fields: Any) -> None:
        """Send one record."""
        stdin = self.process.stdin
        assert stdin is not None
        line = json.dumps({"op": op, "id": number, "size": len(payload), **fields})
        stdin.write(line.encode() + b"\n" + payload)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.returncode is None

    async def end(self) -> None:
        """End the process, at once."""
        if self.is_alive:
            self.process.kill()
        async with asyncio.timeout(10):
            await self.process.wait()
            await self._reader
        assert self.process.stdin is not None
        self.process.stdin.close()
