"""Pages from outside docs/, which pages link to: README and examples; and the navigation."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# The site opens with the README, which would have the address of docs/index.md.
ELSEWHERE = {"README.md": "index.md", "docs/index.md": "pages.md"}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "sh", ".service": "ini", ".csv": "text"}
# Sources have the words of the whole field, so that a search would find them before the pages.
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
HOMES: dict[str, str] = {}
"""The project's file of each page that is not from docs/ as it is."""

_LINK = re.compile(r"(\]\(\s*<?|<(?:img|source)[^>]* src(?:set)?=\")([^)>\s\"]+)")
_ROW = re.compile(r"^\| \[(.+?)\]\((.+?)\)", re.MULTILINE)
_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(.+?)">\s*<img src="(.+?)"(.*?)>\s*</picture>'
)
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that docs/index.md lists in the navigation, by its headings."""
    groups = (ROOT / "docs" / "index.md").read_text("utf-8").split("\n## ")[1:]
    for place, group in enumerate(groups, start=1):
        first, *sections = group.split("\n### ")
        entries = _entries(first)
        entries += [{section.partition("\n")[0]: _entries(section)} for section in sections]
        config.nav.insert(place, {group.partition("\n")[0]: entries})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files of the project that pages link to."""
    files.remove(files.src_uris["index.md"])
    homes = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    homes.append("docs/index.md")
    files.append(_generated(config, "docs/index.md"))
    unread = list(homes)
    while unread:
        home = unread.pop()
        for target in _links((ROOT / home).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
            if path not in homes and not path.startswith("docs/") and (ROOT / path).exists():
                homes.append(path)
                unread += [path] if path.endswith(".md") else []
                files.append(_generated(config, path))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its links to files of the project led to their pages."""
    uri = page.file.src_uri
    folder = posixpath.dirname(HOMES.get(uri, f"docs/{uri}"))
    here = posixpath.dirname(uri)
    kept: list[str] = []

    def keep(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    def lead(link: re.Match[str]) -> str:
        path, sign, anchor = link[2].partition("#")
        if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
            return link[0]
        target = _uri(posixpath.normpath(posixpath.join(folder, path)))
        return f"{link[1]}{posixpath.relpath(target, here or '.')}{sign}{anchor}"

    hidden = _LINK.sub(lead, _CODE.sub(keep, markdown))
    return re.sub(r"\0(\d+)\0", lambda mark: kept[int(mark[1])], hidden)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page as a phone and the switch of colours need it.

    Keys in tables have breaks after their dots, and pictures follow the switch. The front page has
    a template of its own.
    """
    html = re.sub(r"(?<=<td><code>)[\w.]+", lambda key: key[0].replace(".", ".<wbr>"), html)
    html = _PICTURE.sub(r'<img src="\2#only-light"\3><img src="\1#only-dark"\3>', html)
    if page.is_homepage:
        page.meta |= {"template": "home.html", "hide": ["navigation"]}
    return html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Return the page with its language and a name for the dialog of the search.

    The theme gives neither.
    """
    output = output.replace('role="dialog">', 'role="dialog" aria-label="Search">')
    chinese = page.file.src_uri.startswith(("zh/", "README.zh-CN"))
    return output.replace('<html lang="en"', '<html lang="zh-CN"', 1) if chinese else output


def _entries(section: str) -> list[dict[str, Any]]:
    """Return the entries of a section's table; a page with a folder of its name has its pages."""
    entries: list[dict[str, Any]] = []
    for title, target in _ROW.findall(section):
        path = posixpath.normpath(posixpath.join("docs", target))
        folder = (ROOT / path).with_suffix("")
        titles = {_title(page): f"{folder.name}/{page.name}" for page in folder.glob("*.md")}
        own = [titles[one] for one in sorted(titles, key=str.lower)]
        entries.append({title: [_uri(path), *own] if own else _uri(path)})
    return entries


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def _links(markdown: str) -> list[str]:
    """Return the relative paths that a page links to."""
    targets = [link[2].partition("#")[0] for link in _LINK.finditer(_CODE.sub("", markdown))]
    return [one for one in targets if one and not re.match(r"[a-z][a-z0-9+.-]*:", one)]


def _uri(path: str) -> str:
    """Return where the site has a file of the project."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"{path}.md"


def _shown(path: str) -> str:
    """Return a page that shows a file of the project, or what a folder of it holds."""
    target = ROOT / path
    if target.is_dir():
        names = sorted(one.name for one in target.iterdir() if not one.name.startswith(("_", ".")))
        return UNSEARCHED + "\n".join([f"# {path}/", "", *(f"* `{name}`" for name in names), ""])
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return text
    language = LANGUAGES.get(target.suffix, "text")
    return f"{UNSEARCHED}# {target.name}\n\n`{path}`\n\n````{language}\n{text}````\n"


def _generated(config: MkDocsConfig, path: str) -> File:
    """Return the page of a file or folder of the project."""
    HOMES[_uri(path)] = path
    content, inclusion = _shown(path), InclusionLevel.NOT_IN_NAV
    return File.generated(config, _uri(path), content=content, inclusion=inclusion)
