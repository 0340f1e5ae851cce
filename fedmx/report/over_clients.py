"""How the values of a metric are spread over the clients, on each client's own samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmx.quantities import metrics_in
from fedmx.report.curves import Measure, measures_of, style_curve
from fedmx.report.formats import SHOW, finite, number
from fedmx.report.html import Child, Html, element, table
from fedmx.report.summary import RunSummary
from fedmx.report.svg import PAGE, RUN, STEPS, Spot, captioned, html_of, new_figure, style_axes

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
_MOST_BARS = 20
_MARKERS_UP_TO = 40
_OPEN_UP_TO = 20  # rows; a longer table is folded

Values = dict[int, np.ndarray]
"""The clients' values by round."""


def over_clients_section(run: RunSummary, label: str | None) -> Html | None:
    """Return the quantiles over the clients by round, and the last distribution, of each model.

    None: no two clients were evaluated.

    Args:
        run: the run.
        label: the run's name on a page with several runs.
    """
    measure = measures_of([run])[0]
    parts: list[Child] = []
    for index, (model, values) in enumerate(_values(run, measure).items()):
        name = f"{measure.name} of the {model} model over clients"
        figures = [
            captioned(f"{name}, by round", svg)
            for svg in [_band(values, measure, index, name)]
            if svg is not None
        ]
        last = max(values)
        caption = f"{name}, after round {last}"
        figures.append(captioned(caption, _histogram(values[last], measure, index, caption)))
        least, _, median, _, most = (measure.text(y) for y in np.quantile(values[last], SHARES))
        text = (
            f"After round {last}, the {model} model has a median of {median} over "
            f"{len(values[last]):,} clients; 80 % of them are from {least} to {most}."
        )
        parts += [element("p", text), element("div", *figures, class_="figures")]
    if not parts:
        return None
    parts.append(_by_client(run))
    title = "Over clients" if label is None else f"Over clients of {label}"
    return element("section", element("h2", title), *parts)


def _by_client(run: RunSummary) -> Html:
    """Return each client's last results, of each model and metric."""
    last: dict[tuple[int, str], dict[str, Any]] = {}
    for one in run.folder.evaluations():
        last[one["client"], one["model"]] = one
    metrics = [one for one in metrics_in(run.folder.facts) if one.unit in SHOW]
    rows: list[list[Child]] = [
        [
            *(f"{one['client']:,}", model, f"{one['round']:,}", f"{one['samples']:,}"),
            *(SHOW[metric.unit](finite(one.get(metric.key))) for metric in metrics),
            number(finite(one.get("loss"))),
        ]
        for (_, model), one in sorted(last.items())
    ]
    heads: list[Child] = [
        "client",
        "model",
        "round",
        "samples",
        *(one.words for one in metrics),
        "loss",
    ]
    return element(
        "details",
        element("summary", f"last results of {len({client for client, _ in last}):,} clients"),
        table(heads, rows, class_="numbers"),
        open="" if len(rows) <= _OPEN_UP_TO else None,
    )


def _values(run: RunSummary, measure: Measure) -> dict[str, Values]:
    """Return the values on the vertical axis by model and round; rounds of one client have none."""
    found: dict[str, dict[int, list[float]]] = {}
    unit = 100 if measure.share else 1
    for one in run.folder.evaluations():
        if (value := finite(one.get(measure.key))) is not None:
            rounds = found.setdefault(one["model"], {})
            rounds.setdefault(one["round"], []).append(unit * value)
    several = {
        model: {round: np.array(one) for round, one in rounds.items() if len(one) > 1}
        for model, rounds in found.items()
    }
    return {model: rounds for model, rounds in several.items() if rounds}


def _band(values: Values, measure: Measure, index: int, name: str) -> Html | None:
    """Return the median over the rounds in bands of the quantiles; None: there is one round."""
    from matplotlib.ticker import MaxNLocator

    rounds = sorted(values)
    if len(rounds) < 2:
        return None
    quantiles = [np.quantile(values[round], SHARES) for round in rounds]
    lowest, low, median, high, highest = np.array(quantiles).T
    with new_figure(5.0, 3.0) as figure:
        axes = figure.add_subplot()
        for below, above in ((lowest, highest), (low, high)):
            axes.fill_between(rounds, below, above, color=RUN[index], alpha=0.18, linewidth=0)
        few = len(rounds) <= _MARKERS_UP_TO
        axes.plot(rounds, median, color=RUN[index], marker="o" if few else None, markersize=3)
        style_curve(axes, "round", measure, [*lowest, *highest], [], PAGE)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=True))
        spots = [
            Spot(float(round), float(y), f"round {round}\n{_spot_text(ys, measure)}")
            for round, y, ys in zip(rounds, median, quantiles, strict=True)
        ]
        return html_of(figure, f"{name}, by round", axes, spots)


def _spot_text(quantiles: np.ndarray, measure: Measure) -> str:
    return "\n".join(
        f"{100 * share:.0f} % of clients up to {measure.text(y)}"
        for share, y in zip(SHARES, quantiles, strict=True)
    )


def _histogram(values: np.ndarray, measure: Measure, index: int, name: str) -> Html:
    from matplotlib.ticker import MaxNLocator

    bars = min(_MOST_BARS, max(5, round(len(values) ** 0.5)))
    with new_figure(5.0, 3.0) as figure:
        axes = figure.add_subplot()
        axes.hist(values, bins=bars, color=RUN[index], rwidth=0.92)
        style_axes(axes, measure.label, "clients")
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=True))
        return html_of(figure, name)
