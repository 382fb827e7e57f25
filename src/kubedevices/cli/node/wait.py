"""`kubedevices wait`: returns as soon as a resource has the wanted number of allocatable devices.

With `--registration` it returns as soon as plugins can register. The verb asks ten times a second.
It also waits for a node or a kubelet that does not run yet or restarts.
"""

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path

from kubedevices.cli.shared.node_client import (
    add_node_arguments,
    add_pod_resources_argument,
    find_kubelet,
    state_directory,
    unknown_resource,
)
from kubedevices.errors import (
    CannotAsk,
    DialError,
    KubedevicesError,
    NodeError,
    NoNode,
    NotInTime,
    NotPermitted,
    UsageError,
)
from kubedevices.errors.words import counted
from kubedevices.host import deadlines
from kubedevices.host.terminal import print_line
from kubedevices.values.resource_name import ResourceName
from kubedevices.values.socket_paths import KUBELET_SOCKET_NAME

NAME = "wait"
HELP = """\
wait until a resource has devices to allocate

Asks the `kubedevices node` of the socket directory, or else the kubelet that serves the directory.
Also waits for a node, kubelet or plugin that has not started yet. Exit code 1 after --timeout. With
--registration, waits only until a kubelet, a node or a proxy answers at kubelet.sock.
"""
EXAMPLES = """\
examples:
  kubedevices wait example.com/widget --socket-dir ~/kd
  kubedevices wait example.com/widget --allocatable 4 --timeout 10s --socket-dir ~/kd
  kubedevices wait --registration --socket-dir ~/kd
"""

PAUSE = 0.1
"""Seconds between two questions."""

ANSWER_LIMIT = 5.0
"""Seconds that a server has for its first answer, then it is asked again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "resource", nargs="?", metavar="RESOURCE", help="for example example.com/widget"
    )
    parser.add_argument(
        "--registration",
        action="store_true",
        help="wait until plugins can register in the socket directory; needs no RESOURCE",
    )
    parser.add_argument(
        "--allocatable",
        type=_count,
        metavar="N",
        help="wait for exactly N healthy devices, allocated or not (default: for one or more)",
    )
    parser.add_argument(
        "--timeout",
        type=_duration,
        default=30.0,
        metavar="TIME",
        help="give up after this time: 500ms, 10s, 1m (default: 30s)",
    )
    add_node_arguments(parser)
    add_pod_resources_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Wait, then print the number of devices, or that plugins can register."""
    if args.registration:
        if args.resource is not None or args.allocatable is not None or args.pod_resources:
            raise UsageError("--registration waits for no resource, only for --socket-dir")
        asyncio.run(_wait_for_registration(args.socket_dir / KUBELET_SOCKET_NAME, args.timeout))
        print_line(f"plugins can register in {args.socket_dir}")
        return 0
    if args.resource is None:
        raise UsageError("which resource? Write its name, or --registration")
    ResourceName.parse(args.resource)

    number = asyncio.run(_wait(args))
    print_line(f"{args.resource}: {counted(number, 'allocatable device')}")
    return 0


async def _wait(args: argparse.Namespace) -> int:
    numbers: Mapping[str, int] | None = None
    problem = CannotAsk(f"no answer within {args.timeout:g} s")
    try:
        async with deadlines.timeout(args.timeout):
            while True:
                try:
                    numbers = await _ask(args)
                except NotPermitted:
                    raise
                except CannotAsk as error:
                    problem, numbers = error, None
                else:
                    number = numbers.get(args.resource)
                    if number is not None and _is_wanted(number, args.allocatable):
                        return number
                await asyncio.sleep(PAUSE)
    except TimeoutError:
        if numbers is None:
            raise problem from None
        raise not_reached(args.resource, args.allocatable, args.timeout, numbers) from None


async def _wait_for_registration(socket: Path, timeout: float) -> None:
    """Return when a server answers at `socket`; a socket of a killed process does not count."""
    from kubedevices.wire.unix_grpc import GrpcChannel

    problem = f"nothing answers at {socket}"
    try:
        async with deadlines.timeout(timeout):
            while True:
                try:
                    channel = await GrpcChannel.dial(socket, timeout=ANSWER_LIMIT)
                except DialError as error:
                    problem = f"nothing answers at {socket}: {error}"
                    await asyncio.sleep(PAUSE)
                else:
                    await channel.close()
                    return
    except TimeoutError:
        raise KubedevicesError(f"plugins cannot register: after {timeout:g} s {problem}") from None


def not_reached(
    resource: str, wanted: int | None, timeout: float, numbers: Mapping[str, int]
) -> NodeError:
    """Return the error after `timeout` seconds; `numbers` are the allocatable devices now."""
    if resource not in numbers:
        return unknown_resource(resource, numbers)
    number = "1 or more" if wanted is None else str(wanted)
    seen = f"allocatable {numbers[resource]}"
    return NotInTime(resource, f"allocatable {number}", timeout, seen)


def _is_wanted(number: int, wanted: int | None) -> bool:
    return number >= 1 if wanted is None else number == wanted


async def _ask(args: argparse.Namespace) -> Mapping[str, int]:
    """Return the number of allocatable devices of each resource."""
    from kubedevices.kubelet_api.kubelet_devices import ask_kubelet
    from kubedevices.node.services.control_client import ControlClient

    socket = args.pod_resources
    if socket is None:
        try:
            client = await ControlClient.connect(args.socket_dir, state_directory(args))
        except NoNode as error:
            socket = find_kubelet(error)
        else:
            async with client:
                answer: Mapping[str, int] = (await client.capacity())["allocatable"]
                return answer
    listed = (await ask_kubelet(socket))["resources"]
    # A kubelet does not list a resource without healthy devices.
    return {args.resource: 0} | {each["resource"]: each["allocatable"] for each in listed}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of devices")
    return int(text[:20])


def _duration(text: str) -> float:
    from kubedevices.config.durations import parse_duration

    try:
        seconds = parse_duration(text if text[-1:].isalpha() else f"{text}s")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, for example 10s") from None
    if not seconds:
        raise argparse.ArgumentTypeError("a time above 0 is needed, for example 10s")
    return seconds
