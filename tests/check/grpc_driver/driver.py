"""The life of the process: two servers on two sockets, until SIGTERM."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.check.grpc_driver import messages
from tests.check.grpc_driver.api import Api
from tests.check.grpc_driver.cdi import CdiFiles
from tests.check.grpc_driver.claims import ClaimReader
from tests.check.grpc_driver.health import Health
from tests.check.grpc_driver.inventory import Inventory
from tests.check.grpc_driver.parts import Parts
from tests.check.grpc_driver.publisher import Publisher
from tests.check.grpc_driver.registration import Registration
from tests.check.grpc_driver.service import Service
from tests.check.grpc_driver.slices import Pool
from tests.check.grpc_driver.state import State
from tests.check.listening import accepts

NAME = "grpc.example.com"
_LONGEST_PATH = 107
_GRACE = 6.0
_LOOK = 0.1
_WORKERS = 40


class CannotServe(Exception):
    """The process ends with this text and an exit code that is not 0."""


@dataclass(frozen=True)
class Options:
    """The command line."""

    kubeconfig: Path
    node: str
    kubelet_dir: Path
    cdi_dir: Path
    pod_uid: str
    devices: Path | None


class Driver:
    """One process. `run` returns the exit code."""

    def __init__(self, options: Options, parts: Parts) -> None:
        self.options, self.parts = options, parts
        suffix = f"-{options.pod_uid}" if options.pod_uid else ""
        self.registry = options.kubelet_dir / "plugins_registry"
        self.directory = options.kubelet_dir / "plugins" / NAME
        self.endpoint = self.directory / f"dra{suffix}.sock"
        self.announced = self.registry / f"{NAME}{suffix}-reg.sock"
        self.stopping = threading.Event()
        self.servers: dict[Path, tuple[Any, tuple[int, int]]] = {}

    def log(self, text: str) -> None:
        """Write a line for people."""
        print(f"grpc_driver: {text}", file=sys.stderr, flush=True)

    def run(self) -> int:
        """Serve until SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopping.set())
        try:
            self.build()
            self.check_paths()
            self.remove_stale_sockets()
            self.open()
            self.inventory.start()
            self.publisher.start()
            while not self.stopping.wait(_LOOK):
                self.look()
        except (CannotServe, OSError, ValueError, KeyError) as error:
            return self.cannot_serve(error)
        return self.stop()

    def cannot_serve(self, error: Exception) -> int:
        """Say why, and return the exit code."""
        self.log(f"cannot serve: {error}")
        return 1

    def build(self) -> None:
        """Make all parts; raises OSError and ValueError for a bad kubeconfig file."""
        of, options = self.parts.of, self.options
        self.api = of(Api)(options.kubeconfig, NAME, options.node)
        self.inventory = of(Inventory)(options.devices)
        pool = of(Pool)(NAME, options.node)
        self.publisher = of(Publisher)(self.api, self.inventory, pool, self.log)
        self.health = of(Health)(options.node, self.inventory)
        self.registration = of(Registration)(NAME, self.endpoint, self.log)
        self.registration.on_accepted = self.publisher.registered
        self.service = of(Service)(
            self.api,
            self.inventory,
            of(ClaimReader)(NAME, options.node),
            state=of(State)(self.directory, self.log),
            files=of(CdiFiles)(options.cdi_dir, NAME),
            log=self.log,
        )

    # ------------------------------------------------------------ sockets

    def check_paths(self) -> None:
        """Refuse paths that no socket can have."""
        for path in (self.endpoint, self.announced):
            if (length := len(os.fsencode(path))) > _LONGEST_PATH:
                problem = f"the path of a socket is too long, {length} of {_LONGEST_PATH} bytes"
                raise CannotServe(f"{problem}: {path}")

    def remove_stale_sockets(self) -> None:
        """Remove sockets of our killed predecessors, with whatever UID their pods had."""
        for directory, pattern in (
            (self.registry, f"{NAME}*-reg.sock"),
            (self.directory, "dra*.sock"),
        ):
            for each in directory.glob(pattern):
                if not accepts(each):
                    each.unlink(missing_ok=True)

    def open(self) -> None:
        """Serve; the registration socket appears when the other one accepts calls."""
        self.health.is_stopped = False
        handlers = (
            *messages.dra_handlers(self.service),
            *messages.health_handlers(self.health.streams()),
        )
        self._serve(self.endpoint, handlers)
        self._serve(self.announced, messages.registration_handlers(self.registration))

    def _serve(self, path: Path, handlers: Sequence[Any]) -> None:
        if accepts(path):
            raise CannotServe(f"another instance serves at {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(_WORKERS), handlers=handlers)
        if not server.add_insecure_port(f"unix:{path}"):
            raise CannotServe(f"cannot listen at {path}")
        server.start()
        self.servers[path] = server, self.identity(path)

    def identity(self, path: Path) -> tuple[int, int]:
        """Return what tells a file from a new one of its name."""
        status = path.lstat()
        return status.st_ino, status.st_ctime_ns

    def look(self) -> None:
        """Serve again when somebody has removed a socket."""
        if all(self.is_ours(path) for path in self.servers):
            return
        self.log("a socket was removed: serving again")
        self.close(_GRACE)
        self.open()

    def is_ours(self, path: Path) -> bool:
        """Whether the file is the socket that we have made."""
        with suppress(OSError):
            return self.identity(path) == self.servers[path][1]
        return False

    def close(self, grace: float) -> None:
        """End running calls; the registration socket goes first. No file of others is removed."""
        self.health.stop()
        for path, (server, _) in reversed([*self.servers.items()]):
            ours = self.is_ours(path)
            if ours:
                path.unlink(missing_ok=True)
            server.stop(grace).wait(grace + 1)
        self.servers.clear()

    def stop(self) -> int:
        """End after SIGTERM. The slices stay."""
        self.close(_GRACE)
        return 0
