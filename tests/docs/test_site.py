"""The documentation as a site: every page is in the site, and every link has a target."""

import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from deploy.site.dashboard_picture import Series, drawn
from deploy.site.pictures import pictures

from kubedevices.manifests.dashboard import dashboard
from tests.docs.pages import ROOT
from tests.host_needs import require

DEADLINE = 100
PAGES = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
REPOSITORY = "https://git.example.com/us/kubedevices"


class Links(HTMLParser):
    """The links of a page, and the anchors that the page has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()
        self.pictures: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if place := given.get("id"):
            self.places.add(place)
        if tag == "img" and (source := given.get("src")):
            self.pictures.add(unquote(source))
        if tag == "a" and (target := given.get("href")):
            self.targets.add(unquote(target))


def mkdocs() -> Path:
    require("mkdocs")
    return Path(sys.executable).parent / "mkdocs"


def build(site: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command of `make site`."""
    environment = {name: os.environ[name] for name in os.environ if name[:8] != "PROJECT_"}
    return subprocess.run(
        [mkdocs(), "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("site")
    done = build(found)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return found


def test_pictures_and_names_of_files_are_visible(site: Path) -> None:
    """Each picture of a page is shown from the site itself, and each file has its name above it."""
    shown = set()
    for page in ("index", "architecture", "conformance", "observe", "troubleshoot"):
        text = (site / f"{page}.html").read_text()
        pictures = Links(text).pictures
        assert pictures, page
        shown |= {(site / each).resolve() for each in pictures}
    assert {each.name for each in shown} == {
        *("way-of-a-device.svg", "check.svg", "report.png", "dashboard.svg", "devices.svg"),
        "cluster.svg",
    }
    assert all(each.is_file() for each in shown)
    named = "<p><strong><code>test_widget_driver.py</code></strong></p>"
    assert named in (site / "dra.html").read_text()


def test_every_page_is_in_the_site_and_in_its_search(site: Path) -> None:
    """README too: it is the start page."""
    for page in PAGES:
        assert (site / page).with_suffix(".html").is_file(), page
    text = (site / "index.html").read_text()
    assert "<h1" in text
    assert re.findall('src="https?:', text) == []  # no page loads files from another host
    index = json.loads((site / "search/search_index.json").read_text())
    found = {each["location"].partition("#")[0] for each in index["docs"]}
    assert {page.removesuffix(".md") + ".html" for page in PAGES} <= found


def test_the_pictures_show_the_output_of_the_commands() -> None:
    """Numbers such as times may differ. `make pictures` creates the pictures again."""
    for name, text in pictures().items():
        committed = (ROOT / "docs/images" / name).read_text()
        assert masked(committed) == masked(text), f"run `make pictures`: {name} is out of date"


def test_the_picture_of_the_dashboard_has_its_panels() -> None:
    """With the pods of the table and a line for each answer, named in a legend."""
    committed = (ROOT / "docs/images/dashboard.svg").read_text()
    titles = map(html.unescape, re.findall('font-weight="bold">(.+?)</text>', committed))
    assert [each["title"] for each in dashboard()["panels"]] == [*titles], "run `make pictures`"
    health = Series("example.com/gpu <Healthy>", {}, [(0, 8), (30, 7), (60, math.nan)])
    holder = Series("", {"pod_namespace": "default", "pod_name": "train"}, [(60, 2)])
    text = drawn({6: [health], 11: [holder]})
    ET.fromstring(text)
    assert "example.com/gpu &lt;Healthy&gt;</text>" in text
    assert len(re.findall(r'points="\d+,\d+ \d+,\d+"', text)) == 1
    assert ">train</text>" in text


def masked(text: str) -> str:
    return re.sub(r"[0-9]+(\.[0-9]+)?", "#", text)


def test_wide_tables_can_be_scrolled(site: Path) -> None:
    """On a small screen the theme would cut wide tables."""
    assert "overflow-x: auto" in (site / "site.css").read_text()
    assert 'href="site.css"' in (site / "reference.html").read_text()


def test_code_has_colours_and_a_button_that_copies_the_commands(site: Path) -> None:
    """Without a server or another host: Pygments marks prompts, and a small script adds buttons."""
    text = (site / "k3s.html").read_text()
    assert '<span class="gp">$ </span>' in text
    assert 'src="copy.js"' in text
    assert ".codehilite .gp" in (site / "site.css").read_text()
    assert 'line.startsWith("$ ")' in (site / "copy.js").read_text()
    assert 'src="../copy.js"' in (site / "development/tour.html").read_text()


def test_every_link_leads_to_a_page_or_a_heading(site: Path) -> None:
    """In the HTML of the site. Without PROJECT_URL no link leads to a source file."""
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            place, _, heading = target.partition("#")
            if re.match(r"\w+:|$", place) and not heading:
                continue
            there = (path.parent / place).resolve() if place else path
            if there not in pages or (heading and heading not in pages[there].places):
                broken.append(f"{path.name}: {target}")
    assert [each for each in broken if not each.startswith("404.html")] == []


def test_links_to_sources_lead_to_the_repository(tmp_path: Path) -> None:
    """To the repository PROJECT_URL at PROJECT_REF. Code with brackets is not changed."""
    done = build(tmp_path / "site", PROJECT_URL=REPOSITORY, PROJECT_REF="v9")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "site/ci.html").read_text()
    assert f'href="{REPOSITORY}/blob/v9/examples/ci/gitlab.yml"' in text


def test_a_broken_link_and_a_page_outside_the_menu_fail_the_build(tmp_path: Path) -> None:
    """Each has its own message."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copytree(ROOT / "deploy/site", copy / "deploy/site")
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, copy)
    (copy / "docs/extra.md").write_text("# Extra\n\n[x](none.md) [y](install.md#none)\n")
    done = subprocess.run(
        [mkdocs(), "build", "--strict"],
        cwd=copy, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    for text in ("- extra.md", "'none.md'", "'#none'"):
        assert text in done.stderr, done.stderr
