"""The order of the house: docstrings, names, the version, the links, the list of examples."""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for part in ("fedmx", "layers") for path in (ROOT / part).rglob("*.py"))
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def version() -> str:
    found = re.search(r'__version__ = "(.+)"', (ROOT / "fedmx" / "version.py").read_text())
    assert found is not None
    return found[1]


def test_every_file_opens_with_a_docstring_of_one_sentence() -> None:
    bare, long = [], []
    for path in SOURCES:
        docstring = ast.get_docstring(ast.parse(path.read_bytes()))
        if not docstring:
            bare.append(shown(path))
        elif not docstring.split("\n\n")[0].rstrip().endswith((".", ":", "?")):
            long.append(shown(path))
    assert SOURCES
    assert bare == [], "without a docstring"
    assert long == [], "the docstring's first paragraph is not a sentence"


def test_no_file_or_folder_is_a_drawer_for_everything() -> None:
    parts = [ROOT / part for part in ("fedmx", "layers", "examples", "benchmarks", "tests")]
    drawers = [shown(path) for part in parts for path in part.rglob("*") if path.stem in DRAWERS]
    assert drawers == []


def test_every_folder_of_code_is_a_package_that_gets_installed() -> None:
    folders = {path.parent for path in SOURCES}
    assert [
        shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_the_version_is_written_in_one_place() -> None:
    number = re.compile(rf"(?<![\d.]){re.escape(version())}(?![\d.])")
    files = [*SOURCES, ROOT / "setup.py", ROOT / "pyproject.toml"]
    assert [shown(path) for path in files if number.search(path.read_text())] == [
        "fedmx/version.py"
    ]


def test_the_changelog_tells_of_this_version() -> None:
    releases = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == version()


PIN = re.compile(
    r"([A-Za-z0-9._-]+)==[0-9][A-Za-z0-9.]*(?:; python_version (<|==|>=) \"3\.(1[0-3])\")?"
)
MEANS = {"<": operator.lt, "==": operator.eq, ">=": operator.ge}


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_every_python_has_one_exact_version_of_each_constraint(minor: int) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert pins
    assert None not in pins
    found = [pin.groups() for pin in pins if pin is not None]
    here = [
        name.lower()
        for name, sign, number in found
        if sign is None or MEANS[sign](minor, int(number))
    ]
    assert len(here) == len(set(here))
    # What only an old Python needs; all others are there for each.
    assert {name.lower() for name, _, _ in found} - set(here) <= {"exceptiongroup", "tomli"}


def without_code(markdown: str) -> str:
    """The page without its code blocks and code spans, in which brackets are no links."""
    return re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`", "", markdown, flags=re.DOTALL | re.MULTILINE)


def anchors(markdown: str) -> list[str]:
    """The names under which a page's headings can be linked, as GitHub derives them."""
    blocks_gone = re.sub(r"^(```|~~~).*?^\1", "", markdown, flags=re.DOTALL | re.MULTILINE)
    names: list[str] = []
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", blocks_gone, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        slug = slug.replace(" ", "-")
        count = sum(1 for name in names if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", name))
        names.append(f"{slug}-{count}" if count else slug)
    return names


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(\s*<?([^)>\s]+)", without_code(page.read_text())):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        linked = page.parent / path if path else page
        if not linked.exists() or (
            fragment and linked.suffix == ".md" and fragment not in anchors(linked.read_text())
        ):
            broken.append(f"{shown(page)}: {target}")
    return broken


def test_every_relative_link_leads_somewhere() -> None:
    assert [link for page in PAGES for link in broken_links(page)] == []


def test_the_reader_of_links_finds_a_broken_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` of C!\n[good](#a-b-of-c) [self](page.md) [out](https://example.org)\n"
        "`[code](no)`\n```\n[block](no)\n```\n[bad](gone.md) [worse](page.md#nowhere)\n"
    )
    assert broken_links(page) == ["page.md: gone.md", "page.md: page.md#nowhere"]


def test_the_index_lists_every_page_of_the_documentation() -> None:
    index = ROOT / "docs" / "index.md"
    texts = index.read_text() + (ROOT / "docs" / "algorithms.md").read_text()
    linked = {(index.parent / t).resolve() for t in re.findall(r"\]\(([^)#]+)\)", texts)}
    pages = set((ROOT / "docs").rglob("*.md")) - {index}
    assert sorted(shown(page) for page in pages - linked) == []


@pytest.fixture(scope="module")
def readme() -> str:
    path = ROOT / "README.md"
    assert path.exists(), "README.md is missing"
    return path.read_text()


def test_every_example_that_the_readme_names_exists(readme: str) -> None:
    named = {name.rstrip(".") for name in re.findall(r"\bexamples/[\w./-]+", readme)}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_readme_lists_every_example(readme: str) -> None:
    examples = [
        shown(path)
        for path in (ROOT / "examples").iterdir()
        if not path.name.startswith(("_", ".")) and path.name != "README.md"
    ]
    unlisted = [
        name for name in examples if not re.search(rf"\b{re.escape(name)}(?![\w-])", readme)
    ]
    assert sorted(unlisted) == []


def test_every_test_file_that_a_page_names_exists() -> None:
    named = {
        name for page in PAGES for name in re.findall(r"`([\w/]*test_\w+\.py)`", page.read_text())
    }
    assert "fedmx/run/test_checkpoint.py" in named
    tests = [f"/{shown(path)}" for path in (ROOT / "tests").rglob("test_*.py")]
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in tests)]


def methods_of(of: type) -> Iterator[tuple[str, object]]:
    for name, value in vars(of).items():
        if inspect.isclass(value) and value.__qualname__.startswith(f"{of.__qualname__}."):
            yield from methods_of(value)
        elif name[0] != "_" and (inspect.isroutine(value) or isinstance(value, property)):
            yield f"{of.__qualname__}.{name}", value


def test_every_public_method_says_what_it_does_itself_or_in_a_base_class() -> None:
    """Ruff has no rule for this: an override that adds nothing has no docstring."""
    silent = []
    for path in SOURCES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if "torch" in name or name.endswith("__main__"):
            continue
        for of in vars(importlib.import_module(name)).values():
            own = inspect.isclass(of) and of.__module__ == name and of.__name__[0] != "_"
            if own and not getattr(of, "_is_protocol", False):
                silent += [f"{name}.{one}" for one, at in methods_of(of) if not inspect.getdoc(at)]
    assert silent == []
