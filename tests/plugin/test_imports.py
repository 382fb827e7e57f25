"""What a serving plugin process loads: each module costs memory on every node of a cluster.

A plugin of somebody's loads our half for plugins. Of our own plugins, simulate and expose, every
module is listed, with what each optional part adds: who makes them load more has to say so here.
"""

import asyncio
import functools
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fake_kubelet import FakeKubelet

PROGRAM = """
import asyncio, sys
from pathlib import Path
import kubedevices as kd

class Widgets(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"widget": [kd.Device("w0", paths=["/dev/null"])]})

async def main():
    options = {"socket_dir": Path(sys.argv[1]), "registration": "none"}
    async with kd.serve(Widgets(), domain="example.com", **options) as plugin:
        while not plugin.is_serving("widget"):
            await asyncio.sleep(0.01)
        print(*sys.modules)

asyncio.run(main())
"""
OURS = {"errors", "host", "kubelet_api", "plugin", "serving", "values", "version", "wire"}
NOT_NEEDED = {
    *("bz2", "concurrent.futures.process", "datetime", "h2", "hashlib", "google", "http.server"),
    *("importlib.resources", "json", "lzma", "multiprocessing", "pickle", "random", "shutil"),
    *("sqlite3", "tempfile", "urllib.request", "xml", "zipfile"),
    *("kubedevices.host.runtimes", "kubedevices.serving.switch", "kubedevices.values.cdi"),
    *("kubedevices.serving.driver_pages", "kubedevices.serving.plugin_pages"),
}


