"""All CDI files of a host together: which names resolve, and why a name does not.

`host.cdi_specs` reads the files. The rules of precedence are those of the library in containerd,
CRI-O, podman and docker, so that the result is the behaviour of a runtime.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kubedevices.errors import CdiProblem, UnresolvableCdiDevices
from kubedevices.errors.words import closest, some_of
from kubedevices.values.cdi.names import CdiName, explain_name
from kubedevices.values.cdi.values import CdiDevice, CdiSpec, ContainerEdits
from kubedevices.values.cdi.versions import readers_too_old_for

_OTHERS_MAY_READ = 0o004


@dataclass(frozen=True)
class SpecFile:
    """A file of a CDI directory: its content, or its problems.

    `priority` is the index of its directory. An invalid file has a `kind` too, if it could be read.
    `mode` is the file mode, None if the file was not read from disk.
    """

    path: str
    priority: int = 0
    spec: CdiSpec | None = None
    problems: tuple[CdiProblem, ...] = ()
    kind: str = ""
    mode: int | None = None

    @property
    def problem(self) -> str:
        """All problems in one line; empty for a valid file."""
        return "; ".join(map(str, self.problems))


@dataclass(frozen=True)
class Definition:
    """The file and the device that define a name."""

    name: CdiName
    file: SpecFile
    spec: CdiSpec
    device: CdiDevice


@dataclass(frozen=True)
class Explanation:
    """Why a name resolves or not; `warnings` say which runtimes may not find the device."""

    name: str
    definition: Definition | None
    reason: str
    warnings: tuple[str, ...] = ()

    @property
    def resolves(self) -> bool:
        """Whether a runtime finds the device."""
        return self.definition is not None


@dataclass(frozen=True)
class CdiRegistry:
    """The devices that a runtime finds in a set of files.

    `conflicts`: name → paths in the same directory that all define the name. `overridden`: name →
    paths whose definition a directory of higher priority replaces. `directories` and `ignored` are
    only for explanations.
    """

    files: tuple[SpecFile, ...] = ()
    directories: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    directory_errors: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Definition] = field(init=False)
    conflicts: Mapping[str, tuple[str, ...]] = field(init=False)
    overridden: Mapping[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Find the definition of each name, the conflicts and the overridden files."""
        devices: dict[str, Definition] = {}
        conflicts: dict[str, list[str]] = {}
        overridden: dict[str, list[str]] = {}
        for definition in _definitions(self.files):
            name = str(definition.name)
            other = devices.get(name)
            if other is not None and other.file.priority == definition.file.priority:
                paths = conflicts.setdefault(name, [other.file.path])
                paths.append(definition.file.path)
                continue
            if other is not None:
                overridden.setdefault(name, []).append(other.file.path)
            devices[name] = definition
        # Runtimes ignore a name with a conflict in any directory, even if a directory of higher
        # priority defines the name once.
        for name in conflicts:
            del devices[name]
        put = object.__setattr__
        put(self, "devices", MappingProxyType(devices))
        put(self, "conflicts", {name: tuple(paths) for name, paths in conflicts.items()})
        put(self, "overridden", {name: tuple(paths) for name, paths in overridden.items()})

    @property
    def errors(self) -> Mapping[str, tuple[str, ...]]:
        """Path → all problems of this file or directory, conflicts too."""
        found: dict[str, list[str]] = {path: [text] for path, text in self.directory_errors.items()}
        for file in self.files:
            if file.problems:
                found.setdefault(file.path, []).extend(map(str, file.problems))
        for name, paths in self.conflicts.items():
            for path in paths:
                others = ", ".join(other for other in paths if other != path)
                found.setdefault(path, []).append(f"{name} is also defined in {others}")
        return {path: tuple(texts) for path, texts in found.items()}

    def resolve(self, names: Iterable[str]) -> tuple[Definition, ...]:
        """Return the definitions in order; raises `UnresolvableCdiDevices` with all other names."""
        wanted = tuple(names)
        missing = {name: self.explain(name).reason for name in wanted if name not in self.devices}
        if missing:
            raise UnresolvableCdiDevices(missing)
        return tuple(self.devices[name] for name in wanted)

    def edits(self, names: Iterable[str]) -> ContainerEdits:
        """Return the edits of all names; the edits of a file come once, before its first device."""
        result = ContainerEdits()
        seen: set[str] = set()
        for definition in self.resolve(names):
            if definition.file.path not in seen:
                seen.add(definition.file.path)
                result = result.plus(definition.spec.container_edits)
            result = result.plus(definition.device.container_edits)
        return result

    def explain(self, name: str) -> Explanation:
        """Return where `name` is defined or why it is not, with warnings."""
        definition = self.devices.get(name)
        if definition is None:
            return Explanation(name, None, self._reason(name))
        reason = f"defined in {definition.file.path}"
        if name in self.overridden:
            reason += f", which overrides {', '.join(self.overridden[name])}"
        return Explanation(name, definition, reason, _warnings(definition))

    def _reason(self, name: str) -> str:
        if problem := explain_name(name):
            return problem
        if name in self.conflicts:
            return f"defined more than once in one directory: {', '.join(self.conflicts[name])}"
        wanted = CdiName.parse(name)
        kind = wanted.kind
        broken = [file for file in self.files if file.problems and file.kind == kind]
        if broken:
            return "; ".join(f"{file.path} is invalid: {file.problem}" for file in broken)
        known = [each for each in self.devices.values() if each.name.kind == kind]
        if known:
            paths = ", ".join(dict.fromkeys(each.file.path for each in known))
            names = [each.name.device for each in known]
            return f"no such device of {kind} in {paths}; {_suggest(wanted.device, names)}"
        return self._no_such_kind(kind)

    def _no_such_kind(self, kind: str) -> str:
        reason = f"no file defines the kind {kind} (looked in {', '.join(self.directories)}"
        kinds = sorted({each.name.kind for each in self.devices.values()})
        reason += f"; {_suggest(kind, kinds)})" if kinds else ", which define no device)"
        broken = [file for file in self.files if file.problems and not file.kind]
        for file in broken:
            reason += f"; {file.path} is invalid: {file.problem}"
        for path, text in self.directory_errors.items():
            reason += f"; {path}: {text}"
        if self.ignored:
            reason += (
                f"; not read, because they do not end in .json or .yaml: {', '.join(self.ignored)}"
            )
        return reason


def _definitions(files: Sequence[SpecFile]) -> Iterable[Definition]:
    for file in sorted(files, key=lambda each: (each.priority, each.path)):
        if file.spec is not None:
            for device in file.spec.devices:
                yield Definition(CdiName.of(file.spec.kind, device.name), file, file.spec, device)


def _suggest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    if meant := closest(name, names):
        return f"did you mean {meant}?"
    return f"known: {some_of(names)}"


def _warnings(definition: Definition) -> tuple[str, ...]:
    version, mode = definition.spec.version.removeprefix("v"), definition.file.mode
    found = [
        f"{reader.runtime} reads files up to version {reader.newest}, this file "
        f"has version {version}: it does not see the device"
        for reader in readers_too_old_for(version)
    ]
    if mode is not None and not mode & _OTHERS_MAY_READ:
        found.append(f"the file has mode {mode & 0o777:04o}: engines without root cannot read it")
    return tuple(found)
