"""The tables of a round's and a run's quantities in ``docs/run-folder.md``."""

from __future__ import annotations

from fedmx.quantities import OF_RUN, QUANTITIES


def with_tables(page: str) -> str:
    """Return the page with both tables."""
    of_run = [f"| `{one.key}` | {one.about} |" for one in OF_RUN]
    return _with(_with(page, "quantities", _of_round()), "quantities of a run", of_run)


def _of_round() -> list[str]:
    """Return a row for each text, with the keys that it is about."""
    rows: list[tuple[list[str], str]] = []
    for one in QUANTITIES:
        if one.about:
            rows.append(([], one.about))
        rows[-1][0].append(f"`{one.key}`")
    lines = [f"| {', '.join(keys)} | {about} |" for keys, about in rows]
    return [*lines, CHAIN]


def _with(page: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    table = "\n".join(["| key | what it is |", "|---|---|", *lines])
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}\n\n{end}{after}"


CHAIN = (
    "| `chain` | binds the round to all earlier rounds "
    "([time-travel.md](time-travel.md#records-and-hashes)) |"
)
