"""Rules of CONTRIBUTING that a program can check."""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LIMIT = 400
FUNCTION_LIMIT = 60


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that git tracks and that exists."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of a module; each rule looks at all of them, and parsing takes longer."""
    return tuple(ast.walk(tree_of(path)))


def test_a_module_is_short_and_has_a_docstring() -> None:
    """No module has more than 400 lines, and no function more than 60."""
    bare = [name_of(path) for path in SOURCES if not ast.get_docstring(tree_of(path))]
    long = [name_of(path) for path in SOURCES if path.read_text().count("\n") > FILE_LIMIT]
    long += [
        f"{name_of(path)}: {node.name}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LIMIT
    ]
    assert (bare, long) == ([], [])


def imports_of(path: Path) -> set[Path]:
    """Return our modules that a module imports anywhere, also only for types."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kubedevices"):
            place = (ROOT / "src").joinpath(*str(node.module).split("."))
            found |= {place.with_suffix(".py"), *(place / f"{each.name}.py" for each in node.names)}
    return found.intersection(SOURCES)


def test_no_two_modules_import_each_other() -> None:
    """The contracts of import-linter are about packages, this test is about files."""
    imported = {path: imports_of(path) for path in SOURCES}
    circles = {
        tuple(sorted((name_of(path), name_of(other))))
        for path, others in imported.items()
        for other in others
        if path in imported[other]
    }
    assert not circles


PACKAGES = [path for path in SOURCES if path.name == "__init__.py" and path.parent.name != "cli"]


def test_a_package_docstring_lists_its_modules() -> None:
    """It has exactly the modules and packages of the folder, one a line."""
    for path in PACKAGES[1:]:
        doc = ast.get_docstring(tree_of(path)) or ""
        listed = set(re.findall(r"^(\w+)(?=  +\S)", doc, re.MULTILINE))
        modules = {file.stem for file in path.parent.glob("*.py")} - {"__init__"}
        folders = {folder.parent.name for folder in path.parent.glob("*/__init__.py")}
        assert listed == modules | folders, name_of(path)


def test_readme_is_short() -> None:
    """README has fewer than 150 lines."""
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


WORKPLACE = re.compile(
    r"(?<![\w.])/(?:work|farm|root)/|docker\.io|ghcr\.io|quay\.io|gcr\.io|registry\.k8s"
)
SAYS_WHAT_KUBERNETES_PULLS = {
    ("src/kubedevices/manifests/image.py", "docker.io"),
    ("tests/cli/test_manifests.py", "docker.io"),
    ("tests/cli/test_deploy.py", "docker.io"),
    ("tests/kubernetes/single_node/layout.py", "docker.io"),
    ("docs/deploy.md", "docker.io"),
}


def test_no_path_of_a_developers_machine_and_no_registry_is_named() -> None:
    """Tracked files are about the project only."""
    found = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in {".binpb", ".png"}:
            continue
        found += [
            f"{name_of(path)}: {match[0]}"
            for match in WORKPLACE.finditer(path.read_text(errors="replace"))
            if (name_of(path), match[0]) not in SAYS_WHAT_KUBERNETES_PULLS
        ]
    assert not found


def test_no_to_do_notes_and_no_skipped_tests() -> None:
    """Nor a test that is always expected to fail."""
    pattern = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XXX)\b|mark\.(?:skip|xfail)\(")
    for path in tracked_files():
        if path.suffix == ".py" and path != Path(__file__):
            assert not pattern.search(path.read_text()), name_of(path)


def test_each_class_has_a_name_of_its_own() -> None:
    """No two classes of the source code have the same name, so a search finds one class."""
    names = Counter(
        node.name for path in SOURCES for node in nodes_of(path) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


NO_STRANGER_WROTE_IT = {
    "src/kubedevices/config/documents/json_text.py": "the entrance",
    "src/kubedevices/config/documents/yaml_text.py": "the entrance",
    "src/kubedevices/cli/shared/output.py": "reads what it has just written",
    "src/kubedevices/check/supervisor.py": "its parent sends the lines",
    "src/kubedevices/check/processes.py": "its child sends the lines",
    "src/kubedevices/testing/api_server/http.py": "a server in the process of a test",
    "src/kubedevices/testing/api_server/protobuf_bodies.py": "the same server",
}
FOR_NODES_AND_OUTPUT = {
    *("Node", "ScalarNode", "SequenceNode", "MappingNode"),
    *("safe_dump", "dump", "SafeDumper"),
}


def parsers_in(path: Path) -> set[str]:
    """Return the uses of parsers of JSON and YAML in a module."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            is_json = name in {"json.load", "json.loads", "json.JSONDecoder", "json.decoder"}
            if is_json or (node.value.id == "yaml" and node.attr not in FOR_NODES_AND_OUTPUT):
                found.add(name)
        elif isinstance(node, ast.ImportFrom) and node.module in {"json", "yaml"}:
            found |= {f"from {node.module}" for each in node.names if each.name != "dumps"}
        elif isinstance(node, ast.Import):
            found |= {
                f"import {each.name} as {each.asname}"
                for each in node.names
                if each.name.partition(".")[0] in {"json", "yaml"} and each.asname
            }
    return found


