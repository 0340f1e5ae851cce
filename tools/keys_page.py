"""The lists of keys in ``docs/experiment-file.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fedmx.experiment.schema import KEYS

_LIST = re.compile(r"<!-- keys: ([^\n]+) -->\n.*?<!-- end of keys -->\n", re.DOTALL)


def with_lists(page: str) -> str:
    """Return a page (Markdown) with the lists of the keys as they are now.

    A list stands between ``<!-- keys: compute -->``, which names its sections, and
    ``<!-- end of keys -->``. Every section must be in one list.
    """
    listed = [name for found in _LIST.finditer(page) for name in found[1].split()]
    sections = [name for name in KEYS if "." not in name]
    assert sorted(listed) == sorted(sections), sorted({*listed} ^ {*sections})
    return _LIST.sub(lambda found: "\n".join(_list(found[1].split())) + "\n", page)


def _list(sections: list[str]) -> Iterator[str]:
    """Yield the lines of the list of some sections."""
    yield from (f"<!-- keys: {' '.join(sections)} -->", "")
    for name, key in KEYS.items():
        if name.partition(".")[0] in sections:
            default = key.default and (
                key.default if key.default == "must be given" else f"default {key.default}"
            )
            takes = key.takes.removesuffix(" or null") if key.default == "null" else key.takes
            facts = ", ".join(filter(None, (takes, default)))
            yield f"- `{name}` ({facts}): {key.text}"
    yield from ("", "<!-- end of keys -->")
