"""How stale the accepted updates of rounds that do not wait were, and how many tasks waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedmx.report.html import Html, element
from fedmx.report.summary import Point, RunSummary
from fedmx.report.svg import INK, RUN, STEPS, captioned, html_of, new_figure, style_axes

MAX_BARS = 40


def quantile(values: Sequence[int], share: float) -> int:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def staleness_section(run: RunSummary, label: str | None) -> Html | None:
    """Return the distribution of the staleness, and its course with that of the tasks in flight.

    None: no update of the run was accepted in rounds that do not wait.

    Args:
        run: the run.
        label: the run's name on a page with several runs.
    """
    points = [point for point in run.points if point.staleness]
    values = [tau for point in points for tau in point.staleness or ()]
    if not values:
        return None
    fresh = values.count(0)
    text = (
        f"{len(values):,} updates were accepted, {fresh:,} of them fresh. Staleness is the number "
        f"of versions that were made since the task was sent: median {quantile(values, 0.5)}, "
        f"90 % at most {quantile(values, 0.9)}, all at most {max(values)}."
    )
    return element(
        "section",
        element("h2", "Staleness" if label is None else f"Staleness of {label}"),
        element("p", text),
        element(
            "div",
            captioned("Accepted updates by staleness", _histogram(values)),
            captioned("Staleness and tasks in flight by version", _course(points)),
            class_="figures",
        ),
    )


def _histogram(values: Sequence[int]) -> Html:
    """Return bars; if there are many values, several of them share a bar."""
    from matplotlib.ticker import MaxNLocator

    width = 1 + max(values) // MAX_BARS
    counts = Counter(tau // width * width for tau in values)
    with new_figure(5.0, 2.4) as figure:
        axes = figure.add_subplot()
        shares = [100 * number / len(values) for number in counts.values()]
        middles = [begin + (width - 1) / 2 for begin in counts]
        axes.bar(middles, shares, 0.82 * width, color=RUN[0], linewidth=0)
        style_axes(axes, "staleness, versions", "accepted updates, %")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=STEPS, integer=True))
        return html_of(figure, "Accepted updates by staleness")


def _course(points: Sequence[Point]) -> Html:
    """Return the mean and the largest staleness of each version, and its tasks in flight."""
    from matplotlib.ticker import MaxNLocator

    rounds = [point.round for point in points]
    taus = [point.staleness or () for point in points]
    lines = (
        ("tasks in flight", 2, [point.in_flight or 0 for point in points], "--"),
        ("largest staleness", 1, [max(one) for one in taus], ":"),
        ("mean staleness", 0, [sum(one) / len(one) for one in taus], "-"),
    )
    with new_figure(5.0, 2.4) as figure:
        axes = figure.add_subplot()
        for name, colour, heights, dash in lines:
            axes.plot(rounds, heights, color=RUN[colour], label=name, linestyle=dash, linewidth=1.3)
        style_axes(axes, "version", "")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=True))
        figure.legend(
            loc="outside upper center", ncols=3, frameon=False, fontsize=8, labelcolor=INK
        )
        return html_of(figure, "Staleness and tasks in flight by version")
