"""Converts settings of generic-device-plugin and smarter-device-manager into expose's.

An entry that expose cannot express is left out, and reported with its line. An entry with a
slightly different meaning in expose gives a note. Pure, except that `convert` reads the file.
"""

from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.config.yaml_source import SourceProblems, read_yaml
from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.expose import foreign_generic as generic
from kubedevices.expose import foreign_smarter as smarter
from kubedevices.expose.foreign_conversion import Conversion
from kubedevices.expose.foreign_sources import Source, read_sources


class Converted(NamedTuple):
    """A configuration for expose as plain data, with notes for its reader.

    `left_out` has a line for each entry that is not in the configuration.
    """

    document: dict[str, Any]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def convert(file: Path) -> Converted:
    """Read `file`: settings of one of the two plugins, or a DaemonSet, ConfigMap or argument list.

    Raises `CannotRead`, and `ConfigError` if no entry can be converted.
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
            f"resources of several domains: {', '.join(namespaces)}; write a file for each domain"
            if resources
            else "this is not a file of generic-device-plugin or smarter-device-manager"
        )
        raise ConfigError([place._replace(problem=text)])
    document = {"version": 1, "namespace": next(iter(namespaces)), "resources": resources}
    return Converted(document, tuple(notes), tuple(left_out))


def _convert(work: Conversion, source: Source) -> tuple[str, list[dict[str, Any]]]:
    if smarter.is_smarter(work.root):
        return smarter.NAMESPACE, smarter.from_smarter(work)
    namespace, found = generic.from_generic(work)
    return source.domain or namespace, found
