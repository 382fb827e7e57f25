"""`kubedevices init`: writes the project of a plugin, with tests, image, manifests and CI."""

import argparse
import keyword
import os
import re
import sys
from importlib import metadata, resources
from pathlib import Path

from kubedevices import __version__
from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import CannotAsk, InvalidResourceName, UsageError
from kubedevices.host.terminal import print_line
from kubedevices.values.resource_name import explain_resource_name

NAME = "init"
HELP = """\
write the project of a plugin: code, tests, image, manifests, CI

Writes a directory NAME with a plugin for the device files NAME*. The plugin passes its tests and
`kubedevices check` without a change. Existing files are not overwritten.
"""
EXAMPLES = """\
examples:
  kubedevices init widget --domain example.com     write ./widget, a plugin for example.com/widget
  cd widget && python -m pytest                    run the tests of the plugin
"""
_NAME = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")
_WHERE = {
    "plugin.py": "{module}.py",
    "test_plugin.py": "tests/test_{module}.py",
    "ci.yml": ".github/workflows/test.yml",
    "gitignore": ".gitignore",
}
"""The path of a template whose file does not have the name of the template."""
_TEST_DEVICES = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("name", metavar="NAME", help="a-z, 0-9 and '-', for example widget")
    parser.add_argument(
        "--domain",
        default="example.com",
        help="the part of the resource name before the slash (default: %(default)s)",
    )
    parser.add_argument(
        "--directory", type=some_path, metavar="DIR", help="where to write (default: NAME)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the files and print the next command."""
    files = project(args.name, args.domain)
    directory: Path = args.directory or Path(args.name)
    if there := [name for name in files if os.path.lexists(directory / name)]:
        raise CannotAsk(f"{directory / there[0]} exists: init overwrites nothing")
    for name, text in files.items():
        path = directory / name
        try:
            _create(directory, Path(name), text)
        except OSError as error:
            raise CannotAsk(f"cannot write {path}: {error.strerror}") from error
        print_line(str(path))
    next_one = f"cd {directory} && pip install pytest && python -m pytest"
    print_line(f"Next: {next_one} (README.md has the other commands)")
    return 0


def _create(directory: Path, name: Path, text: str) -> None:
    """Write a new file; raises `OSError` if a file or a link has its name or that of its folder."""
    from kubedevices.host.shared_directory import SharedDirectory

    folder = SharedDirectory(directory, *name.parent.parts)
    folder.create(mode=0o777)
    with folder.opened() as place:
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name.name, new, 0o666, dir_fd=place), "w", encoding="utf-8") as file:
            file.write(text)


def project(name: str, domain: str) -> dict[str, str]:
    """Return path to text of every file; raises `UsageError` for an impossible name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a project name: use a-z, 0-9 and '-'")
    if what := _taken_by(name.replace("-", "_")):
        raise UsageError(
            f"{name!r} is not a project name: it would be {what}; choose another, for example "
            f"{name}-devices"
        )
    if problem := explain_resource_name(f"{domain}/{name}"):
        raise InvalidResourceName(f"{domain}/{name}", problem)
    module = name.replace("-", "_")
    words = {
        "name": name,
        "module": module,
        "class": "".join(part.capitalize() for part in name.split("-")) + "Scanner",
        "resource": name,
        "domain": domain,
        "version": __version__,
    }
    files = {}
    for template in resources.files("kubedevices.cli.write").joinpath("project").iterdir():
        stem = template.name.removesuffix(".txt")
        text = template.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        files[_WHERE.get(stem, stem).format(module=module)] = text
    for number in range(_TEST_DEVICES):
        files[f"test-devices/{name}{number}"] = ""
    return {**files, "deploy.yaml": _manifests(words)}


def _taken_by(module: str) -> str:
    """Return what else in Python has the name of a module; empty if nothing has."""
    if keyword.iskeyword(module):
        return "a keyword of Python, which no module can be called"
    if module in sys.stdlib_module_names:
        return f"imported in place of Python's own module {module}"
    owners = metadata.packages_distributions().get(module, ())
    if module in {"kubedevices", "tests"} or owners:
        owner = f" of the package {owners[0]}" if owners else ""
        return f"imported in place of the module {module}{owner}, or the other way round"
    return ""


def _manifests(words: dict[str, str]) -> str:
    from kubedevices.cli.shared.output import manifest_yaml
    from kubedevices.manifests.deployment import Deployment, HostMount
    from kubedevices.manifests.workload import documents

    deployment = Deployment(
        "run",
        f"localhost/{words['name']}:0.1.0",
        name=words["name"],
        arguments=(
            *(f"{words['module']}:{words['class']}", "--domain", words["domain"]),
            *("--arg", "dev=/host/dev"),
        ),
        mounts=(HostMount("/dev", "/host/dev"),),
    )
    return manifest_yaml(documents(deployment))
