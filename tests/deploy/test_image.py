"""What is in the image that `make image` builds, and what is not."""

import json
import re

import pytest

from benchmarks.footprint_image import LAYER_LIMIT, image_sizes
from kubedevices import __version__
from tests.image_host import ImageHost

pytestmark = pytest.mark.timeout(600)

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
    """Run a command with the image's file system."""
    program, *arguments = command
    start = ["run", "--rm", "--network=none", "--read-only", *options]
    return built.podman(*start, f"--entrypoint={program}", built.image, *arguments)


def test_the_image_says_what_it_is(built: ImageHost) -> None:
    """Its labels name program, version and licence, and it starts through a small process 1."""
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


def test_the_image_runs_every_verb_by_its_arguments(built: ImageHost) -> None:
    """Without arguments it prints its help."""
    run = ("run", "--rm", "--network=none", "--read-only", "--cap-drop=all", built.image)
    assert built.podman(*run, "--version") == f"kubedevices {__version__}\n"
    assert "serve devices of this host" in built.podman(*run)
    assert "eight-gpus" in built.podman(*run, "simulate", "--help")


def test_everything_is_compiled_and_never_looked_at_again(built: ImageHost) -> None:
    """The root file system is read-only: what is not compiled there is compiled at each start."""
    assert in_container(built, "python3", "-c", COMPILED) == ""
    modules = "kubedevices.cli.expose, kubedevices.plugin.runner, kubedevices.builtin.expose, yaml"
    start = built.podman_words("run", "--rm", "--network=none", "--read-only")
    words = ("--entrypoint=python3", built.image, "-v", "-c", f"import {modules}")
    done = built.run(*start, *words)
    assert done.returncode == 0, done.stderr
    loaded = re.findall(r"^# code object from '?(\S+?)'?$", done.stderr, re.MULTILINE)
    assert "/opt/kubedevices/kubedevices/plugin/__pycache__/runner.cpython-311.pyc" in loaded
    assert [path for path in loaded if not path.endswith(".pyc")] == []


def test_nothing_of_the_build_is_left(built: ImageHost) -> None:
    """No package lists, no pip, no build directory, no program but ours."""
    assert in_container(built, "sh", "-c", LEFTOVERS).split() == ["kubedevices"]


def test_our_layer_is_small(built: ImageHost) -> None:
    """We and what we depend on, in MB over Debian's minimal Python."""
    sizes = image_sizes(built)
    assert 5 < sizes.ours <= LAYER_LIMIT
    assert sizes.ours + sizes.python + sizes.base == pytest.approx(sizes.whole, rel=0.02)


def test_a_terminal_gets_colours(built: ImageHost) -> None:
    """`kubectl exec --tty` shows what a terminal of the host would show."""
    terminal = in_container(built, "kubedevices", "check", "--list", options=("--tty",))
    assert COLOURS in terminal
    assert "registration.registers" in terminal
