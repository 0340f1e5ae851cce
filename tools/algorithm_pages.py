"""The generated texts of ``docs/algorithms``: the index, and the parts and settings of each name.

A page ends with a line such as ``<!-- names: fedbuff fedasync -->``. The text below this line is
generated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmx.components.catalogue import KINDS, components, read_catalogue
from fedmx.components.settings import Setting, signature_of, spelled
from layers.logic.core.declaration import Need, Part, Trait, exclusions
from layers.logic.core.preset import Preset, kinds_of, split_docstring

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "algorithms.md"
FOLDER = INDEX.with_suffix("")
"""The folder of the pages."""

_NOUNS = ("preset", "selector", "aggregator", "hook", "trainer", "attack", "privacy")
ALGORITHMS = {KINDS[noun].plural: noun for noun in _NOUNS}
"""The kinds that the pages describe, each with its noun."""

_SHORT = {
    f"with a part that {one.value}": text
    for one, text in (
        (Need.BOUNDED, ""),
        (Need.HIDDEN, ""),
        (Trait.MASKED, ""),
        (Trait.ASYNCHRONOUS, "with asynchronous rounds"),
        (Trait.ENCODES_UPDATE, "with a hook that encodes the update"),
        (Trait.SENDS_GRADIENTS, "with a hook that sends gradients"),
        (Need.WHOLE_UPDATES, "with an attack in collusion"),
    )
}
"""Short forms of conditions; docs/algorithms.md tells those without a text for all algorithms."""

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
    """Yield the lines of the index: the names of each page with their kinds, and the text
    of its only preset or name."""
    catalogue = read_catalogue()
    for file, page in sorted(pages.items()):
        title = f"[{page.partition(chr(10))[0].removeprefix('# ')}](algorithms/{file})"
        by_nouns: dict[str, list[str]] = {}
        abouts = []
        for name in names_of(page):
            kinds = [kind for kind in ALGORITHMS if name in catalogue[kind]]
            nouns = " and ".join(ALGORITHMS[kind] for kind in kinds)
            by_nouns.setdefault(nouns, []).append(f"`{name}`")
            abouts.append(catalogue[kinds[0]][name].about)
        if by_nouns:
            names = "; ".join(f"{nouns} {', '.join(own)}" for nouns, own in by_nouns.items())
            presets = [name for name in names_of(page) if name in catalogue[KINDS["preset"].plural]]
            about = abouts[0] if len(presets) == 1 or len(abouts) == 1 else ""
            yield f"- {title}: {names}. {about}".rstrip()


def _parts(names: list[str]) -> Iterator[str]:
    """Yield the lines about all components with these names."""
    yield "## Parts and settings"
    parts: list[tuple[str, str, Any]] = []
    for kind, noun in ALGORITHMS.items():
        own = {name: components()[kind][name] for name in names if name in components()[kind]}
        shared = _shared(own)
        if shared:
            yield from ("", f"### Every {noun} of this page", "", *shared.values())
        plain = {name: make for name, make in own.items() if noun == "preset" and _is_plain(make)}
        if len(plain) > 1:
            yield from ("", "### Presets", "", "Each takes the settings of its parts:", "")
            yield from (f"- `{name}`: {_made_of(make())}" for name, make in plain.items())
            own = {name: make for name, make in own.items() if name not in plain}
        for name, make in own.items():
            yield from ("", f"### {noun.capitalize()} `{name}`", "")
            yield from _component(make, shared)
            if all(not one.required for one in signature_of(make).settings.values()):
                part = make()
                if isinstance(part, Part):
                    parts.append((name, noun, part))
    own_names = [name for name, _, _ in parts]
    shown = [
        f"`{name}`" if own_names.count(name) == 1 else f"the {noun} `{name}`"
        for name, noun, _ in parts
    ]
    refused = [exclusions(part) for _, _, part in parts]
    yield from _refused(shown, refused)


def _refused(parts: list[str], conditions: Sequence[Iterable[str]]) -> Iterator[str]:
    """Yield a list of what is refused with the parts of a page; of one part in a sentence."""
    of: dict[str, list[str]] = {}
    for name, own in zip(parts, conditions, strict=True):
        for condition in sorted({_SHORT.get(one, one) for one in own} - {""}):
            of.setdefault(condition, []).append(name)
    if len(parts) == 1 and of:
        yield from ("", f"It is refused {'; '.join(of)}.")
    elif of:
        yield from ("", "### What is refused", "")
        for condition, own in of.items():
            yield f"- {condition}: {'all parts' if len(own) == len(parts) else ', '.join(own)}"


def _is_plain(make: Any) -> bool:
    """Return whether a preset has the settings of its parts alone."""
    fixed = getattr(make, "fixed", {})
    return not fixed and not signature_of(inspect.unwrap(make)).settings


def _shared(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the rows of the settings that five or more parts all have, by name."""
    if len(own) < 5:
        return {}
    rows: dict[str, list[tuple[Setting, str]]] = {}
    for make in own.values():
        about = _about(make)
        for one in signature_of(inspect.unwrap(make)).settings.values():
            rows.setdefault(one.name, []).append((one, about.get(one.name, "")))
    return {
        name: _row(found[0][0], max((text for _, text in found), key=len))
        for name, found in rows.items()
        if len(found) == len(own)
        and len({(one.type, spelled(one.default)) for one, _ in found}) == 1
        and len({text for _, text in found if text}) == 1
    }


def _about(make: Any) -> dict[str, str]:
    """Return the texts of a component's settings."""
    about = split_docstring(make)[1]
    return {name: " ".join(lines) for name, lines in about.items()}


def _component(make: Any, shared: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about a component: its parts, and the settings that it does not share."""
    settings = signature_of(inspect.unwrap(make)).settings
    about = _about(make)
    part = None
    if not any(one.required for one in signature_of(make).settings.values()):
        part = make()
    if isinstance(part, Preset):
        made_of = _made_of(part)
        end = ", and:" if settings else "."
        yield f"{made_of[:1].upper()}{made_of[1:]}, with their settings{end}"
        yield from [""] if settings else []
    own = [one for name, one in settings.items() if name not in shared]
    if own:
        yield from (_row(one, about.get(one.name, "")) for one in own)
    elif not isinstance(part, Preset):
        yield "It has no other settings." if settings else "It has no settings."
    for name, reason in getattr(make, "fixed", {}).items():
        yield from ("", f"The preset does not take `{name}`: {reason}.")


def _made_of(preset: Preset) -> str:
    """Return the parts of a preset in words, each with its name."""
    named = (
        f"{noun} `{name}`"
        for noun, part in kinds_of(preset)
        for name, make in components()[KINDS[noun].plural].items()
        if make is type(part)
    )
    return ", ".join(named)


def _row(setting: Setting, meaning: str) -> str:
    default = "" if setting.required else spelled(setting.default)
    takes = setting.type.removesuffix(" or null") if default == "null" else setting.type
    shown = "required" if setting.required else f"default `{default}`"
    return f"- `{setting.name}` ({takes}, {shown}){': ' if meaning else ''}{meaning}"
