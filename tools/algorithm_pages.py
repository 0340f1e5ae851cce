"""The generated texts of ``docs/algorithms``: the index, and the parts and settings of each name.

A page ends with a line such as ``<!-- names: fedbuff fedasync -->``. The text below this line is
generated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmx.components.catalogue import KINDS, components, read_catalogue
from fedmx.components.settings import Setting, signature_of, spelled
from layers.logic.core.declaration import declared, exclusions
from layers.logic.core.preset import Preset, kinds_of, split_docstring

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "algorithms.md"
FOLDER = INDEX.with_suffix("")
"""The folder of the pages."""

_NOUNS = ("preset", "selector", "aggregator", "hook", "trainer", "attack", "privacy")
ALGORITHMS = {KINDS[noun].plural: noun for noun in _NOUNS}
"""The kinds that the pages describe, each with its noun."""

BEGIN, END = "<!-- index -->\n", "<!-- end of index -->\n"
_NAMES = re.compile(r"^<!-- names: (.+) -->\n", re.MULTILINE)


def names_of(page: str) -> list[str]:
    """Return the names that a page describes."""
    found = _NAMES.search(page)
    return found[1].split() if found is not None else []


def with_parts(page: str) -> str:
    """Return a page (Markdown) with its generated text; one without names is unchanged."""
    found = _NAMES.search(page)
    if found is None:
        return page
    return page[: found.end()] + "\n" + "\n".join(_parts(names_of(page))) + "\n"


def with_index(index: str, pages: Mapping[str, str]) -> str:
    """Return the index (Markdown) with its table.

    Args:
        index: the page.
        pages: the texts of the algorithms' pages by file name.
    """
    before, _, rest = index.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "\n".join(_rows(pages))
    return f"{before}{BEGIN}\n{rows}\n\n{END}{after}"


def _rows(pages: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the index: the names of each page with their kinds and texts."""
    yield "| algorithm | name | text |"
    yield "|---|---|---|"
    catalogue = read_catalogue()
    for file, page in sorted(pages.items()):
        title = f"[{page.partition(chr(10))[0].removeprefix('# ')}](algorithms/{file})"
        for name in names_of(page):
            kinds = [kind for kind in ALGORITHMS if name in catalogue[kind]]
            nouns = ", ".join(ALGORITHMS[kind] for kind in kinds)
            about = _cell(catalogue[kinds[0]][name].about)
            yield f"| {title} | `{name}` ({nouns}) | {about} |"
            title = ""


def _parts(names: list[str]) -> Iterator[str]:
    """Yield the lines about all components with these names."""
    yield "## Parts and settings"
    for kind, noun in ALGORITHMS.items():
        for name in names:
            if name in components()[kind]:
                yield from ("", f"### {noun.capitalize()} `{name}`", "")
                yield from _component(kind, components()[kind][name])


def _component(kind: str, make: Any) -> Iterator[str]:
    """Yield the lines about a component: its parts, its settings, and what it declares."""
    settings = signature_of(inspect.unwrap(make)).settings
    about = split_docstring(make)[1]
    part = None
    if not any(one.required for one in signature_of(make).settings.values()):
        part = make()
    if isinstance(part, Preset):
        others = "the settings of these parts" + (", and:" if settings else ".")
        yield f"It consists of {_made_of(part)}. It takes {others}"
        yield from [""] if settings else []
    if settings:
        yield "| setting | default | meaning |"
        yield "|---|---|---|"
        yield from (_row(one, " ".join(about.get(one.name, ()))) for one in settings.values())
    elif not isinstance(part, Preset):
        yield "It has no settings."
    if part is not None and not isinstance(part, Preset):
        facts = sorted(one.value for one in declared(part))
        refused = sorted(set(exclusions(part)))
        yield from ["", f"It {'; it '.join(facts)}."] if facts else []
        yield from ["", f"It is refused {'; '.join(refused)}."] if refused else []
    for name, reason in getattr(make, "fixed", {}).items():
        yield from ("", f"The preset does not take `{name}`: {reason}.")


def _made_of(preset: Preset) -> str:
    """Return the parts of a preset in words, each with its name."""
    *some, last = (
        f"the {noun} `{name}`"
        for noun, part in kinds_of(preset)
        for name, make in components()[KINDS[noun].plural].items()
        if make is type(part)
    )
    return f"{', '.join(some)} and {last}"


def _row(setting: Setting, meaning: str) -> str:
    default = "must be given" if setting.required else f"`{spelled(setting.default)}`"
    text = f"{setting.type}: {meaning}" if meaning else setting.type
    cells = (f"`{setting.name}`", default, text)
    return f"| {' | '.join(_cell(one) for one in cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
