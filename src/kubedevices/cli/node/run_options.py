"""`allocate --format`: the options of a container, as text for a shell or a file.

The package `runtimes` returns the options for each runtime. This module quotes them, and reads what
they need from the host: the numbers of device files for `oci`, and CDI files if the answer of the
node names CDI devices.
"""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CannotRead, NotJson, UsageError
from kubedevices.errors.safe_text import escaped_json, json_text, shell_line
from kubedevices.host.terminal import print_to_stderr
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import DeviceSpec, Mount

if TYPE_CHECKING:
    import argparse

    from kubedevices.node.pods.pod import Pod

_BASE_LIMIT = 2**24
CDI_KIND = "kubedevices.local/allocation"
"""The kind of the CDI file of `--format cdi`, whose only device is the allocation."""


def chosen_container(pod: "Pod", wanted: str | None) -> str:
    """Return the container whose options are printed; raises `UsageError` if it is unclear."""
    names = [container.name for container in (*pod.init_containers, *pod.containers)]
    if wanted is not None:
        if wanted not in names:
            raise UsageError(f"pod {pod.name} has no container {wanted!r}, only {', '.join(names)}")
        return wanted
    if len(names) != 1:
        raise UsageError(
            f"pod {pod.name} has several containers: choose one of {', '.join(names)} "
            "with --container"
        )
    return names[0]


def read_base(file: Path | None) -> dict[str, Any]:
    """Return the OCI configuration to which `oci` adds; raises `CannotRead` and `UsageError`."""
    if file is None:
        return {}
    try:
        with file.open("rb") as stream:
            config = read_json(stream.read(_BASE_LIMIT + 1), limit=_BASE_LIMIT)
    except OSError as error:
        raise CannotRead(str(file), error.strerror or str(error)) from error
    except NotJson as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{file} is not an OCI runtime configuration: it must be an object")
    return config


def add_allow_env(parser: "argparse._ActionsContainer") -> None:
    """Add `--allow-env`."""
    parser.add_argument(
        "--allow-env",
        action="append",
        default=[],
        metavar="NAME",
        help="pass this variable of a plugin to a program of the host although it is dangerous "
        "there, such as PATH; may be given several times",
    )


def words(
    answer: Mapping[str, Any],
    container: str,
    kind: str,
    base: Mapping[str, Any],
    *,
    allowed: Collection[str] = (),
) -> str:
    """Return the options of `container` in the node's `answer`.

    Raises `NotExpressible` and `UnsafeVariable`.
    """
    options = run_options(answer, container)
    if kind == "cdi":
        # Kubernetes names have no underscore, so two containers never get the same device name.
        owner = "_".join((answer["namespace"], answer["name"], container))
        return _cdi(options, owner)
    if kind == "env":
        from kubedevices.host.runtimes import env

        resources = next(each for each in answer["containers"] if each["name"] == container)
        plugin = " or ".join(resources["devices"])
        return shell_line(env.words(options, plugin=plugin, allowed=allowed))
    if kind == "oci":
        return _oci(options, base)
    from kubedevices.host.runtimes import engine

    return shell_line(engine.args(kind, options))


def warn_of_conflicts(answer: Mapping[str, Any]) -> None:
    """Say which devices and variables do not reach a container: two resources give the same."""
    for container in answer["containers"]:
        for text in container["conflicts"]:
            print_to_stderr(f"kubedevices: warning: container {container['name']}: {text}")


def run_options(answer: Mapping[str, Any], container: str) -> ContainerOptions:
    """Return the options of `container` in the node's `answer`."""
    entry = next(each for each in answer["containers"] if each["name"] == container)
    given: Mapping[str, Any] = entry["options"]
    return ContainerOptions(
        env=given["env"],
        devices=tuple(DeviceSpec(**device) for device in given["devices"]),
        mounts=tuple(Mount(**mount) for mount in given["mounts"]),
        annotations=given["annotations"],
        cdi_devices=tuple(given["cdi_devices"]),
    )


def _oci(options: ContainerOptions, base: Mapping[str, Any]) -> str:
    from kubedevices.host.cdi_specs import read_registry
    from kubedevices.host.device_files import read_device_file, read_device_files
    from kubedevices.host.runtimes import oci

    config = oci.apply_to_oci(
        base,
        options,
        read_device_files(oci.host_paths(options)),
        registry=read_registry() if options.cdi_devices else None,
        look=partial(read_device_file, follow=False),
    )
    return json_text(config, indent=2, ascii_only=True)


def _cdi(options: ContainerOptions, owner: str) -> str:
    from kubedevices.host.cdi_specs import read_registry
    from kubedevices.host.runtimes import cdi
    from kubedevices.values.cdi import CdiName, device_name_of

    name = CdiName.of(CDI_KIND, device_name_of(owner))
    resolve = read_registry().edits if options.cdi_devices else None
    return escaped_json(cdi.text(options, name, resolve=resolve).rstrip("\n"))
