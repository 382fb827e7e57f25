"""Converts settings of generic-device-plugin and smarter-device-manager into expose's.

An entry that expose cannot express is left out, and reported with its line. An entry with a
slightly different meaning in expose gives a note. Pure, except that `convert` reads the file.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.config.yaml_config import load_node
from kubedevices.config.yaml_source import SourceProblems, parse_yaml, read_yaml
from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.expose import foreign_generic as generic
from kubedevices.expose import foreign_smarter as smarter
from kubedevices.expose.config import ExposeConfig
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
    """Read `file`: settings of one of the two plugins, in any form of `foreign_sources`.

    Raises `CannotRead`, and `ConfigError` if no entry can be converted.
    """
    sources, domains, elsewhere = read_sources(file)
    resources: list[dict[str, Any]] = []
    namespaces: dict[str, None] = {}
    notes: list[str] = []
    missing = [f"{each.what}, which is not in this file" for each in elsewhere]
    left_out = [f"line {each.line}: {what}" for each, what in zip(elsewhere, missing, strict=True)]
    problems: list[ConfigProblem] = []
    for source in sources:
        work = Conversion(source.root, SourceProblems(str(file), source.root))
        namespace, found = _convert(work, source, domains)
        problems += [*work.problems, *work.report.take_mistakes()]
        left_out += work.left_out
        notes += work.notes
        if found:
            namespaces.setdefault(namespace)
            resources += found
    if problems and (not resources or len(problems) > len(left_out) - len(missing)):
        raise ConfigError(problems)
    if not resources or len(namespaces) > 1:
        root = sources[0].root if sources else read_yaml(file)
        place = SourceProblems(str(file), root).place(())
        text = (
            f"resources of several domains: {', '.join(namespaces)}; write a file for each domain"
            if resources
            else f"{missing[0]}: put both into one file"
            if missing
            else "this is not a file of generic-device-plugin or smarter-device-manager"
        )
        raise ConfigError([place._replace(problem=text)])
    document = {"version": 1, "namespace": next(iter(namespaces)), "resources": resources}
    if refusals := _refusals(document):  # for example two resources of one name
        raise ConfigError(refusals)
    return Converted(document, tuple(notes), tuple(left_out))


def _convert(
    work: Conversion, source: Source, domains: tuple[str, ...]
) -> tuple[str, list[dict[str, Any]]]:
    if source.is_off:
        work.note((), "the plugin is not enabled there (status): it serves nothing")
    if smarter.is_smarter(work.root):
        return smarter.NAMESPACE, _that_expose_reads(work, smarter.from_smarter(work))
    namespace, found = generic.from_generic(work, source.others)
    found = _that_expose_reads(work, found)
    if source.is_of_config and len(domains) > 1 and not namespace:
        work.mistake(
            (), f"pods of this file have several domains: {', '.join(domains)}",
            "write a file for each domain",
        )  # fmt: skip
    if not namespace and not source.domain and found:
        namespace = generic.namespace_of(work, source.version)
    return source.domain or namespace, found


def _that_expose_reads(work: Conversion, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the resources that expose accepts; the others are left out, with its reason."""
    if work.report.mistakes:
        return found  # a mistake in the file itself is told first
    good = []
    for each in found:
        problems = _refusals({"version": 1, "namespace": "example.com", "resources": [each]})
        work.problems += problems
        work.left_out += [
            f"expose refuses {each['name']}: {problem.key}: {problem.problem}"
            for problem in problems
        ]
        good += [] if problems else [each]
    return good


def _refusals(document: dict[str, Any]) -> list[ConfigProblem]:
    """Return what `expose --check` would say of `document`."""
    try:
        node = parse_yaml(json.dumps(document).encode(), Path("converted"))
        load_node(node, ExposeConfig, "converted")
    except ConfigError as error:
        return [*error.problems]
    return []
