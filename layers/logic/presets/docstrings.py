"""What a docstring says about each setting, in its sections `Args:` and `Attributes:`."""

from __future__ import annotations

import inspect
import re

SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:")
SETTINGS = SECTIONS[:2]
ENTRY = re.compile(r"    (\w+): (.+)")


def split_docstring(docstring: str | None) -> tuple[str, dict[str, list[str]]]:
    """Return the text outside of all sections, and the lines about each setting.

    Args:
        docstring: in Google style; None, as under `python -OO`, says nothing.
    """
    about: dict[str, list[str]] = {}
    text: list[str] = []
    section, entry = "", ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        if line in SECTIONS:
            section, entry = line, ""
        elif line and not line.startswith(" "):
            section = ""
        if not section:
            text.append(line)
        elif section in SETTINGS and line != section:
            found = ENTRY.fullmatch(line)
            if found:
                entry = found[1]
                about[entry] = [found[2]]
            elif entry and line.strip():
                about[entry].append(line.strip())
    return "\n".join(text).strip(), about
