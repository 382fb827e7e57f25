"""`kubedevices allocate`: admits a pod at a node and prints the options of its containers.

The keys of `-o json` and `-o yaml` are stable: `namespace`, `name`, `uid` and `containers`, each
container with `name`, `kind` (init, sidecar, app), `devices` (resource to device IDs) and `options`
(`env`, `devices`, `mounts`, `annotations`, `cdi_devices`).
"""

import argparse
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.cli.node.run_options import (
    add_allow_env,
    chosen_container,
    read_base,
    warn_of_conflicts,
    words,
)
from kubedevices.cli.shared.node_client import add_node_arguments, ask_to_allocate
from kubedevices.cli.shared.output import (
    Column,
    Row,
    add_output_argument,
    option_lines,
    print_listing,
)
from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import KubedevicesError, UsageError
from kubedevices.host.runtimes import FORMATS
from kubedevices.host.terminal import print_line, print_text, print_to_stderr
from kubedevices.values.resource_name import ResourceName

if TYPE_CHECKING:
    from kubedevices.node.pods.pod import Pod
    from kubedevices.node.services.control_client import ControlClient

NAME = "allocate"
HELP = """\
allocate devices for a container, as a kubelet does

The arguments are resources for one container; or --pod names a Kubernetes Pod manifest. Either all
containers of the pod get all their devices, or the pod is refused and holds nothing. The same pod
again gets the same devices.
"""
EXAMPLES = """\
examples:
  kubedevices allocate example.com/widget=2 --socket-dir ~/kd
  kubedevices allocate example.com/widget=1 example.com/gpu=1 --pod-name train -o json
  kubedevices allocate --pod pod.yaml --socket-dir ~/kd
  kubectl get pod train -o yaml | kubedevices allocate --pod -
  kubedevices release train --socket-dir ~/kd              gives the devices back

to start a container or a program, and to give its devices back when it ends:
  kubedevices with example.com/widget=1 -- podman run --rm {} IMAGE ...

run options for a runtime; you have to release the devices yourself:
  kubedevices allocate example.com/widget=1 --pod-name train --format podman
  kubedevices allocate example.com/widget=1 --format oci --oci-config config.json > new.json
  kubedevices allocate example.com/widget=1 --format cdi > /var/run/cdi/widget.json
  kubedevices release train

The output is quoted for a shell: use eval, because $(...) alone does not read the quotes.
"""


