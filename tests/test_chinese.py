"""The Chinese pages have the structure of the English ones, and each page links to the other."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import zip_longest

import pytest

from tests.test_house import ROOT, anchors, shown

ZH = ROOT / "docs" / "zh"
CHINESE_OF = {
    "README.md": "README.zh-CN.md",
    **{f"docs/{path.relative_to(ZH)}": shown(path) for path in sorted(ZH.rglob("*.md"))},
}
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
EQUATION = re.compile(r"^\$\$\n.+?\n\$\$$|\$[^$\n]+\$", re.DOTALL | re.MULTILINE)
TEXT = re.compile(r"\\text\{.+?\}")  # words in an equation
LANGUAGES = re.compile(r"^.*English.* \| .*中文.*$", re.MULTILINE)
# A comment that is no file name, a docstring, and the Chinese name of a layer in a drawing.
WORDS = re.compile(
    r' *((?<!\S)# (?![\w.-]+\.(py|yaml)$).*|"""[^"]+"""|[\u4e00-\u9fff]+)$', re.MULTILINE
)
FACETS: dict[str, Callable[[str], list[str]]] = {
    "code": lambda text: [WORDS.sub("", block) for block in BLOCK.findall(text)],
    "code spans": lambda text: re.findall(r"`[^`\n]+`", BLOCK.sub("", text)),
    "equations": lambda text: sorted({*EQUATION.findall(TEXT.sub("", BLOCK.sub("", text)))}),
    "paragraphs": lambda text: re.findall(r"(?:\A|\n\n)(?!<!--)()", text.strip()),
    "list items": lambda text: re.findall(r"^ *(?:[-*]|\d+\.) ", BLOCK.sub("", text), re.M),
    "cells of the rows": lambda text: [
        str(row.count("|")) for row in re.findall(r"^\|.+$", text, re.M)
    ],
    "numbers": lambda text: re.findall(r"\d+(?:[.,]\d+)*", prose(text)),
}


def prose(text: str) -> str:
    """Return a text without code, equations, tags and the targets of links."""
    text = EQUATION.sub("", re.sub(r"`[^`\n]+`", "", BLOCK.sub("", text)))
    return re.sub(r"<.+?>|\]\(.+?\)", "", text, flags=re.DOTALL)


def sections(text: str) -> list[tuple[str, str]]:
    """Return the headings of a page, each with the text up to the next one."""
    kept = BLOCK.findall(text)
    parts = re.split(r"^(#+ .+)\n", BLOCK.sub("\0", LANGUAGES.sub("", text, count=1)), flags=re.M)
    blocks = iter(kept)
    filled = [re.sub("\0", lambda _: next(blocks), part) for part in parts]
    return list(zip(filled[1::2], filled[2::2], strict=True))


def links(text: str, path: str) -> list[str]:
    """Return the targets of a page's links and pictures, from the root."""
    bare = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", text))
    found = re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", bare)
    return [from_root(a or b, path) for a, b in found]


def from_root(target: str, path: str) -> str:
    """Return the target of a link on a page, from the root; an address is as it is."""
    if re.match(r"[a-z]+:", target):
        return target
    file, sign, anchor = target.partition("#")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
    return f"{there}{sign}{anchor}"


def in_chinese(target: str) -> str:
    """Return where a Chinese page leads for a target of the English one."""
    file, sign, anchor = target.partition("#")
    if file not in CHINESE_OF:
        return target
    there = CHINESE_OF[file]
    if not sign:
        return there
    number = anchors((ROOT / file).read_text()).index(anchor)
    names = anchors((ROOT / there).read_text())
    return f"{there}#{names[number]}" if number < len(names) else target


def written(path: str) -> str:
    """Return a page; a link to the generated settings is in the place of them."""
    text, generated, _ = (ROOT / path).read_text().partition("<!-- names: ")
    return f"{text}[settings](#parts-and-settings)" if generated else text


