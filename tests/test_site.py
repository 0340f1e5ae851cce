"""The documentation as a site: every page and public name is in it, and it fetches nothing."""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import fedmx

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / ".ci" / "site" / "mkdocs.yml"
# Addresses from which a browser would fetch something when it opens the page.
FETCHED = re.compile(
    r'<(?:script|img|iframe|source|video)\b[^>]*\bsrc="(?P<src>[^"]+)'
    r'|<link\b[^>]*\brel="(?:stylesheet|icon|preconnect|preload)"[^>]*\bhref="(?P<href>[^"]+)'
    r'|<link\b[^>]*\bhref="(?P<first>[^"]+)"[^>]*\brel="(?:stylesheet|icon|preconnect|preload)"'
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    logger = logging.getLogger("mkdocs")
    before = list(logger.handlers)
    yield
    logger.handlers[:] = before


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(CONFIG), site_dir=str(folder), strict=True))
    return folder


def pages(site: Path) -> dict[str, str]:
    return {str(one.relative_to(site)): one.read_text() for one in site.rglob("*.html")}


def test_every_page_of_the_documentation_is_in_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    wanted = {str(page.relative_to(docs).with_suffix(".html")) for page in docs.rglob("*.md")}
    wanted.add("pages.html")
    assert wanted - set(pages(site)) == set()
    assert "A first experiment" in (site / "index.html").read_text()
    assert "class EightBit" in re.sub(
        r"<[^>]+>", "", (site / "examples" / "own_hook.py.html").read_text()
    )


def test_the_front_page_has_a_first_screen_and_leads_to_the_groups_of_the_index(site: Path) -> None:
    page = (site / "index.html").read_text()
    first = re.search(r'<section class="hero".*?</section>', page, re.DOTALL)[0]
    for part in ("<h1", "simulate", "report-light.png#only-light", "report-dark.png#only-dark"):
        assert part in first
    for target in ("tutorial.html", "deployment.html", "thesis.html"):
        assert f'href="{target}"' in first
    groups = re.findall(r"^## (.+)$", (ROOT / "docs" / "index.md").read_text(), re.M)
    tabs = re.findall(r'class="md-tabs__link">\s*(.+?)\s*</a>', page)
    assert tabs == ["Home", *groups]


def test_a_page_names_its_language(site: Path) -> None:
    chinese = {name for name, text in pages(site).items() if '<html lang="zh-CN"' in text}
    translated = {f"zh/{page.relative_to(site / 'zh')}" for page in (site / "zh").rglob("*.html")}
    assert chinese == translated | {"README.zh-CN.html"}


def test_every_public_name_has_its_entry_in_the_reference(site: Path) -> None:
    entries = set()
    for page in site.glob("reference-*.html"):
        entries |= set(re.findall(r'<h2 id="[\w.]+\.(\w+)"', page.read_text()))
    assert set(fedmx.__all__) - entries == {"__version__"}


def test_a_class_of_several_parts_has_the_members_of_all_parts_in_the_reference(site: Path) -> None:
    text = (site / "reference-runs.html").read_text()
    members = set(re.findall(r'<h3 id="[\w.]+\.(\w+\.\w+)"', text))
    for member in ("finish", "rounds", "latest_checkpoint"):
        assert f"RunFolder.{member}" in members
    listed = set(re.findall(r'<td><code><span title="[\w.]+\.(\w+\.\w+)"', text))
    assert "RunFolder.model_path" in listed  # an attribute of the docstring
    assert {"Server.rounds", "Server.plot"} <= members


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = [
        (name, address)
        for name, text in pages(site).items()
        for found in FETCHED.finditer(text)
        for address in found.groups()
        if address
    ]
    assert len(fetched) > len(pages(site))
    assert [one for one in fetched if re.match(r"(https?:)?//", one[1])] == []
    sheets = [one.read_text() for one in site.rglob("*.css")]
    assert [url for text in sheets for url in re.findall(r"url\((https?:[^)]+)", text)] == []


def test_the_search_works_on_pages_that_are_opened_as_files(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = {")
    assert "Where the time goes" in index
    script = (site / "iframe-worker.js").read_text()
    assert "Permission is hereby granted" in script
    assert "window.Worker=" in script
    loaded = {
        name: [
            (site / name).parent / address for address in re.findall(r'<script src="(.+?)"', text)
        ]
        for name, text in pages(site).items()
        if name != "404.html"  # only a web server shows it
    }
    without = [
        name
        for name, scripts in loaded.items()
        if not any(one.name == "iframe-worker.js" and one.exists() for one in scripts)
    ]
    assert without == []


def test_the_search_finds_pages_and_no_sources(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text().partition("=")[2].rstrip(";\n ")
    found = {one["location"].partition("#")[0] for one in json.loads(index)["docs"]}
    assert {"experiment-file.html", "reference-hooks.html", "examples/deploy/index.html"} <= found
    assert [
        one for one in sorted(found) if re.search(r"\.(py|yaml|sh|service|csv)\.html$", one)
    ] == []


def test_equations_are_set_as_equations(site: Path) -> None:
    docs = ROOT / "docs"
    for page in sorted(docs.rglob("algorithms/*.md")):
        written = len(re.findall(r"^\$\$\n", page.read_text(), re.M)) // 2
        text = (site / page.relative_to(docs).with_suffix(".html")).read_text()
        block = len(re.findall(r'<div class="equation"><math [^>]*display="block"', text))
        assert block == written, page.name
        assert "$" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL), page.name
        if page.name not in ("projected-stc.md", "robust-rules.md", "stragglers.md"):
            assert written, page.name
        if page.name not in ("compression.md", "projected-stc.md"):
            assert 'display="inline"' in text, page.name
        # Python-Markdown takes a line that begins with <math> for a block.
        assert not re.search(r"^<math", text, re.MULTILINE), page.name


def test_the_diagrams_are_those_of_the_script_and_fit_light_and_dark_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(CONFIG.parent))
    diagrams = importlib.import_module("diagrams")
    drawn = dict(diagrams.drawings())
    kept = {path.name: path.read_text() for path in diagrams.FOLDER.glob("*.svg")}
    assert kept == drawn, "run: python .ci/site/diagrams.py"
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    for name, picture in kept.items():
        assert f"diagrams/{name})" in pages
        assert "prefers-color-scheme: dark" in picture


@pytest.mark.parametrize(
    "line",
    [
        "[gone](gone.md)",
        "[nowhere](index.md#nowhere)",
        "$$\n\\begin{aligned} a &= b \\end{aligned}\n$$",
    ],
)
def test_a_broken_link_or_equation_stops_the_build(tmp_path: Path, line: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# One\n\n{line}\n")
    config = load_config(
        str(CONFIG),
        docs_dir=str(docs),
        site_dir=str(tmp_path / "site"),
        nav=None,
        plugins=[],
        extra_css=[],
        hooks=[str(CONFIG.parent / "equations.py")],
        strict=True,
    )
    with pytest.raises(Abort):
        build(config)
