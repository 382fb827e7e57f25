"""Settings of generic-device-plugin and smarter-device-manager, turned into expose's.

An entry that one of them can express and expose cannot is left out, with its line; an entry that
means something a bit different afterwards becomes a note. Pure but for reading the file.
"""

from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.builtin import foreign_generic as generic
from kubedevices.builtin import foreign_smarter as smarter
from kubedevices.builtin.conversion import Conversion
from kubedevices.builtin.foreign_sources import Source, read_sources
from kubedevices.config.yaml_source import SourceProblems, read_yaml
from kubedevices.errors import ConfigError, ConfigProblem


class Converted(NamedTuple):
    """A configuration for expose as plain data, and what a person should know about it.

    `left_out` is what is not in it, one line for each mistake.
    """

    document: dict[str, Any]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def convert(file: Path) -> Converted:
    """Read `file`: settings of one of the two plugins, or a DaemonSet, ConfigMap or argument list.

    Raises `CannotRead`, and `ConfigError` if nothing can be said in expose's words.
    """
    sources = read_sources(file)
    resources: list[dict[str, Any]] = []
    namespaces: dict[str, None] = {}
    notes: list[str] = []
    left_out: list[str] = []
    problems: list[ConfigProblem] = []
    for source in sources:
        work = Conversion(source.root, SourceProblems(str(file), source.root))
        namespace, found = _convert(work, source)
        problems += [*work.problems, *work.report.take_mistakes()]
        left_out += work.left_out
        notes += work.notes
        if found:
            namespaces.setdefault(namespace)
            resources += found
    if problems and (not resources or len(problems) > len(left_out)):
        raise ConfigError(problems)
    if not resources or len(namespaces) > 1:
        root = sources[0].root if sources else read_yaml(file)
        place = SourceProblems(str(file), root).place(())
        text = (
            f"resources of several domains: {', '.join(namespaces)}; write a file of each"
            if resources
            else "this file is neither generic-device-plugin's nor smarter-device-manager's"
        )
        raise ConfigError([place._replace(problem=text)])
    document = {"version": 1, "namespace": next(iter(namespaces)), "resources": resources}
    return Converted(document, tuple(notes), tuple(left_out))


def _convert(work: Conversion, source: Source) -> tuple[str, list[dict[str, Any]]]:
    if smarter.is_smarter(work.root):
        return smarter.NAMESPACE, smarter.from_smarter(work)
    namespace, found = generic.from_generic(work)
    return source.domain or namespace, found
