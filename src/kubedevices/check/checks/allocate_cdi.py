"""Checks CDI names in Allocate answers, and the CDI files that define them."""

from collections.abc import Iterable

from kubedevices.check.answers import shorten
from kubedevices.check.check import FAIL, WARN, Broken, Harm, NotTried, Theme
from kubedevices.check.plugin import Plugin
from kubedevices.errors import InvalidCdiAnnotation
from kubedevices.errors.words import counted
from kubedevices.host.cdi_specs import read_registry
from kubedevices.values.cdi import (
    CdiRegistry,
    SpecFile,
    explain_name,
    minimum_version,
    parse_annotations,
    readers_too_old_for,
)

theme = Theme("allocate", needs=("registration.options", "allocate.answers"), harm=Harm.POD)


async def _names(plugin: Plugin) -> list[str]:
    """Return all CDI names of all answers, also from annotations; raises `NotTried` for none."""
    found: set[str] = set()
    for answer in await plugin.answers():
        found.update(answer.cdi_devices)
        try:
            _, annotated = parse_annotations(answer.annotations)
            found.update(annotated)
        except InvalidCdiAnnotation as error:
            raise Broken(str(error)) from error
    if not found:
        raise NotTried("its answers have no CDI names")
    return sorted(found)


def _files_of(names: Iterable[str], registry: CdiRegistry) -> list[SpecFile]:
    """Return the files with the kinds of `names`, and files that are too broken to have a kind."""
    kinds = {name.partition("=")[0] for name in names}
    return [file for file in registry.files if file.kind in kinds or not file.kind]


@theme.check(
    "cdi-names",
    FAIL,
    suffers="The container cannot be created: unresolvable CDI devices.",
    source="CDI specification: qualified names, vendor/class=name; kubelets do not check them",
    mend="Map device IDs to valid names; PCI addresses and UUIDs are valid.",
)
async def cdi_names(plugin: Plugin) -> str:
    """The CDI names in the answers are valid."""
    names = await _names(plugin)
    for name in names:
        if problem := explain_name(name):
            raise Broken(f"{name!r}: {problem}")
    return shorten(names)


@theme.check(
    "cdi-files",
    FAIL,
    needs=("allocate.cdi-names",),
    suffers="Runtimes skip an invalid file; they report only that its devices are unresolvable.",
    source="CDI specification and the library inside containerd, CRI-O, podman and docker",
    mend="Test the file with `kubedevices cdi validate`. Write a temporary file and rename it when "
    "it is complete.",
)
async def cdi_files(plugin: Plugin) -> str:
    """The CDI files that define the names are valid."""
    registry = read_registry(plugin.harness.cdi_dirs())
    files = _files_of(await _names(plugin), registry)
    broken = [file for file in files if file.problem]
    if broken:
        raise Broken(
            f"{broken[0].path.rpartition('/')[2]}: {broken[0].problem}",
            "\n".join(f"{file.path}: {file.problem}" for file in broken[1:]),
        )
    return counted(len(files), "file")


@theme.check(
    "cdi-resolvable",
    FAIL,
    needs=("allocate.cdi-names", "allocate.cdi-files"),
    suffers="The container cannot be created: unresolvable CDI devices.",
    source="CDI specification: runtimes look up names in /etc/cdi and /var/run/cdi",
    mend="Write the file before you list the device; do not remove it while pods use the device.",
    seen="SR-IOV (#576: each pool overwrites the file of the one before)",
)
async def cdi_resolvable(plugin: Plugin) -> str:
    """Files in the CDI directories define all CDI names in the answers."""
    registry = read_registry(plugin.harness.cdi_dirs())
    names = await _names(plugin)
    for name in names:
        explanation = registry.explain(name)
        if not explanation.resolves:
            raise Broken(f"{name}: {explanation.reason}")
    return counted(len(names), "name")


@theme.check(
    "cdi-version",
    WARN,
    needs=("allocate.cdi-names", "allocate.cdi-files"),
    suffers="Runtimes that do not know the version ignore the file, so its devices do not exist.",
    source="measured: podman 4.3 reads up to 0.5.0, containerd 1.7 and podman 5.4 up to 0.8.0",
    mend="Write the lowest version that supports the content of the file, not a fixed version.",
)
async def cdi_version(plugin: Plugin) -> str:
    """A CDI file has the lowest version that supports its content."""
    registry = read_registry(plugin.harness.cdi_dirs())
    seen = set()
    for file in _files_of(await _names(plugin), registry):
        assert file.spec
        version, enough = file.spec.version.removeprefix("v"), minimum_version(file.spec)
        seen.add(version)
        if version != enough:
            blind = ", ".join(reader.runtime for reader in readers_too_old_for(version))
            raise Broken(
                f"version {version}, but {enough} is enough"
                + (f", so {blind} cannot read it" if blind else "")
            )
    return ", ".join(sorted(seen))
