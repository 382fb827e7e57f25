"""What the site has of files outside of docs: README and two pages as pages, links to the others.

PROJECT_URL and PROJECT_REF say where the repository is, as for the package; without PROJECT_URL a
link to a file that is no page is only its words.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
PAGES |= {"CHANGELOG.md": "CHANGELOG.md", "SECURITY.md": "SECURITY.md"}
STYLE = """\
.rst-content table { display: block; max-width: 100%; overflow-x: auto; }
.rst-content td, .rst-content th { white-space: normal !important; }
.rst-content img { max-width: 100%; }
"""
"""A table that is wider than a small screen scrolls by itself: the theme cuts it."""
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Name headings as GitHub does, where the links were written for."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _slug
    return config


def _slug(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie beside docs."""
    for name, page in PAGES.items():
        text = _with_links((ROOT / name).read_text("utf-8"), "", page)
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "site.css", content=STYLE))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links of a page of docs lead to where the site or the repository has the file."""
    name = page.file.src_uri
    if name in PAGES.values():
        return markdown
    return _with_links(markdown, posixpath.dirname(f"docs/{name}"), name)


def _with_links(text: str, directory: str, page: str) -> str:
    """Return `text`, whose links start in `directory` of the repository, for `page` of the site."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(directory, target))
        wanted = PAGES.get(path) or (path[5:] if re.fullmatch(r"docs/.*\.md", path) else None)
        if wanted is not None:
            place = posixpath.relpath(wanted, posixpath.dirname(page) or ".")
            return f"[{words}]({place}{anchor or ''})"
        if not (url := os.environ.get("PROJECT_URL", "").rstrip("/")):
            return words
        return f"[{words}]({url}/blob/{os.environ.get('PROJECT_REF', 'main')}/{path}{anchor or ''})"

    parts = _FENCE.split(text)  # code is left as it is
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))
