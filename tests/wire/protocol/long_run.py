"""What takes too long for every run: `python -m tests.wire.protocol.long_run fuzz 600`.

fuzz SECONDS        conversations beside h2 and libnghttp2, header blocks beside hpack, and damaged
                    or random bytes: nothing may come out but events and `ProtocolError`
streams COUNT       streams on one connection, in each way in which a stream can end
connections COUNT   connections to one server, in each way in which a connection can end
"""

import asyncio
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from kubedevices.wire.unix_grpc import StreamMethod, UnaryMethod
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch
from tests.wire.protocol.conversations import conversation
from tests.wire.protocol.differential import ORACLES, difference
from tests.wire.protocol.hpack_differential import block_difference, huffman_difference
from tests.wire.protocol.lives import STREAMS, growth_of_connections, growth_of_streams
from tests.wire.test_fuzz import HELLOS, ROLES, check_over

FIRST_SEED = 1_000_000


def fuzz(seconds: float) -> int:
    """Try one seed after the other; return how many found something, and print what."""
    end = time.monotonic() + seconds
    done: Counter[str] = Counter()
    seed = FIRST_SEED
    while time.monotonic() < end:
        seed += 1
        for is_client in (False, True):
            for oracle in ORACLES:
                found = difference(seed, oracle, is_client=is_client)
                done[f"conversations beside {oracle.name}"] += 1
                if found is not None and found.reason is None:
                    done["differences"] += 1
                    print(found)
        for text in (block_difference(seed), huffman_difference(seed)):
            done["header blocks and strings"] += 1
            if text:
                done["differences"] += 1
                print(text)
        for role in ROLES:
            for offset in range(20):
                done[f"bytes to a {role}"] += damaged_bytes(20 * seed + offset, role)
    print(
        f"seeds {FIRST_SEED + 1} to {seed}:", *(f"{done[key]:,} {key}" for key in done), sep="\n  "
    )
    return done["differences"]


def damaged_bytes(seed: int, role: str) -> int:
    """Feed a damaged conversation, or bytes without any sense, to the end of a role."""
    random, driven = Random(seed), ROLES[role]()
    if random.random() < 0.9:
        assert driven.feed(HELLOS[role])
    acts = conversation(seed, to_client=role == "client")
    size = 0
    for _ in range(60):
        data = bytearray(next(acts).data or random.randbytes(random.randrange(40)))
        if random.random() < 0.15 and data:
            data[random.randrange(len(data))] = random.randrange(256)
        if random.random() < 0.03:
            del data[random.randrange(len(data) + 1) :]
        size += len(data)
        at = random.randrange(len(data) + 1)
        if not all(driven.feed(bytes(piece)) for piece in (data[:at], data[at:]) if piece):
            check_over(driven)
            break
    return size


def streams(count: int) -> int:
    """Print what a connection keeps of so many streams; return how many ways keep something."""
    faults = 0
    for name, live in STREAMS.items():
        each = count // len(STREAMS)
        grown = growth_of_streams(live, 1_100, each)
        print(f"{each:,} streams {name}: a third of them left {grown} blocks of memory")
        faults += grown > 50
    print(f"largest resident set: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:,} KiB")
    return faults


async def connections(count: int) -> int:
    """Print what a server keeps of so many connections; return 1 if that is more than it may."""
    server = server_of({CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)})
    with TemporaryDirectory() as directory:
        path = Path(directory) / "s"
        await server.start(path)
        blocks, files = await growth_of_connections(server, path, 400, count)
        await server.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{count:,} connections: a third of them left {blocks} blocks of memory, {files} files")
    print(f"largest resident set: {peak:,} KiB")
    return int(blocks > 200 or files > 0)


def main(what: str, number: str) -> int:
    """Run one of the three."""
    if what == "fuzz":
        return fuzz(float(number))
    if what == "streams":
        return streams(int(number))
    return asyncio.run(connections(int(number)))


if __name__ == "__main__":
    sys.exit(min(1, main(*sys.argv[1:3])))
