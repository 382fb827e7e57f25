"""CDI files that another program wrote to end or to fill every process that reads the directory."""

import json
import time
from pathlib import Path

import pytest

from kubedevices.config.documents.yaml_text import STRANGER
from kubedevices.host import cdi_inventory, cdi_specs
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.host.cdi_specs import read_registry
from kubedevices.values.cdi import CdiDevice, CdiSpec, ContainerEdits, SpecFile
from tests.command_line import CommandLine

MIB = 2**20
KIND = "v.com/c"
DEVICE = CdiDevice("one", container_edits=ContainerEdits(env=("A=1",)))
BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
MERGES = "k: &a {x: y}\n" + "m: {<<: *a}\n" * 9000
LISTS = '{"a":[' + "[]," * 1_900_000 + "[]]}"

HOSTILE = {
    "25 KB of brackets.yaml": "[" * 25_000,
    "25 KB of brackets.json": '{"a":' + "[" * 25_000,
    "1 MiB of brackets.yaml": "[" * MIB,
    "1 MiB of brackets.json": '{"a":' + "[" * (MIB - 5),
    "1 MiB of mappings.yaml": "{a: " * (MIB // 4),
    "1 MiB of dashes.yaml": "- " * (MIB // 2),
    "aliases.yaml": BILLION,
    "aliases.json": BILLION,
    "merges.yaml": MERGES,
    "values.yaml": "[" + "a," * (MIB // 2 - 1) + "]",
    "5.8 MiB.json": LISTS,
    "5.8 MiB.yaml": LISTS,
    "kubedevices_v.com-c.json": LISTS,
    "kubedevices_w.com-c.json": '{"a":' + "[" * (MIB - 5),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_reader_of_the_directory_survives(
    name: str, tmp_path: Path, cli: CommandLine
) -> None:
    """A plugin at its start and at Allocate, a driver, and the verbs that read CDI files."""
    (tmp_path / name).write_text(HOSTILE[name])
    before = time.process_time()
    inventory = CdiInventory(tmp_path, read_also=())
    inventory.publish({KIND: [DEVICE]})
    inventory.remove_dead(["v.com"])
    assert inventory.ensure([f"{KIND}=one"]) == (f"{KIND}=one",)
    inventory.close()
    cdi_specs.remove_transient(tmp_path, KIND)
    assert cdi_specs.read_registry([tmp_path]).explain(f"{KIND}=one").resolves
    cli("cdi", "list", "--cdi-dir", tmp_path)
    cli("cdi", "validate", tmp_path, code=0 if name.startswith("kubedevices_v") else 1)
    assert f"{KIND}=one" in cli("cdi", "resolve", f"{KIND}=one", "--cdi-dir", tmp_path).out
    assert time.process_time() - before < 20


def test_a_plugin_reads_few_bytes_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond 2 MiB of their files, the plugin reads no more and says so once."""
    for number in range(8):
        text = f'{{"cdiVersion":"0.5.0","kind":"w{number}.com/c","devices":[]}}'
        (tmp_path / f"{number}.json").write_text(text.ljust(300_000))
    read: list[str] = []
    original = cdi_specs.read_spec_file

    def reading(path: Path) -> SpecFile:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(cdi_specs, "read_spec_file", reading)
    inventory = CdiInventory(tmp_path, read_also=())
    inventory.publish({KIND: [DEVICE]})
    assert len(read) * 300_000 <= cdi_inventory.FOREIGN_LIMIT
    assert read == [f"{number}.json" for number in range(6)]
    inventory.ensure([f"{KIND}=one"])
    inventory.close()
    assert len([each for each in caplog.records if "are not read" in each.getMessage()]) == 1


def test_a_file_of_a_stranger_has_a_limit(tmp_path: Path) -> None:
    """1 MiB, also if its content is valid; our own files may be larger."""
    text = '{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"a","containerEdits":{}}]}'
    for name in ("a.json", "a.yaml", "kubedevices_v.com-c.json"):
        path = tmp_path / name
        path.write_text(text.ljust(STRANGER.size + 1))
        problem = cdi_specs.read_spec_file(path).problem
        is_ours = name.startswith(cdi_specs.PREFIX)
        assert ("more than 1048576 bytes" in problem) is not is_ours


def test_the_kind_of_our_file_is_in_its_beginning(tmp_path: Path) -> None:
    """A process that serves others reads 4 KiB of a file with our name, and no other form."""
    path = tmp_path / "kubedevices_v.com-c.json"
    cdi_specs.write_text(path, cdi_specs.text_of(CdiSpec(kind=KIND, devices=(DEVICE,))))
    assert cdi_specs.kind_of_our_file(path) == KIND
    path.write_text(f'{{"devices": [], "kind": "{KIND}"}}')
    assert cdi_specs.kind_of_our_file(path) == ""
    assert cdi_specs.kind_of_our_file(tmp_path / "missing") == ""


def test_many_files_share_one_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour that writes more files instead of larger ones: those beyond are named."""
    monkeypatch.setattr(cdi_specs, "_ALL_STRANGERS", 3000)
    device = {"name": "d", "containerEdits": {"env": ["A=" + "b" * 900]}}
    for number in range(5):
        content = {"cdiVersion": "0.6.0", "kind": f"v{number}.com/c", "devices": [device]}
        (tmp_path / f"f{number}.json").write_text(json.dumps(content))
    (tmp_path / f"{cdi_specs.PREFIX}ours.json").write_text(json.dumps(content))
    read = {Path(file.path).name: file for file in read_registry([tmp_path]).files}
    left_out = [name for name, file in read.items() if file.spec is None]
    assert left_out == ["f2.json", "f3.json", "f4.json"], "ours count for themselves"
    assert all("more than 8 MiB together" in read[each].problems[0].problem for each in left_out)
