"""What each key of an experiment file means, as docs/experiment-file.md says it.

It is kept in ``key_texts.json``, so that ``fedmx explain KEY`` and ``fedmx schema`` know it where
the documentation is not installed. After a change of the page, write it anew::

    python -m fedmx.experiment.key_texts
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from fedmx.components.index import read_index
from fedmx.experiment.names import PLACES

_KINDS = {".".join(place): kind for place, (kind, _) in PLACES.items()}
PATH = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "experiment-file.md"


@dataclass(frozen=True)
class KeyText:
    """The row of a key in the page's tables.

    Attributes:
        type: what its value may be.
        default: its value where it is left out; empty for a section.
        meaning: what it is for; may be empty.
    """

    type: str
    default: str
    meaning: str


@lru_cache(maxsize=1)
def read_key_texts() -> Mapping[str, KeyText]:
    """Return the rows that are kept in the file, by dotted key, in the order of the page."""
    rows = json.loads(PATH.read_text(encoding="utf-8"))
    return {key: KeyText(**row) for key, row in rows.items()}


def explained_key(name: str) -> list[str]:
    """Return the lines about a key, a section, or a setting of a component; none for other names.

    Args:
        name: a dotted key, such as ``compute.train.epochs`` or ``logic.hooks.0.mu``, or its last
            part, for all keys that end so.
    """
    texts = read_key_texts()
    key = ".".join(part for part in name.split(".") if not part.isdigit())
    if key in texts:
        return _key_lines(key, texts[key])
    place, _, setting = key.rpartition(".")
    if place in _KINDS:
        return _setting_lines(name, _KINDS[place], setting)
    alike = [other for other in texts if "." not in key and other.rpartition(".")[2] == key]
    pages = [_key_lines(other, texts[other]) for other in alike]
    return [line for page in pages for line in (["", ""] if page is not pages[0] else []) + page]


def key_texts_of(page: str) -> dict[str, KeyText]:
    """Return the rows of all tables of keys in a page (Markdown), without markup."""
    texts = {}
    in_table = False
    for line in page.splitlines():
        cells = [_plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == ["key", "type", "default", "meaning"]:
            in_table = True
        elif not line.startswith("|"):
            in_table = False
        elif in_table and not set(line) <= set("|-: "):
            texts[cells[0]] = KeyText(*cells[1:])
    return texts


def write_key_texts(path: Path = PATH) -> None:
    """Write the rows of the page to a file."""
    rows = {key: asdict(row) for key, row in key_texts_of(PAGE.read_text("utf-8")).items()}
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _key_lines(key: str, text: KeyText) -> list[str]:
    """Return the lines about a key or a section."""
    below = {one: row for one, row in read_key_texts().items() if one.startswith(f"{key}.")}
    lines = [f"{key}: {'section' if below else 'key'}"]
    lines += ["", text.meaning[:1].upper() + text.meaning[1:]] if text.meaning else []
    lines += ["", f"type: {text.type}"]
    lines += [f"default: {text.default}"] if text.default else []
    if key in _KINDS:
        kind = _KINDS[key]
        lines += ["", f"names: {', '.join(read_index()[kind])}, or your own as package.module:Name"]
        lines += [f"fedmx list {kind} shows their settings, fedmx explain NAME what one does."]
    for one, row in below.items():
        default = "" if row.default in ("", "must be given") else f" (default: {row.default})"
        must = ", must be given" if row.default == "must be given" else ""
        lines += ["", f"{one}: {row.type}{must}{default}"]
        lines += [f"    {row.meaning}"] if row.meaning else []
    return lines


def _setting_lines(name: str, kind: str, setting: str) -> list[str]:
    """Return the lines about a setting of the components of a kind; none if none has it."""
    found = [
        f"{component}: {line}"
        for component, entry in read_index()[kind].items()
        for line in entry.settings
        if re.match(rf"{re.escape(setting)}(?: =|:)", line)
    ]
    return [f"{name}: setting of these {kind}", "", *found] if found else []


def _plain(cell: str) -> str:
    """Return a cell without its code spans' marks, and links as their text alone."""
    text = re.sub(r" *\(\[more\]\([^)]*\)\)", "", cell.strip())
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    return text.replace("`", "").replace("\\|", "|")


if __name__ == "__main__":
    write_key_texts()