def differences(english: str, chinese: str, path: str, other: str) -> Iterator[str]:
    """Yield what one page has and the other one has not, by heading."""
    pairs = zip_longest(sections(english), sections(chinese), fillvalue=("(no heading)", ""))
    for (heading, text), (title, translated) in pairs:
        where = f"{other}, {title}, and {path}, {heading}"
        if heading.count("#") != title.count("#"):
            yield f"{where}: levels"
            return
        found = {name: (facet(text), facet(translated)) for name, facet in FACETS.items()}
        found["numbers of headings"] = (re.findall(r"\d+", heading), re.findall(r"\d+", title))
        found["links"] = ([in_chinese(one) for one in links(text, path)], links(translated, other))
        for name, (ours, theirs) in found.items():
            ordered = name in ("code", "cells of the rows")
            if ours != theirs if ordered else Counter(ours) != Counter(theirs):
                left = list((Counter(ours) - Counter(theirs)).elements())
                right = list((Counter(theirs) - Counter(ours)).elements())
                yield f"{where}: {name}: only in English {left}, only in Chinese {right}"


@pytest.mark.parametrize("path", CHINESE_OF)
def test_a_chinese_page_has_what_the_english_one_has(path: str) -> None:
    other = CHINESE_OF[path]
    assert list(differences(written(path), (ROOT / other).read_text(), path, other)) == []


@pytest.mark.parametrize("path", CHINESE_OF)
def test_the_first_line_of_a_page_links_to_the_other_language(path: str) -> None:
    other = CHINESE_OF[path]
    to_chinese = posixpath.relpath(other, posixpath.dirname(path) or ".")
    to_english = posixpath.relpath(path, posixpath.dirname(other) or ".")
    assert (ROOT / path).read_text().splitlines()[2] == f"English | [中文]({to_chinese})"
    assert (ROOT / other).read_text().splitlines()[2] == f"[English]({to_english}) | 中文"


PAGE = "# A\n\nEnglish | [中文](zh/a.md)\n\n8, `b`, $x$\n\n## C\n\n- [d](d.md)\n\n| e | f |\n"
ZH_PAGE = (
    "# 甲\n\n[English](../a.md) | 中文\n\n`b` $x$ 8\n\n## 丙\n\n- [丁](../d.md)\n\n| 戊 | 己 |\n"
)


@pytest.mark.parametrize(
    ("before", "after", "heading", "facet"),
    [
        ("8", "9", "# 甲", "numbers"),
        ("`b`", "`B`", "# 甲", "code spans"),
        ("$x$", "$y$", "# 甲", "equations"),
        ("## 丙", "### 丙", "### 丙", "levels"),
        ("\n## 丙\n", "", "(no heading)", "levels"),
        ("d.md", "a.md", "## 丙", "links"),
        ("- ", "", "## 丙", "list items"),
        ("8\n", "8\n\n九\n", "# 甲", "paragraphs"),
        ("戊 |", "戊", "## 丙", "cells of the rows"),
        ("| 己 |\n", "| 己 |\n\n```sh\nls\n```\n", "## 丙", "code"),
    ],
)
def test_what_a_page_lacks_is_named_with_its_page_and_heading(
    before: str, after: str, heading: str, facet: str
) -> None:
    pages = ("docs/a.md", "docs/zh/a.md")
    assert list(differences(PAGE, ZH_PAGE, *pages)) == []
    assert before in ZH_PAGE
    found = "".join(differences(PAGE, ZH_PAGE.replace(before, after), *pages))
    assert f"{pages[1]}, {heading}, and" in found
    assert f": {facet}" in found


@pytest.mark.parametrize(
    ("english", "chinese", "same"),
    [
        ("ls  # lists", "ls  # 列出", True),
        ("ls  # lists", "pwd  # 列出", False),
        ("# one.yaml", "# two.yaml", False),
        ("│ client │", "│ client │ 网络层", True),
        ('"""One."""', '"""一。"""', True),
    ],
)
def test_words_in_code_may_be_chinese_and_its_commands_and_files_are_the_same(
    english: str, chinese: str, same: bool
) -> None:
    pages = [f"# 1\n```sh\n{code}\n```\n" for code in (english, chinese)]
    assert (list(differences(*pages, "a.md", "b.md")) == []) is same


def test_every_term_of_the_glossary_is_there_in_chinese() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    before, _, table = page.partition("## The terms in Chinese")
    own = before.partition("## All terms")[2].partition("## The terms of other")[0]
    terms = re.findall(r"^- \*\*(.+?)\*\*", own, re.M)
    terms += re.findall(r"\[([^]]+)\]\(", own.partition("\n- ")[0])
    rows = dict(re.findall(r"^\| (.+?) \| (.*[\u4e00-\u9fff].*?) \|", table, re.M))
    there = {one for row in rows for one in row.split(", ")}
    assert len(terms) > 50
    assert [
        one for term in terms for one in term.replace("\n", " ").split(", ") if one not in there
    ] == []
