"""A page over all runs in a folder, with links to their reports."""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from fedmx.listing.rows import Listed, listed
from fedmx.log import Log
from fedmx.output_file import check_output
from fedmx.quantities import Quantity
from fedmx.report.formats import NOTHING, value_text
from fedmx.report.html import Child, Html, document, element, join
from fedmx.run.durable import RunError, cannot_write, write_text_durably

log = Log("fedmx.listing")

FILE = "index.html"
_WIDTH, _HEIGHT = 90, 22  # of a small curve, in pixels
_MOST_POINTS = 60
Range = tuple[float, float]


def write_index(folder: Path, output: Path | None = None) -> Path:
    """Write the page over the runs and sweeps in a folder, and return its file.

    Args:
        folder: of the runs.
        output: the file; None: ``index.html`` in the folder.

    Raises:
        RunError: there is no such folder, it is a run itself, or the file cannot be written.
        FedmxError: the name has another ending, or the file exists and is not fedmx's.
    """
    path = folder / FILE if output is None else output
    check_output(path, "a page is HTML", (".html", ".htm"))
    text = _page(folder, listed(folder), path.parent)
    try:
        write_text_durably(path, text)
    except OSError as error:
        raise RunError(cannot_write(path, error, "the page")) from None
    return path


def renew_index(folder: Path) -> None:
    """Write the page over the runs in a folder again, if it has one; a failure is only logged."""
    if not (folder / FILE).is_file():
        return
    try:
        write_index(folder)
    except Exception as error:  # noqa: BLE001 - the run is worth more than the page
        log.warning(
            "index_not_written", "the page over all runs was not written: {reason}", reason=error
        )


def _page(folder: Path, found: Sequence[Listed], beside: Path) -> str:
    """Return the page; its links are relative to the folder `beside`."""
    states = Counter(str(one.row["state"]) for one in found)
    kinds = Counter(str(one.row["kind"]) for one in found)
    words = " and ".join(f"{kinds[kind]:,} {kind}{'s' * (kinds[kind] != 1)}" for kind in kinds)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    now = datetime.datetime.now(datetime.timezone.utc)
    name = folder.resolve().name or str(folder)
    search = element("input", type="search", id="filter", placeholder="fedprox failed")
    body = join(
        element(
            "header",
            element("h1", f"Runs in {name}"),
            element("p", f"{words}: {counts}." if found else "There are no runs."),
            element("p", f"Written at {now:%Y-%m-%d %H:%M} UTC.", class_="quiet"),
            element(
                "p",
                element("label", "Filter: ", search),
                " ",
                element("span", id="shown", class_="quiet", role="status"),
                hidden="",
            ),
        ),
        _table(found, beside),
        element("footer", "Written by fedmx."),
    )
    script = (files("fedmx.listing") / "page.js").read_text(encoding="utf-8")
    return document(name, body, script=script if found else "")


def _table(found: Sequence[Listed], beside: Path) -> Html:
    paths = dict.fromkeys(path for one in found for path in one.words)
    order = sorted(paths, key=lambda path: (path == "seed", not path.startswith("logic.")))
    names = Counter(path.rpartition(".")[2] for path in order)
    heads = [path if names[short := path.rpartition(".")[2]] > 1 else short for path in order]
    fixed = ("run", "state", "round", "best", "final", "curve", "started")
    cells = [element("th", head, scope="col") for head in (*fixed, *heads, "why it ended")]
    ranges = _ranges(found)
    rows = [_row(one, order, ranges, beside) for one in reversed(found)]  # the newest first
    made = element(
        "table",
        element("thead", element("tr", *cells)),
        element("tbody", *rows),
        class_="runs",
    )
    return element("div", made, class_="scroll", tabindex="0")


def _row(one: Listed, paths: Sequence[str], ranges: Mapping[str, Range], beside: Path) -> Html:
    row, state = one.row, str(one.row["state"])
    best, final = row["best"], one.values[-1] if one.values else None
    name: Child = one.path.name
    if (one.path / "report.html").is_file():
        name = element(
            "a", name, href=quote(os.fsencode(os.path.relpath(one.path / "report.html", beside)))
        )
    colour = "failed" if state == "damaged" else state
    started = str(row["started"] or NOTHING)[:16].replace("T", " ")
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", element("span", state, class_=f"status {colour}")),
        element("td", one.rounds, data_value=str(row["runs_done"] or row["rounds_done"] or 0)),
        _value(one.metric, best),
        _value(one.metric, final),
        element("td", _curve(one, ranges)),
        element("td", started),
        *(element("td", (row["settings"] or {}).get(path, NOTHING)) for path in paths),
        element("td", None if state == "done" else row["reason"]),
    )


def _value(metric: Quantity, value: float | None) -> Html:
    if value is None:
        return element("td", NOTHING)
    return element("td", value_text(metric, value), data_value=f"{value:.6g}")


def _ranges(found: Sequence[Listed]) -> dict[str, Range]:
    """Return the least and the largest value of each metric, so that curves can be compared."""
    ranges: dict[str, Range] = {}
    for one in found:
        if one.values:
            low, high = ranges.get(one.metric.key, (one.values[0], one.values[0]))
            ranges[one.metric.key] = min(low, *one.values), max(high, *one.values)
    return ranges


def _curve(one: Listed, ranges: Mapping[str, Range]) -> Html | None:
    """Return a small curve of the metric; None: there are fewer than two values."""
    every = max(1, -(-len(one.values) // _MOST_POINTS))
    values = one.values[::-every][::-1]  # with the last one
    if len(values) < 2:
        return None
    low, high = ranges[one.metric.key]
    across, up = _WIDTH / (len(values) - 1), (_HEIGHT - 4) / (high - low or 1.0)
    points = (
        f"{place * across:.1f} {_HEIGHT - 2 - (value - low) * up:.1f}"
        for place, value in enumerate(values)
    )
    line = element("path", d=f"M{'L'.join(points)}")
    words = f"{one.metric.words} from {values[0]:.4g} to {values[-1]:.4g}"
    return element("svg", line, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=words)
