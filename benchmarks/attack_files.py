"""Attacks by files: CDI files, state directories, the registry, kubeconfigs, links."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from benchmarks.attacks import Attack, Ended, Outcome, command, serving, until
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.testing.workbench.dra_node import NODE_NAME, DraNode
from kubedevices.values.allocation import PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer

DEEP = 25_000
BOMB_SECONDS, BOMB_MEGABYTES = 4.0, 200.0
DRIVER = "example.com"


# ---------------------------------------------------------------- CDI


def _aliases(depth: int) -> str:
    lines = [
        f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]"
        for number in range(1, depth)
    ]
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *lines])


BOMBS = {
    "deep.yaml": "[" * DEEP,
    "deep.json": '{"a":' + "[" * DEEP,
    "aliases.yaml": _aliases(9),
    "many-aliases.yaml": "a: &a x\nb: [" + "*a, " * 500_000 + "]",
    "long.json": '{"cdiVersion": "' + "1" * 2**22 + '"}',
}


async def cdi_bombs(directory: Path) -> Outcome:
    """Each bomb for each command that reads CDI directories."""
    outcome = Outcome()
    for name, text in BOMBS.items():
        place = directory / name
        place.mkdir()
        (place / name).write_text(text)
        for words in (("cdi", "list"), ("cdi", "resolve", "a.b/c=d"), ("cdi", "validate")):
            given = [place] if words[1] == "validate" else ["--cdi-dir", place]
            ended = await command(*words, *given)
            outcome.used(ended.peak)
            outcome.count(
                harmed=ended.has_crashed
                or ended.seconds > BOMB_SECONDS
                or ended.peak > BOMB_MEGABYTES
            )
    return outcome


# ---------------------------------------------------------------- state directories and links


async def linked_locks(directory: Path) -> Outcome:
    """The lock of the state directory is a link to a file of the attacker's choice."""
    outcome = Outcome()
    for verb, name in (("node", "lock"), ("proxy", "proxy.lock")):
        place = directory / verb
        (place / "state").mkdir(parents=True)
        victim = place / "victim"
        victim.write_text("precious")
        (place / "state" / name).symlink_to(victim)
        await _started(verb, place)
        outcome.count(harmed=victim.read_text() != "precious")
    return outcome


async def foreign_state_directories(directory: Path) -> Outcome:
    """The state directory belongs to another user, or every user may write in it."""
    outcome = Outcome()
    for verb in ("node", "proxy"):
        for owner, mode in ((65534, 0o700), (os.getuid(), 0o777)):
            place = directory / f"{verb}-{mode:o}"
            state = place / "state"
            state.mkdir(parents=True)
            os.chown(state, owner, -1)
            state.chmod(mode)
            outcome.count(harmed=await _started(verb, place))
    return outcome


async def _started(verb: str, place: Path) -> bool:
    """Start a node or proxy below `place`; return whether it serves."""
    words: list[str | Path] = [verb, "--socket-dir", place / "p", "--state-dir", place / "state"]
    socket = place / "p" / "kubelet.sock"
    if verb == "proxy":
        words += ["--plugin-dir", place / "in"]
        socket = place / "in" / "kubelet.sock"
    async with serving(*words, ready=socket.exists) as process:
        return process.returncode is None


async def damaged_state(directory: Path) -> Outcome:
    """Files in the state directory of a proxy are nested deeply, of another kind, or huge."""
    outcome = Outcome()
    kinds = ("deep", "directory", "pipe", "huge", "text")
    for name in ("proxy-sockets.json", "maintenance.json", "lists/example.com_gpu.json"):
        for kind in kinds:
            place = directory / f"{name.replace('/', '-')}-{kind}"
            file = place / "state" / name
            file.parent.mkdir(parents=True)
            _plant(file, kind)
            outcome.count(harmed=not await _started("proxy", place))
    return outcome


def _plant(file: Path, kind: str) -> None:
    if kind == "directory":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "huge":
        with file.open("wb") as stream:
            stream.truncate(2**33)
    else:
        file.write_text("[" * 100_000 if kind == "deep" else "\0\n")


# ---------------------------------------------------------------- the registry of plugins