@functools.cache
def of_bare_python() -> set[str]:
    """Return what this Python loads before any program: Debian's has a `sitecustomize`."""
    command = [sys.executable, "-c", "import sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def loaded(directory: Path) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_a_plugin_loads_its_half_and_nothing_optional(short_dir: Path) -> None:
    """Not the node, no YAML, no tables, no metrics; and a few large modules of Python stay out."""
    modules = loaded(short_dir)
    tops = {name.partition(".")[0] for name in modules}
    known = {"kubedevices", *sys.stdlib_module_names, *of_bare_python()}
    assert {name for name in tops - known if not name.startswith(("_", "__"))} == set()
    ours = {name.split(".")[1] for name in modules if name.startswith("kubedevices.")}
    assert ours <= OURS
    assert not modules & NOT_NEEDED


EVERYTHING = """
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

class Refused(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if path is None and name not in {"kubedevices", *sys.stdlib_module_names, *sys.argv[1:]}:
            raise ModuleNotFoundError(f"{name} is no dependency", name=name)

sys.meta_path.insert(0, Refused())
import kubedevices
for each in pkgutil.walk_packages(kubedevices.__path__, "kubedevices."):
    if each.name.endswith("__main__"):  # would run
        continue
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        print(each.name, error.name)
"""
DEPENDENCIES = ("yaml", "_yaml", "prometheus_client", "h11")
"""The modules of the dependencies and of the extras in pyproject.toml."""


def test_only_the_pytest_plugin_needs_pytest() -> None:
    """Every other module can be imported where only the dependencies are installed."""
    command = [sys.executable, "-c", EVERYTHING, *DEPENDENCIES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("kubedevices.testing.fixtures pytest\n", "")


VERB = """
import sys
from kubedevices.cli import main
code = main(sys.argv[2:])
open(sys.argv[1], "w").write("\\n".join(sorted(sys.modules)))
sys.exit(code)
"""
SETTINGS = "numberDevicesOnNode: 1\n"
CONFIG = """\
version: 1
namespace: example.com
resources:
- {name: simple-device, match: [{path: /dev/widget*}]}
"""


class Part(NamedTuple):
    """A verb with its arguments ({d} is a directory), and what may be loaded beyond `beside`.

    `ours` are modules of kubedevices, `others` are packages of others.
    """

    arguments: str
    ours: str
    others: str = ""
    stdlib: str = ""
    beside: str = ""


EXPOSE = "expose --config {d}/config.yaml --dev-root {d}/dev"
PARTS = {
    "simulate": Part(
        "simulate --number-devices 1",
        """
        _frames _limits _output _session cli cli.ready_plugins cli.ready_plugins.simulate
        cli.shared cli.shared.dra_serving cli.shared.log_options plugin.log_lines
        cli.shared.serving cli.verbs
        config config.checks config.durations config.keys config.placeholders errors
        errors.check errors.container errors.dra errors.node errors.plugin errors.proxy
        errors.safe_text errors.shared errors.watcher errors.words expose host host.deadlines
        host.file_watch host.heap host.inotify host.listing host.private_directory
        host.service_manager host.stopping host.sysfs host.terminal host.unblocked_output
        kubelet_api kubelet_api.clients kubelet_api.convert kubelet_api.device_lists
        kubelet_api.cordon kubelet_api.protobuf kubelet_api.services plugin
        plugin.allocate_response plugin.allocation_policy plugin.author_errors
        plugin.capabilities plugin.cdi plugin.device_list plugin.hook_threads plugin.hooks
        plugin.newer_instance plugin.notifier plugin.numa_lookup plugin.open_streams
        plugin.options plugin.other_instances plugin.register_call plugin.registrar
        plugin.registration_loop plugin.registration_state plugin.runner plugin.scan_task
        plugin.polled_scanner
        plugin.scanner plugin.served_type plugin.server plugin.stop_signals plugin.stoppable
        plugin.timing plugin.watched_plugin rules rules.device_selector rules.faults rules.cordon
        rules.middleware rules.replica_choice rules.replicas serving serving.modes simulate
        simulate.answers simulate.config simulate.devices simulate.files simulate.settings
        simulate.simulator values values.allocation values.device values.device_tree
        values.resource_name values.socket_paths values.wildcards version wire wire.acceptor
        wire.byte_budget wire.client_connection
        wire.grpc_channel wire.grpc_connection wire.grpc_events wire.grpc_framing
        wire.grpc_headers wire.grpc_link wire.grpc_server wire.header_block wire.hpack
        wire.http2_frames wire.http2_limits wire.http2_output wire.http2_session wire.huffman
        wire.peers wire.server_connection wire.server_link wire.server_load
        wire.socket_dial wire.unix_grpc wire.unix_socket
        """,
        "",
        """
        abc argparse array ast asyncio atexit base64 binascii bisect builtins codecs
        collections concurrent contextlib contextvars copy copyreg ctypes dataclasses dis
        encodings enum errno fcntl fnmatch functools genericpath gettext heapq importlib inspect io
        ipaddress itertools json keyword linecache locale logging marshal math mmap ntpath
        opcode operator os pathlib platform posix posixpath re reprlib resource select
        selectors signal site socket stat string struct subprocess sys textwrap
        threading time token tokenize traceback types typing urllib warnings weakref zipimport
        """,
    ),
    "settings from YAML": Part(
        "simulate --config {d}/settings.yaml",
        """
        config config.documents config.documents.yaml_text config.yaml_config config.yaml_source
        simulate simulate.simulation_file simulate.step_keys
        """,
        "yaml",
        "datetime",
        beside="simulate",
    ),
    "pages": Part(
        "simulate --number-devices 1 --listen 127.0.0.1:0",
        "serving.plugin_pages pages pages.process_samples pages.metrics pages.page_server "
        "pages.prometheus",
        stdlib="http",
        beside="simulate",
    ),
    "expose": Part(
        EXPOSE,
        """
        cli cli.ready_plugins cli.ready_plugins.expose cli.shared cli.shared.output config
        config.documents config.documents.json_text config.documents.nesting expose
        expose.abilities expose.checks expose.config expose.host expose.recognition
        expose.names_file expose.match_keys expose.path_patterns
        expose.removed_devices expose.names expose.found expose.held_ids expose.scanner
        expose.tree
        expose.witnesses host host.device_files host.device_names_file host.lock_holder host.pci
        host.programs
        host.shared_directory host.state_file host.terminal
        host.untrusted_files host.usb host.vfio plugin plugin.config_follower rules
        rules.check_threads rules.health_checks rules.health_gate values values.cdi
        values.cdi.container_annotations values.cdi.inject values.cdi.names values.cdi.parse
        values.cdi.registry values.cdi.validity values.cdi.values values.cdi.versions
        """,
        stdlib="hashlib",
        beside="settings from YAML",
    ),
    "CDI": Part(
        EXPOSE + " --inject cdi --cdi-dir {d}/cdi",
        """
        host.cdi_inventory host.cdi_specs host.device_links host.shared_directory
        host.untrusted_files plugin.cdi_form
        """,
        beside="expose",
    ),
}


def allowed(name: str) -> tuple[set[str], set[str], set[str]]:
    """Return modules of ours, packages of others and of Python that a part may load."""
    part = PARTS[name]
    listed = [set(text.split()) for text in (part.ours, part.others, part.stdlib)]
    more = allowed(part.beside) if part.beside else (set[str](), set[str](), set[str]())
    ours, others, stdlib = (here | there for here, there in zip(listed, more, strict=True))
    return ours, others, stdlib


async def loaded_by(arguments: Sequence[str], directory: Path) -> set[str]:
    """Run a plugin until the kubelet has its list; return what it had loaded in the end."""
    async with FakeKubelet(directory / "p") as kubelet:
        socket_dir = ("--socket-dir", str(directory / "p"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", VERB, str(directory / "modules"), *arguments, *socket_dir
        )
        try:
            await kubelet.wait_for("example.com/simple-device", 1)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return set((directory / "modules").read_text().split())


@pytest.mark.parametrize("name", PARTS)
async def test_our_plugins_load_what_is_listed(name: str, short_dir: Path) -> None:
    """Each part brings its modules, and nothing else does."""
    for each in ("p", "dev", "cdi"):
        (short_dir / each).mkdir()
    (short_dir / "dev/widget0").touch()
    (short_dir / "settings.yaml").write_text(SETTINGS)
    (short_dir / "config.yaml").write_text(CONFIG)
    words = [word.format(d=short_dir) for word in PARTS[name].arguments.split()]
    modules = await loaded_by(words, short_dir)
    ours, others, stdlib = allowed(name)
    assert {each[12:] for each in modules if each.startswith("kubedevices.")} - ours == set()
    tops = {each.partition(".")[0] for each in modules if not each.startswith("_")}
    known = {"kubedevices", "cython_runtime", *sys.stdlib_module_names, *of_bare_python()}
    assert tops - known - others == set()
    if sys.version_info[:2] == (3, 11):  # as in the image; other versions split theirs differently
        assert tops & sys.stdlib_module_names - stdlib - of_bare_python() == set()