def test_json_and_yaml_are_read_through_the_entrances() -> None:
    """Only `documents` parses: it limits size, depth and number of values of what others wrote."""
    found = {name_of(path): parsers_in(path) for path in SOURCES}
    others = {name for name, parsers in found.items() if parsers} - NO_STRANGER_WROTE_IT.keys()
    assert {name: found[name] for name in others} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import json\njson.loads(x)",
        "import json\nread = json.load",
        "from json import loads",
        "import json as j",
        "import yaml\nyaml.compose(x)",
        "def f():\n    import yaml\n    return yaml.constructor.SafeConstructor()",
        "from yaml import safe_load",
    ],
)
def test_a_parser_beside_the_entrances_is_found(code: str, tmp_path: Path) -> None:
    """The rule sees a call, a reference and an import."""
    (tmp_path / "module.py").write_text(code)
    assert parsers_in(tmp_path / "module.py")


CHANGES_FILES = {"unlink", "rename", "rmtree", "rmdir", "removedirs", "symlink_to", "hardlink_to"}
CHANGES_FILES |= {"mkdir", "makedirs", "write_text", "write_bytes", "touch", "mknod", "flock"}
MAY_CHANGE_FILES = {
    # The rule itself, and the sockets, which have their own.
    "host/shared_directory.py": "each step is relative to a directory opened without links",
    "host/untrusted_files.py": "tries a lock on a file that it has inspected",
    "wire/unix_socket.py": "sockets: each file is identified before it is removed",
    "host/rotated_file.py": "works relative to the open directory",
    "node/damaged_file.py": "works relative to the open directory",
    "node/arrival/plugin_directory.py": "works relative to the open directory",
    "node/pods/hold_owner.py": "works relative to the open directory",
    # A lock on a file that the rule has opened.
    "dra/claim_lock.py": "locks a file of SharedDirectory",
    "dra/deployment_lock.py": "locks a file of SharedDirectory",
    "host/cdi_inventory.py": "locks a file that was inspected",
    "host/lock_holder.py": "locks a file of SharedDirectory",
    # Sockets of our own, identified before.
    "dra/sockets.py": "removes a socket that it owns",
    "plugin/registrar.py": "removes a socket that it owns",
    "dra/driver.py": "calls the method of `dra.sockets`",
    "dra/preparation.py": "calls `cdi_specs`, which has the rule",
    # Only the user and root can change a state directory.
    "node/ledger/ledger_file.py": "the state directory, which is private",
    "node/ledger/lost_pods.py": "the state directory, which is private",
    # Places that the user names, on the command line or as the author of a plugin.
    "cli/find_mistakes/check.py": "reports of the user",
    "cli/node/node_services.py": "directories of the user for `--count`",
    "cli/other_plugins/record.py": "the directory of the user",
    "simulate/files.py": "device files that the user names",
    # Temporary directories of tests and checks, and namespaces of their own.
    "testing/workbench/bench.py": "a temporary directory",
    "testing/workbench/dra_node.py": "a temporary directory",
    "testing/workbench/plugins.py": "a temporary directory",
    "check/directories.py": "a temporary directory",
    "check/drivers/node_files.py": "a temporary directory",
    "check/left_behind.py": "the directory of an earlier run",
    "check/supervisor.py": "a temporary directory",
    "check/checks/life_restarts.py": "a temporary directory",
    "testing/kubelet/kubelet.py": "a temporary directory",
    "testing/kubelet/linux.py": "files of /proc",
    "testing/kubelet/mounts.py": "a mount namespace",
    "check/pytest_check.py": "a temporary directory",
}


def test_files_change_only_in_known_places() -> None:
    """Other pods reach our directories: `host.shared_directory` has the rule for each step there.

    Nobody goes around it: a new module that creates, renames, locks or removes files by path fails.
    """
    found = {
        str(path.relative_to(ROOT / "src/kubedevices"))
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CHANGES_FILES
    }
    assert found == MAY_CHANGE_FILES.keys()


