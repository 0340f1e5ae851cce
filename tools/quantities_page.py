"""The table of a round's record in ``docs/run-folder.md``."""

from __future__ import annotations

from fedmx.quantities import QUANTITIES

BEGIN, END = "<!-- quantities -->\n", "<!-- end of quantities -->\n"


def with_table(page: str) -> str:
    """Return the page with a row for each text, and the keys that it is about."""
    rows: list[tuple[list[str], str]] = []
    for one in QUANTITIES:
        if one.about:
            rows.append(([], one.about))
        rows[-1][0].append(f"`{one.key}`")
    lines = [f"| {', '.join(keys)} | {about} |" for keys, about in rows]
    table = "\n".join(["| key | what it is |", "|---|---|", *lines, CHAIN])
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


CHAIN = (
    "| `chain` | binds the round to all earlier rounds "
    "([time-travel.md](time-travel.md#records-and-hashes)) |"
)