class _Info:
    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def get_info(self) -> PluginInfo:
        self.told.set()
        return PluginInfo("DevicePlugin", "example.com/honest", "honest.sock", ("v1beta1",))

    async def notify_registration_status(self, is_registered: bool, error: str) -> None:
        """The node has decided."""


def _chain(directory: Path) -> None:
    """Make directories in directories until no path is short enough for them."""
    here = os.open(directory, os.O_DIRECTORY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def _many_files(directory: Path) -> None:
    for number in range(20_000):
        (directory / f"{number}.txt").touch()


async def registry_floods(directory: Path) -> Outcome:
    """An honest plugin appears in the registry, beside what the attacker made there."""
    outcome = Outcome()
    for make in (_chain, _many_files):
        place = directory / make.__name__
        registry = place / "registry"
        registry.mkdir(parents=True)
        make(registry)
        words = ("node", "--socket-dir", place / "p", "--state-dir", place / "state")
        ready = (place / "p" / "kubelet.sock").exists
        async with serving(*words, "--plugin-registry", registry, ready=ready) as process:
            info = _Info()
            server = GrpcServer(plugin_registration_methods(info), name="honest plugin")
            loop = asyncio.get_running_loop()
            began = loop.time()
            await server.start(registry / "honest.sock")
            found = await until(info.told.is_set, 15)
            outcome.waited((loop.time() - began) * 1e3)
            outcome.count(harmed=not found)
            await server.stop()
            outcome.used(_peak(process))
    return outcome


def _peak(process: asyncio.subprocess.Process) -> float:
    from benchmarks import measure  # noqa: PLC0415

    return measure.peak_memory(process.pid) if process.returncode is None else 0.0


# ---------------------------------------------------------------- the driver and the API server

DRIVER_SECONDS = 20.0
SECRET = "TOP-SECRET-TOKEN"


async def planted_secrets(directory: Path) -> Outcome:
    """A kubeconfig with a strange token, a bad certificate, or bad YAML beside the token."""
    outcome = Outcome()
    user = f"users: [{{name: u, user: {{token: {SECRET}}}}}]"
    head = (
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        'clusters: [{name: k, cluster: {server: "http://127.0.0.1:9"}}]\n'
    )
    texts = [
        f'{head}users: [{{name: u, user: {{token: "{SECRET}\\n"}}}}]',
        f'{head}users: [{{name: u, user: {{token: "{SECRET}\\u00e4"}}}}]',
        f"{head}{user}}}",
        f"{head}{user}\n{SECRET}: [",
        f"{head}users: [{{name: u, user: [{SECRET}]}}]",
        f"{head}users: [{{name: u, user: {{client-key-data: {SECRET}}}}}]",
        f"{head}users: [{{name: u, user: {{password: {SECRET}, exec: {SECRET}}}}}]",
    ]
    for number, text in enumerate(texts):
        place = directory / str(number)
        place.mkdir()
        file = place / "config"
        file.write_text(text)
        ended = await _driver(place, file)
        outcome.count(harmed=SECRET in ended.output)
    return outcome


async def _driver(
    place: Path, kubeconfig: Path, enough: Callable[[], object] = lambda: False
) -> Ended:
    """Run a driver until it ends, until `enough()`, or for some time."""
    (place / "k").mkdir(exist_ok=True)
    return await command(
        *("simulate", "--mode", "dra", "--kubeconfig", kubeconfig, "--kube-node", NODE_NAME),
        *("--kubelet-dir", place / "k", "--cdi-dir", place / "cdi"),
        timeout=DRIVER_SECONDS,
        enough=enough,
    )


ANSWERS = {
    "an empty object": b"{}",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "items of null": b'{"metadata": {"resourceVersion": "1"}, "items": [null]}',
    "items without a spec": b'{"metadata": {"resourceVersion": "1", "uid": "u"}, "items": [{}]}',
    "a spec of null": b'{"metadata": {"resourceVersion": "1", "uid": "u", "name": "n"}, '
    b'"spec": null, "items": [{"metadata": {"name": "s"}, "spec": null}]}',
    "not JSON": b"<html>",
}


def _has_asked(asked: list[bytes]) -> bool:
    return len(asked) > 3


async def bad_answers(directory: Path) -> Outcome:
    """Something before the API server answers each call of a driver in another shape."""
    outcome = Outcome()
    for number, body in enumerate(ANSWERS.values()):
        place = directory / str(number)
        place.mkdir()

        asked: list[bytes] = []

        async def answer(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            body: bytes = body,
            asked: list[bytes] = asked,
        ) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                asked.append(await reader.readuntil(b"\r\n\r\n"))
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        config = place / "config"
        config.write_text(
            "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
            f'clusters: [{{name: k, cluster: {{server: "http://127.0.0.1:{port}"}}}}]\n'
            "users: [{name: u, user: {token: t}}]\n"
        )
        ended = await _driver(place, config, partial(_has_asked, asked))
        # A driver that is still there had to be killed, which is right.
        outcome.count(harmed=ended.code is not None or "Traceback" in ended.output)
        outcome.used(ended.peak)
        server.close()
    return outcome


@contextlib.asynccontextmanager
async def _dra_node(place: Path) -> AsyncIterator[DraNode]:
    place.mkdir(exist_ok=True)
    node = DraNode(place / "k", place / "cdi")
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def traps_of_a_driver(directory: Path) -> Outcome:
    """The directory of the driver's metadata is a link; prepared.json is nested deeply."""
    outcome = Outcome()
    async with _dra_node(directory / "link") as node:
        victim = directory / "victim"
        victim.mkdir()
        for name in ("a.json", "b.tmp"):
            (victim / name).write_text("precious")
        data = node.kubelet_dir / "plugins" / DRIVER
        data.mkdir(parents=True)
        (data / "metadata").symlink_to(victim)
        await _driver(directory / "link", node.kubeconfig, (data / "has-slices").exists)
        for name in ("a.json", "b.tmp"):
            outcome.count(harmed=not (victim / name).exists())
    async with _dra_node(directory / "deep") as node:
        data = node.kubelet_dir / "plugins" / DRIVER
        data.mkdir(parents=True)
        (data / "prepared.json").write_text("[" * 100_000)
        ended = await _driver(directory / "deep", node.kubeconfig, (data / "has-slices").exists)
        outcome.count(harmed=ended.code is not None or "Traceback" in ended.output)
    return outcome


async def kubelets_of_others(directory: Path) -> Outcome:
    """A process calls itself kubelet; its --config is a pipe, or a file without an end."""
    outcome = Outcome()
    kubelet = directory / "kubelet"
    kubelet.symlink_to("/bin/sleep")
    pipe = directory / "pipe"
    os.mkfifo(pipe)
    for config in (pipe, Path("/dev/zero")):
        proc = directory / "proc"
        fake = proc / "4711"
        fake.mkdir(parents=True, exist_ok=True)
        (fake / "cmdline").write_bytes(f"/usr/bin/kubelet\0--config\0{config}\0".encode())
        (fake / "comm").write_text("kubelet\n")
        (fake / "status").write_text("Name:\tkubelet\nNSpid:\t4711\nUid:\t0\t0\t0\t0\n")
        (fake / "cgroup").write_text("0::/\n")
        (fake / "mountinfo").write_text("")
        with contextlib.suppress(FileExistsError):
            (fake / "root").symlink_to("/")
        ended = await command(
            *("explain", "example.com/gpu", "--socket-dir", directory / "p"),
            *("--proc-root", proc, "-o", "json"),
            timeout=15,
        )
        outcome.used(ended.peak)
        outcome.count(harmed=ended.code is None or ended.peak > BOMB_MEGABYTES)
    return outcome


ATTACKS = {
    "locks that are links": Attack("user", "file overwritten", linked_locks),
    "bombs in CDI files": Attack("neighbour", "crash, 4 s or 200 MB", cdi_bombs),
    "state directories of others": Attack("user", "directory taken", foreign_state_directories),
    "damaged state files": Attack("user", "no start", damaged_state),
    "floods of the registry": Attack("neighbour", "nobody registers", registry_floods),
    "secrets in a kubeconfig": Attack("user", "secret printed", planted_secrets),
    "answers of another shape": Attack("API", "driver ends", bad_answers),
    "traps of a driver": Attack("neighbour", "files lost, no start", traps_of_a_driver),
    "processes named kubelet": Attack("user", "explain hangs or grows", kubelets_of_others),
}
