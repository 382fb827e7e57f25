"""`python deploy/release/notes.py v1.2.3` prints the section of CHANGELOG.md about a version.

The script ends with an error if the tag is not the version in pyproject.toml and in the package.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section of the version; raises SystemExit if the versions differ."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    package = (root / "src/kubedevices/version.py").read_text("utf-8")
    if tag != f"v{project}" or f'VERSION = "{project}"' not in package:
        sys.exit(f"tag {tag}: pyproject.toml has {project}; version.py must have the same")
    text = (root / "CHANGELOG.md").read_text("utf-8")
    section = text.partition(f"\n## {project}\n")[2].partition("\n## ")[0].strip()
    if not section:
        sys.exit(f"CHANGELOG.md says nothing about {project}")
    return section + "\n"


if __name__ == "__main__":
    sys.stdout.write(notes(sys.argv[1]))
