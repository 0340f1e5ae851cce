"""The tables of quantities in ``docs/run-folder.md``, and of metrics in ``docs/metrics.md``."""

from __future__ import annotations

import inspect

from fedmx.quantities import OF_RUN, QUANTITIES
from layers.compute.metrics import METRICS, USUAL
from layers.compute.metrics.metric import Metric


def with_tables(page: str) -> str:
    """Return the page with both tables."""
    of_run = [f"| `{one.key}` | {one.about} |" for one in OF_RUN]
    return _with(_with(page, "quantities", _of_round()), "quantities of a run", of_run)


def with_metrics(page: str) -> str:
    """Return the page with the table of the metrics."""
    return _with(page, "metrics", [_of(one) for one in METRICS.values()], METRICS_HEAD)


def _of(metric: type[Metric]) -> str:
    """Return the row of a metric."""
    about = (inspect.getdoc(metric) or "").partition("\n")[0].removesuffix(".").replace("|", "\\|")
    usual = [kind for kind, metrics in USUAL.items() if metric in metrics]
    kinds = ", ".join(f"**{kind}**" if kind in usual else kind for kind in metric.TARGETS)
    better = "" if metric.unit == "table" else metric.better
    return f"| `{metric.name}` | {about} | {kinds} | {better} |"


METRICS_HEAD = "| name | value | targets (bold: usual) | better |"


def _of_round() -> list[str]:
    """Return a row for each text, with the keys that it is about."""
    rows: list[tuple[list[str], str]] = []
    for one in QUANTITIES:
        if one.about:
            rows.append(([], one.about))
        rows[-1][0].append(f"`{one.key}`")
    lines = [f"| {', '.join(keys)} | {about} |" for keys, about in rows]
    return [*lines, CHAIN]


def _with(page: str, name: str, lines: list[str], head: str = "| key | what it is |") -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    table = "\n".join([head, "|---" * (head.count("|") - 1) + "|", *lines])
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}\n\n{end}{after}"


CHAIN = (
    "| `chain` | binds the round to all earlier rounds "
    "([time-travel.md](time-travel.md#records-and-hashes)) |"
)
