"""Hooks of mkdocs: add pages that are outside of docs, and correct links to other files.

README.md, CONTRIBUTING.md, CHANGELOG.md and SECURITY.md become pages of the site. Links to other
files outside of docs lead to the repository at PROJECT_URL and PROJECT_REF. Without PROJECT_URL the
text of such a link stays without a link.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
PAGES |= {"CHANGELOG.md": "CHANGELOG.md", "SECURITY.md": "SECURITY.md"}
STYLE = """\
.rst-content table { display: block; max-width: 100%; overflow-x: auto; }
.rst-content td, .rst-content th { white-space: normal !important; }
.rst-content img { max-width: 100%; }
.wy-nav-content { max-width: 1000px; }
.rst-content p:has(+ .codehilite) > strong:only-child { position: relative; top: 16px; }
.rst-content .codehilite { background: none; border: 0; padding: 0; margin-bottom: 24px; }
.rst-content .codehilite pre { position: relative; background: #f8f8f8; padding: 12px; }
.rst-content .codehilite pre code { border: 0; background: none; padding: 0; }
.codehilite .gp { user-select: none; }
button.copy { position: absolute; top: 4px; right: 4px; font-size: 12px; opacity: 0; }
pre:hover > button.copy, button.copy:focus { opacity: 1; }
"""
"""Lets a table scroll that is wider than the screen; the theme would cut it off. The buttons are
those of copy.js.
"""
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
_OF_THE_SITE = re.compile(r"docs/.*\.(?:md|png|svg)")
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Give headings the anchors that GitHub gives them, because links in the pages use these."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _slug
    return config


def _slug(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are outside of docs."""
    for name, page in PAGES.items():
        text = _for_site((ROOT / name).read_text("utf-8"), "", page)
        files.append(File.generated(config, page, content=text))
    colours = HtmlFormatter(style="default").get_style_defs(".codehilite")
    files.append(File.generated(config, "site.css", content=colours + STYLE))
    script = Path(__file__).with_name("copy.js").read_text("utf-8")
    files.append(File.generated(config, "copy.js", content=script))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links of a page lead to a page of the site, or to a file of the repository."""
    name = page.file.src_uri
    if name in PAGES.values():
        return markdown
    return _for_site(markdown, posixpath.dirname(f"docs/{name}"), name)


def _for_site(text: str, directory: str, page: str) -> str:
    """Return `text` for `page` of the site.

    The links of `text` are relative to `directory` of the repository.
    """

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(directory, target))
        wanted = PAGES.get(path) or (path[5:] if _OF_THE_SITE.fullmatch(path) else None)
        if wanted is not None:
            place = posixpath.relpath(wanted, posixpath.dirname(page) or ".")
            return f"[{words}]({place}{anchor or ''})"
        if not (url := os.environ.get("PROJECT_URL", "").rstrip("/")):
            return words
        return f"[{words}]({url}/blob/{os.environ.get('PROJECT_REF', 'main')}/{path}{anchor or ''})"

    parts = _FENCE.split(text)  # links in fenced code stay unchanged
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))
