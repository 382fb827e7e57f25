"""A release: one version everywhere, metadata with working links, and secure workflows."""

import os
import re
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest
import yaml
from deploy.release.notes import notes

from kubedevices import __version__
from tests.docs.pages import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
READ_METADATA = """
import sys
from distutils.core import run_setup
run_setup("setup.py", stop_after="config").metadata.write_pkg_file(sys.stdout)
"""


def metadata(**variables: str) -> "dict[str, list[str]]":
    """Return the metadata of the wheel; the long description is `body`."""
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools" + READ_METADATA],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    message = message_from_string(done.stdout)
    fields: dict[str, list[str]] = {"body": [str(message.get_payload())]}
    for name, value in message.items():
        fields.setdefault(name, []).append(str(value))
    return fields


def test_the_changelog_has_notes_for_this_version() -> None:
    """pyproject.toml, the package and CHANGELOG.md agree. Another tag is refused."""
    assert notes(f"v{__version__}").strip()
    for tag in ("v9.9.9", __version__, "latest"):
        with pytest.raises(SystemExit, match=r"must have the same"):
            notes(tag)


def test_a_version_without_notes_is_refused(short_dir: Path) -> None:
    """Users look for changes in the notes."""
    (short_dir / "pyproject.toml").write_text('[project]\nversion = "2.0"\n')
    (short_dir / "src/kubedevices").mkdir(parents=True)
    (short_dir / "src/kubedevices/version.py").write_text('VERSION = "2.0"\n')
    (short_dir / "CHANGELOG.md").write_text("# Changelog\n\n## 2.0\n\n## 1.0\n\n* old\n")
    with pytest.raises(SystemExit, match=r"says nothing about 2\.0"):
        notes("v2.0", short_dir)


def test_the_description_has_absolute_links() -> None:
    """The links lead to the repository of PROJECT_URL."""
    fields = metadata(PROJECT_URL="https://code.example.com/kd/", PROJECT_REF="v1")
    body = fields["body"][0]
    assert "(https://code.example.com/kd/blob/v1/docs/tutorial.md)" in body
    assert "](docs/" not in body
    urls = dict(url.split(", ") for url in fields["Project-URL"])
    assert urls["Source"] == "https://code.example.com/kd"
    assert urls["Changelog"] == "https://code.example.com/kd/blob/v1/CHANGELOG.md"
    assert fields["Description-Content-Type"] == ["text/markdown"]
    assert fields["Version"] == [__version__]


def test_without_a_repository_the_description_has_no_links() -> None:
    """A link without a target is worse than no link."""
    fields = metadata(PROJECT_URL="")
    assert "Project-URL" not in fields
    assert "](docs/" not in fields["body"][0]
    assert "**Write:** tutorial, policies" in fields["body"][0]


def test_zizmor_finds_no_mistake_in_the_workflows() -> None:
    """For example, no injected text and no permission that is not needed."""
    zizmor = Path(sys.executable).with_name("zizmor")
    config = ROOT / "deploy/release/zizmor.yml"
    files = [*map(str, WORKFLOWS), "action.yml"]
    command = [str(zizmor), "--offline", "--no-progress", "--config", str(config), *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_job_of_a_workflow_says_its_permissions(path: Path) -> None:
    """No job has the permissions that the repository gives by default."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    assert all(job["permissions"] is not None for job in jobs.values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_names_existing_files(path: Path) -> None:
    """The scripts and Containerfiles of our repository in its steps, and the targets of make."""
    text = path.read_text()
    files = re.findall(r"(?<![\w./-])(?:deploy|tests|src)/[\w./-]*\w", text)
    assert not [name for name in files if not (ROOT / name).exists()]
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", text):
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target


def test_a_release_runs_the_notes_and_builds_the_image() -> None:
    """Its workflow has both files in its steps."""
    text = (ROOT / ".github/workflows/release.yml").read_text()
    assert "deploy/release/notes.py" in text
    assert "deploy/image/Containerfile" in text