MAY_TOUCH_STREAMS = {
    "src/kubedevices/host/terminal.py": "prints",
    "src/kubedevices/host/unblocked_output.py": "replaces the streams",
    "src/kubedevices/cli/__init__.py": "closed streams and encodings",
    "src/kubedevices/plugin/log_lines.py": "the handler of the log, whose formatter escapes",
    "src/kubedevices/cli/node/node.py": "the text about dropped lines",
}


def streams_touched(path: Path) -> list[str]:
    """Return each place of a module that prints, or that uses stdout or stderr."""
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            name = node.func.attr if isinstance(node.func, ast.Attribute) else name
            if name in ("print", "pprint", "StreamHandler", "basicConfig", "print_exc"):
                found.append(f"{name_of(path)}:{node.lineno} {name}")
        names = {"stdout", "stderr", "__stdout__", "__stderr__"}
        owner = node.value if isinstance(node, ast.Attribute) and node.attr in names else None
        if isinstance(node, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == "sys":
            found.append(f"{name_of(path)}:{node.lineno} sys.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module == "sys":
            found += [f"{name_of(path)}:{node.lineno}" for each in node.names if each.name in names]
    return found


def test_only_the_terminal_module_prints() -> None:
    """Every text reaches stdout and stderr through `host.terminal`, which escapes it."""
    others = [path for path in SOURCES if name_of(path) not in MAY_TOUCH_STREAMS]
    assert [place for path in others for place in streams_touched(path)] == []


def test_the_modules_that_may_touch_streams_do_not_write() -> None:
    """Apart from `terminal` and the stream that never blocks, none calls `print` or `write`."""
    for name in MAY_TOUCH_STREAMS:
        if name.endswith(("terminal.py", "unblocked_output.py")):
            continue
        tree = ast.parse((ROOT / name).read_text())
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        assert not called & {"print", "write", "writelines", "buffer"}, name


LISTS_A_DIRECTORY = {
    "src/kubedevices/host/listing.py": "the place for directories of strangers",
    "src/kubedevices/host/sysfs.py": "/sys",
    "src/kubedevices/node/pods/hold_owner.py": "our state directory",
    "src/kubedevices/host/lock_holder.py": "/proc",
    "src/kubedevices/testing/kubelet/mounts.py": "the root directory of a private view",
    "src/kubedevices/explain/on_node/look_socket_owners.py": "/proc",
    "src/kubedevices/check/drivers/node_files.py": "a temporary directory",
    "src/kubedevices/explain/on_node/look_processes.py": "/proc, and units of systemd",
    "src/kubedevices/check/process_figures.py": "/proc",
    "src/kubedevices/check/busy_machine.py": "/proc",
    "src/kubedevices/check/supervisor.py": "/proc",
    "src/kubedevices/check/left_behind.py": "/proc, and the directory of a run, with a limit",
    "src/kubedevices/check/directories.py": "the directory of a run",
    "src/kubedevices/check/harness.py": "the same",
    "src/kubedevices/simulate/simulation_file.py": "files of this package",
    "src/kubedevices/expose/read_profiles.py": "files of this package",
    "src/kubedevices/cli/write/init.py": "files of this package",
    "src/kubedevices/cli/ready_plugins/simulate_nodes.py": "the pattern of a user's test",
}


def test_only_these_modules_list_a_directory() -> None:
    """Directories that strangers fill are listed by `host.listing`, which has limits."""
    ways = {"iterdir", "glob", "rglob", "listdir", "scandir", "walk", "fwalk"}
    found = {
        name_of(path)
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ways
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "ast")
    }
    assert found == LISTS_A_DIRECTORY.keys()


AWAITS_ITS_TASKS = {
    "proxy/inside_directory.py": 1,  # closes connections that nobody uses any more
    "proxy/plugin_scanner.py": 2,  # catches every error of a list; a close that fails harms nobody
    "proxy/proxied_resource.py": 2,  # one function starts and awaits both
    "serving/modes.py": 1,  # the caller of `serve` awaits it
}


def test_long_lived_tasks_are_supervised() -> None:
    """An error of a task that nobody awaits is seen by nobody: `SupervisedTasks` starts them."""
    found = {}
    for path in SOURCES:
        name = path.relative_to(ROOT / "src/kubedevices").as_posix()
        if name.startswith(("proxy/", "serving/", "rules/")):
            text = path.read_text()
            if count := text.count("create_task(") + text.count("ensure_future("):
                found[name] = count
    assert found == AWAITS_ITS_TASKS
