"""The content of the image that `make image` builds."""

import json
import re

import pytest

from benchmarks.footprint_image import LAYER_LIMIT, image_sizes
from kubedevices import __version__
from tests.image_host import ImageHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMPILED = """
import pathlib, sys
for source in pathlib.Path("/opt/kubedevices").rglob("*.py"):
    cached = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    flags = int.from_bytes(cached.read_bytes()[4:8], "little") if cached.exists() else None
    if flags != 0b01:  # made from a hash that nobody compares
        print(source, flags)
"""
LEFTOVERS = """
for path in /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/log/apt \\
    /build ~/.cache ~/.local /opt/kubedevices/setuptools; do
  [ -e "$path" ] && echo "$path"
done
command -v pip3 gcc curl
python3 -c 'import pip' 2>/dev/null && echo pip
ls /usr/local/bin
"""
COLOURS = "\x1b"


def in_container(built: ImageHost, *command: str, options: tuple[str, ...] = ()) -> str:
    """Run a command with the file system of the image."""
    program, *arguments = command
    start = ["run", "--rm", "--network=none", "--read-only", *options]
    return built.podman(*start, f"--entrypoint={program}", built.image, *arguments)


def test_the_image_has_labels_and_a_small_init(built: ImageHost) -> None:
    """The labels have title, version and licence. Process 1 is tini."""
    (found,) = json.loads(built.podman("image", "inspect", built.image))
    prefix = "org.opencontainers.image."
    labels = {key: text for key, text in found["Labels"].items() if key.startswith(prefix)}
    assert labels == {
        f"{prefix}title": "kubedevices",
        f"{prefix}description": "Kubernetes device plugins, both sides of the socket",
        f"{prefix}licenses": "Apache-2.0",
        f"{prefix}version": __version__,
    }
    assert found["Config"]["Entrypoint"] == ["tini", "--", "kubedevices"]


def test_the_image_runs_every_command(built: ImageHost) -> None:
    """Without arguments the image prints the help."""
    run = ("run", "--rm", "--network=none", "--read-only", "--cap-drop=all", built.image)
    assert built.podman(*run, "--version") == f"kubedevices {__version__}\n"
    assert "serve devices of this host" in built.podman(*run)
    assert "eight-gpus" in built.podman(*run, "simulate", "--help")


def test_all_modules_are_compiled(built: ImageHost) -> None:
    """The root file system is read-only, so a module without .pyc file would be compiled at each
    start.
    """
    assert in_container(built, "python3", "-c", COMPILED) == ""
    modules = "kubedevices.cli.ready_plugins.expose, kubedevices.expose.scanner"
    modules += ", kubedevices.plugin.runner, yaml"
    start = built.podman_words("run", "--rm", "--network=none", "--read-only")
    words = ("--entrypoint=python3", built.image, "-v", "-c", f"import {modules}")
    done = built.run(*start, *words)
    assert done.returncode == 0, done.stderr
    loaded = re.findall(r"^# code object from '?(\S+?)'?$", done.stderr, re.MULTILINE)
    assert "/opt/kubedevices/kubedevices/plugin/__pycache__/runner.cpython-311.pyc" in loaded
    assert [path for path in loaded if not path.endswith(".pyc")] == []


def test_the_image_has_no_files_of_the_build(built: ImageHost) -> None:
    """No package lists, no pip, no build directory, and no other program."""
    assert in_container(built, "sh", "-c", LEFTOVERS).split() == ["kubedevices"]


def test_our_layer_is_small(built: ImageHost) -> None:
    """kubedevices and its dependencies, in MB over Debian's minimal Python."""
    sizes = image_sizes(built)
    assert 5 < sizes.ours <= LAYER_LIMIT
    assert sizes.ours + sizes.python + sizes.base == pytest.approx(sizes.whole, rel=0.02)


def test_the_output_has_colours_on_a_terminal(built: ImageHost) -> None:
    """`kubectl exec --tty` shows the same output as a terminal of the host."""
    terminal = in_container(built, "kubedevices", "check", "--list", options=("--tty",))
    assert COLOURS in terminal
    assert "registration.registers" in terminal
