"""Files of generic-device-plugin and smarter-device-manager, turned into expose's.

What one of them can say and expose cannot is a mistake with its place; what means something a bit
different afterwards becomes a note. Pure but for reading the file.
"""

from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.builtin import foreign_generic as generic
from kubedevices.builtin import foreign_smarter as smarter
from kubedevices.builtin.conversion import Conversion
from kubedevices.config.yaml_source import Report, read_yaml


class Converted(NamedTuple):
    """A configuration for expose as plain data, and what a person should know about it."""

    document: dict[str, Any]
    notes: tuple[str, ...]


def convert(file: Path) -> Converted:
    """Read `file` in whichever of the two formats it is.

    Raises `CannotRead`, and `ConfigError` for what cannot be said in expose's words.
    """
    root = read_yaml(file)
    work = Conversion(root, Report(str(file), root))
    if smarter.is_smarter(root):
        namespace, resources = smarter.NAMESPACE, smarter.from_smarter(work)
    else:
        namespace, resources = generic.from_generic(work)
    work.report.raise_mistakes()
    if not resources:
        work.mistake(
            (), "this file is neither generic-device-plugin's nor smarter-device-manager's"
        )
    work.report.raise_mistakes()
    document = {"version": 1, "namespace": namespace, "resources": resources}
    return Converted(document, tuple(work.notes))
