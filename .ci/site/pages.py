"""Pages from outside docs/: the site also shows what pages link to, README and examples."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent
OWN_PAGES = [
    "README.md",
    "README.zh-CN.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/deploy/README.md",
    "examples/docker/README.md",
    "examples/network/README.md",
]
# The site opens with the README, which would have the address of docs/index.md.
ELSEWHERE = {"README.md": "index.md", "docs/index.md": "pages.md"}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "sh", ".service": "ini", ".csv": "text"}
# Sources have the words of the whole field, so that a search would find them before the pages.
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
HOMES: dict[str, str] = {}
"""The project's file of each page that is not from docs/ as it is."""

_LINK = re.compile(r"(\]\(\s*<?|<(?:img|source)[^>]* src(?:set)?=\")([^)>\s\"]+)")
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the algorithms in the navigation."""
    folder = ROOT / "docs" / "algorithms"
    titles = {
        path.name: path.read_text("utf-8").partition("\n")[0][2:] for path in folder.glob("*.md")
    }
    for section in config.nav or []:
        for entry in section.get("Reference", ()):
            if "Algorithms" in entry:
                names = sorted(titles, key=lambda name: titles[name].lower())
                entry["Algorithms"] += [f"algorithms/{name}" for name in names]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files of the project that pages link to, the style sheet and the script."""
    files.remove(files.src_uris["index.md"])
    homes = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in ["docs/index.md", *OWN_PAGES]:
        homes.append(path)
        files.append(_generated(config, path))
    unread = list(homes)
    while unread:
        home = unread.pop()
        for target in _links((ROOT / home).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
            if path not in homes and not path.startswith("docs/") and (ROOT / path).exists():
                homes.append(path)
                unread += [path] if path.endswith(".md") else []
                files.append(_generated(config, path, InclusionLevel.NOT_IN_NAV))
    for name in ("style.css", "iframe-worker.js"):
        files.append(File.generated(config, name, abs_src_path=str(SITE / name)))
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
    """Return the page with breaks after the dots of keys in tables, so that they fit a phone."""
    return re.sub(r"(?<=<td><code>)[\w.]+", lambda key: key[0].replace(".", ".<wbr>"), html)


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


def _generated(
    config: MkDocsConfig, path: str, inclusion: InclusionLevel = InclusionLevel.UNDEFINED
) -> File:
    """Return the page of a file or folder of the project."""
    HOMES[_uri(path)] = path
    return File.generated(config, _uri(path), content=_shown(path), inclusion=inclusion)