_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_EXAMPLE = "for example example.com/widget=1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "requests", nargs="*", metavar="RESOURCE=N", help=f"devices for the container, {_EXAMPLE}"
    )
    parser.add_argument(
        "--pod",
        type=some_path,
        metavar="FILE",
        help="a Kubernetes Pod manifest; - is standard input",
    )
    parser.add_argument(
        "--pod-name", metavar="NAME", help="name of the pod (default: a random name)"
    )
    parser.add_argument(
        "--container",
        metavar="NAME",
        help="name of the container (default: main); with --pod: the container for --format",
    )
    add_output_argument(parser)
    group = parser.add_argument_group("for a runtime")
    group.add_argument(
        "--format",
        choices=FORMATS,
        help="print the run options of one container: arguments of podman or docker, variables "
        "(env), an OCI configuration, or a CDI file",
    )
    group.add_argument(
        "--oci-config",
        type=some_path,
        metavar="FILE",
        help="with --format oci: add the devices to this configuration, for example that of `runc "
        "spec` (default: an empty configuration)",
    )
    add_allow_env(group)
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Admit the pod and print the devices and options of each container."""
    if args.oci_config is not None and args.format != "oci":
        raise UsageError("--oci-config needs --format oci")
    pod = _pod(args)
    if args.format is None:
        answer = ask_to_allocate(args, lambda client: client.allocate(pod), _wanted(pod))
        _print(answer, args.output)
        warn_of_conflicts(answer)
        return 0
    if args.output != "table":
        raise UsageError(f"--format and -o {args.output} exclude each other: use one of them")
    print_text(f"{_for_runtime(args, pod)}\n")
    if args.pod is None and args.pod_name is None:  # a random name, which the user does not know
        print_to_stderr(
            f"pod {pod.full_name} holds these devices until `kubedevices release {pod.name}`"
        )
    return 0


def _for_runtime(args: argparse.Namespace, pod: "Pod") -> str:
    """Admit the pod and return its run options.

    If the runtime cannot express the options, a pod that was not admitted before is released again.
    """
    container = chosen_container(pod, args.container)
    base = read_base(args.oci_config)

    async def allocate(client: "ControlClient") -> str:
        before = {each["uid"] for each in (await client.pods())["pods"]}
        answer = await client.allocate(pod)
        warn_of_conflicts(answer)
        try:
            return words(answer, container, args.format, base, allowed=args.allow_env)
        except KubedevicesError:
            if answer["uid"] not in before:
                await client.release(answer["uid"])
            raise

    return ask_to_allocate(args, allocate, _wanted(pod))


def _wanted(pod: "Pod") -> Iterator[str]:
    return (name for container in pod for name in container.limits)


# ---------------------------------------------------------------- the pod


def _pod(args: argparse.Namespace) -> "Pod":
    if bool(args.requests) is (args.pod is not None):
        raise UsageError(f"allocate needs RESOURCE=N, {_EXAMPLE}, or --pod FILE, but not both")
    if args.pod is not None:
        if args.pod_name is not None or (args.container is not None and args.format is None):
            raise UsageError(
                "--pod-name and --container cannot be used with --pod, because the file has both "
                "names (with --format, --container chooses the container)"
            )
        return _read_pod(args.pod)
    return requested_pod(args.requests, args.pod_name, args.container, prefix="pod")


def requested_pod(
    requests: list[str], pod_name: str | None, container: str | None, *, prefix: str
) -> "Pod":
    """Return a pod of one container for `RESOURCE=N` words; raises `UsageError`.

    Without `pod_name`, the name is `prefix` and a random number.
    """
    from kubedevices.node.pods.pod import Container, Pod

    name = _name("--pod-name", pod_name, f"{prefix}-{secrets.token_hex(4)}")
    return Pod(
        name,
        containers=(Container(_name("--container", container, "main"), _limits(requests)),),
    )


def _name(option: str, given: str | None, default: str) -> str:
    if given is None:
        return default
    if not _POD_NAME.fullmatch(given):
        raise UsageError(f"{option} {given!r} must be lower-case letters, digits, '-' and '.'")
    return given


def _limits(requests: list[str]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for request in requests:
        resource, equals, text = request.partition("=")
        if not equals:
            raise UsageError(f"{request!r} is not RESOURCE=N, {_EXAMPLE}")
        name = str(ResourceName.parse(resource))
        if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
            raise UsageError(f"{request!r}: {text!r} is not a number of devices")
        if name in limits:
            raise UsageError(f"{name} is asked for twice: {' '.join(requests)}")
        limits[name] = int(text)
    return limits


def _read_pod(file: Path) -> "Pod":
    """Read a manifest; each mistake in it is reported with its line. Raises `ConfigError`."""
    from kubedevices.config.documents.yaml_text import USER
    from kubedevices.config.yaml_source import (
        construct_value,
        find,
        parse_yaml,
        read_yaml,
        refuse_double_keys,
    )
    from kubedevices.node.pods.pod import parse_pod

    if str(file) == "-":
        file = Path("standard input")
        root = parse_yaml(sys.stdin.buffer.read(USER.size + 1), file)
    else:
        root = read_yaml(file)
    refuse_double_keys(root, file)
    manifest = construct_value(root, file)

    def locate(path: tuple[str | int, ...]) -> tuple[int, int]:
        mark = find(root, path).start_mark
        return mark.line + 1, mark.column + 1

    return parse_pod(manifest, source=str(file), locate=locate)


# ---------------------------------------------------------------- the answer


def _print(answer: dict[str, Any], output: str) -> None:
    if output == "table":
        print_line(f"pod {answer['namespace']}/{answer['name']} is admitted")
    devices = [*_devices(answer)]
    columns = (Column("container"), Column("kind"), Column("resource"), Column("devices"))
    print_listing(devices, columns, output, document=answer, empty="no container asks for devices")
    if output == "table" and (options := [*_options(answer)]):
        print_line()
        print_listing(options, (Column("container"), Column("option"), Column("value")), output)


def _devices(answer: dict[str, Any]) -> Iterator[Row]:
    for container in answer["containers"]:
        for resource, device_ids in container["devices"].items():
            yield {
                "container": container["name"],
                "kind": container["kind"],
                "resource": resource,
                "devices": device_ids,
            }


def _options(answer: dict[str, Any]) -> Iterator[Row]:
    for container in answer["containers"]:
        for option, value in _option_lines(container["options"]):
            yield {"container": container["name"], "option": option, "value": value}


def _option_lines(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from option_lines(options)
    for name, value in options["annotations"].items():
        yield "annotation", f"{name}={value}"
    for name in options["cdi_devices"]:
        yield "CDI device", name
