"""What of the metadata depends on where the repository is: PROJECT_URL, a variable of the build.

Without it there are no links at all: whoever builds for themselves has no page to lead to.
"""

import os
import re
from pathlib import Path

from setuptools import setup

URL = os.environ.get("PROJECT_URL", "").rstrip("/")
REF = os.environ.get("PROJECT_REF", "main")
PAGES = {"Source": "", "Documentation": "/tree/{ref}/docs", "Issues": "/issues"}
PAGES |= {"Changelog": "/blob/{ref}/CHANGELOG.md"}


def long_description(text: str) -> str:
    """Return README with links that work outside of the repository, or with none."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        return f"[{words}]({URL}/blob/{REF}/{target})" if URL else words

    text = re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", link, text)
    return re.sub(r"^<!-- .* -->\n", "", text, flags=re.MULTILINE)


setup(
    long_description=long_description(Path(__file__).with_name("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
    project_urls={name: URL + path.format(ref=REF) for name, path in PAGES.items()} if URL else {},
)
