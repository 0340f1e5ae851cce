"""Groups over their seeds, and their differences seed by seed, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedmx.report.formats import NOTHING
from fedmx.report.groups import Group
from fedmx.report.html import Child, Html, element, join, table
from fedmx.report.metrics import Metric, Pairs, Show, compare_pair, shown
from fedmx.report.svg import INK, RUN, captioned, html_of, new_figure, style_axes

if TYPE_CHECKING:
    from fedmx.report.statistics import Comparison, Estimate

_MOST_DRAWN = 20
_LINE_INCHES = 0.28


class Difference(NamedTuple):
    """A pair of groups, and how they compare over their seeds."""

    first: Group
    second: Group
    found: Comparison

    @property
    def name(self) -> str:
        """Both names, as a difference."""
        return f"{self.first.name} minus {self.second.name}"


def differences_section(groups: Sequence[Group], pairs: Pairs, target: float | None) -> Html | None:
    """Return the section about groups of several seeds; None: no two groups share two seeds.

    Args:
        groups: the groups of runs.
        pairs: the groups that are compared.
        target: the value of their metric to which rounds and bytes are counted.
    """
    parts: list[Child] = []
    for metric in shown(groups[0].runs[0].metric, target).values():
        compared = [
            Difference(first, second, found)
            for first, second in pairs
            if (found := compare_pair(metric, first, second)) is not None
        ]
        if compared:
            parts += [element("h3", metric.title[:1].upper() + metric.title[1:])]
            parts += [_figure(compared, metric), _table(compared, metric)]
            parts.append(_over_seeds(groups, metric))
    if not parts:
        return None
    words = (
        "Intervals are at 95 %. A difference is the mean over the seeds that have ended in both; "
        "if its interval contains 0, it is not significant. Better: the probability that a run of "
        "the first is better than a run of the second."
    )
    heading = element("h2", "Differences, seed by seed")
    return element("section", heading, element("p", words, class_="quiet"), *parts)


def _figure(compared: Sequence[Difference], metric: Metric) -> Html | None:
    """Return a line for each interval, around a line at 0; None: there are none, or too many."""
    drawn = [one for one in compared if one.found.difference.low is not None]
    if not drawn or len(drawn) > _MOST_DRAWN:
        return None
    with new_figure(9.5, 0.7 + _LINE_INCHES * len(drawn)) as figure:
        axes = figure.add_subplot()
        axes.axvline(0.0, color=INK, linewidth=0.8)
        for place, one in enumerate(drawn):
            estimate = one.found.difference
            ends = [(end or 0.0) / metric.unit for end in (estimate.low, estimate.high)]
            significant = ends[0] * ends[1] > 0
            axes.plot(ends, [place, place], color=RUN[0], linewidth=1.6)
            axes.plot(
                [(estimate.value or 0.0) / metric.unit],
                [place],
                marker="o",
                markersize=5,
                color=RUN[0],
                markerfacecolor=RUN[0] if significant else "none",
            )
        style_axes(axes, f"difference of {metric.title}", "")
        axes.set_yticks(range(len(drawn)), [one.name for one in drawn], parse_math=False)
        axes.set_ylim(len(drawn) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        svg = html_of(figure, f"Differences of {metric.title}")
    caption = f"Differences of {metric.title}; filled: the interval excludes 0"
    return captioned(caption, svg, f"differences-{metric.title}", wide=True)


def _table(compared: Sequence[Difference], metric: Metric) -> Html:
    rows: list[list[Child]] = [
        [
            one.name,
            one.found.seeds,
            _with_interval(one.found.difference, metric.show_difference),
            NOTHING if one.found.improvement is None else f"{100 * one.found.improvement:.0f} %",
        ]
        for one in compared
    ]
    made = table(["", "seeds", "difference", "better"], rows, class_="numbers names")
    if len(compared) <= _MOST_DRAWN:
        return made
    return element("details", element("summary", f"{len(compared)} differences"), made)


def _over_seeds(groups: Sequence[Group], metric: Metric) -> Html:
    """Return the medians and interquartile means of the groups."""
    from fedmx.report.statistics import summarise

    rows: list[list[Child]] = []
    for group in groups:
        values = [value for run in group.ended if (value := metric.of(run)) is not None]
        found = summarise(values)
        seeds = f"{found.reached} of {found.seeds}" if found.reached < found.seeds else found.seeds
        texts = [_with_interval(one, metric.show) for one in (found.median, found.iqm)]
        rows.append([group.name, seeds, *texts])
    head: list[Child] = ["", "seeds", "median", "interquartile mean"]
    return element(
        "details",
        element("summary", "each over its seeds"),
        table(head, rows, class_="numbers names"),
    )


def _with_interval(estimate: Estimate, show: Show) -> Html:
    if estimate.value is None:
        return join(NOTHING)
    if estimate.low is None or estimate.high is None:
        return join(show(estimate.value))
    return join(show(estimate.value), f" [{show(estimate.low)}, {show(estimate.high)}]")
