"""Groups over their seeds, and their differences seed by seed, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedmx.report.formats import NOTHING
from fedmx.report.groups import Group, pair_names
from fedmx.report.html import Child, Html, element, join, table
from fedmx.report.metrics import BEST, Metric, Pairs, Show, compare_pair, metrics_for
from fedmx.report.svg import INK, PANEL, RUN, captioned, html_of, new_figure, style_axes

if TYPE_CHECKING:
    from fedmx.quantities import Quantity
    from fedmx.report.statistics import Comparison, Estimate

_MOST_DRAWN = 20
_MOST_TOLD = 4  # pairs with a sentence; of more, only the number of significant ones is told
_INCHES = 5.2  # as wide as the page of a phone at the size of its texts
_LINE_INCHES = 0.42


class Difference(NamedTuple):
    """A pair of groups, and how they compare over their seeds."""

    first: Group
    second: Group
    found: Comparison

    @property
    def name(self) -> str:
        """Both names, as a difference, and what they share."""
        first, second, shared = pair_names(self.first, self.second)
        return ", ".join(filter(None, (f"{first} minus {second}", shared)))

    @property
    def side(self) -> int:
        """1 if the interval is above 0, -1 if it is below, 0 if there is none or it has both."""
        low, high = self.found.difference.low, self.found.difference.high
        return 0 if low is None or high is None else int(low > 0) - int(high < 0)


def verdict_on_pairs(pairs: Pairs, of: Quantity) -> Html | None:
    """Return the verdict on pairs of groups by their best values, with their final ones.

    None: no pair has two seeds in common.

    Args:
        pairs: the groups that are compared.
        of: the metric that stands for the models.
    """
    metrics = metrics_for(of, None)
    judged = _compared(pairs, metrics[BEST])
    if not judged:
        return None
    lines: list[Child] = [_line(one, metrics[BEST], metrics[of.key]) for one in judged]
    if len(lines) > _MOST_TOLD:
        number = sum(one.side != 0 for one in judged)
        words = f"{number} of {len(judged)} pairs differ significantly in their best {of.words}"
        lines = [element("li", words)]
    words = f"Judged by the best {of.words} of each run; in brackets: 95 % intervals."
    note = element("p", words, class_="quiet")
    return element("div", element("ul", *lines, class_="verdicts of-pairs"), note)


def _line(one: Difference, judged: Metric, final: Metric) -> Html:
    """Return the sentence about a pair, and the difference of the other metric after it."""
    is_better = one.side and (one.side > 0) == judged.larger
    last = compare_pair(final, one.first, one.second)
    more = "" if last is None else f"{final.words} {_with_unit(last.difference, final)}"
    return element(
        "li",
        element("div", _sentence(one, judged), class_="good" if is_better else None),
        element("div", more, class_="quiet"),
    )


def _sentence(one: Difference, metric: Metric) -> str:
    """Return which of two groups is better, by how much, and over how many seeds."""
    first, second, shared = pair_names(one.first, one.second)
    estimate, seeds = one.found.difference, one.found.seeds
    if one.side:
        better = (one.side > 0) == metric.larger
        words = f"{first} is {'better' if better else 'worse'} than {second}"
    elif estimate.low is None:
        words = f"{first} against {second}"
    else:
        words = f"{first} and {second} do not differ significantly"
    value = _with_unit(estimate, metric)
    number = f"{seeds} seeds" if _has_enough(seeds) else f"{seeds} seeds: too few for an interval"
    return f"{', '.join(filter(None, (words, shared)))}: {metric.words} {value}, {number}"


def _has_enough(seeds: int) -> bool:
    from fedmx.report.statistics import FEWEST_PAIRS

    return seeds >= FEWEST_PAIRS


def _with_unit(estimate: Estimate, metric: Metric) -> str:
    if estimate.value is None:
        return NOTHING
    value = metric.show_difference(estimate.value) + (" points" if metric.percent else "")
    if estimate.low is None or estimate.high is None:
        return value
    ends = (metric.show_difference(end) for end in (estimate.low, estimate.high))
    return f"{value} [{', '.join(ends)}]"


def _compared(pairs: Pairs, metric: Metric) -> list[Difference]:
    return [
        Difference(first, second, found)
        for first, second in pairs
        if (found := compare_pair(metric, first, second)) is not None
    ]


def differences_section(groups: Sequence[Group], pairs: Pairs, target: float | None) -> Html | None:
    """Return the section about groups of several seeds; None: no two groups share two seeds.

    Args:
        groups: the groups of runs.
        pairs: the groups that are compared.
        target: the value of their metric to which rounds and bytes are counted.
    """
    parts: list[Child] = []
    for metric in metrics_for(groups[0].runs[0].metric, target).values():
        compared = _compared(pairs, metric)
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
    with new_figure(_INCHES, 0.7 + _LINE_INCHES * len(drawn)) as figure:
        axes = figure.add_subplot()
        axes.axvline(0.0, color=INK, linewidth=0.8)
        for place, one in enumerate(drawn):
            estimate = one.found.difference
            ends = [(end or 0.0) / metric.unit for end in (estimate.low, estimate.high)]
            axes.plot(ends, [place, place], color=RUN[0], linewidth=1.6)
            axes.plot(
                [(estimate.value or 0.0) / metric.unit],
                [place],
                marker="o",
                markersize=5,
                color=RUN[0],
                markerfacecolor=RUN[0] if one.side else "none",
            )
            axes.text(
                *(0.01, place - 0.3, one.name),
                transform=axes.get_yaxis_transform(),
                va="center",
                color=INK,
                fontsize=8,
                parse_math=False,
                bbox={"facecolor": PANEL, "edgecolor": "none", "pad": 1.0},
            )
        style_axes(axes, f"difference of {metric.title}", "")
        axes.set_yticks([])
        axes.set_ylim(len(drawn) - 0.6, -0.7)
        axes.grid(visible=False, axis="y")
        svg = html_of(figure, f"Differences of {metric.title}")
    caption = f"Differences of {metric.title}; filled: the interval excludes 0"
    figure_ = captioned(caption, svg, f"differences-{metric.title}")
    return element("div", figure_, class_="differences-figure")


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
    made = table(["pair", "seeds", "difference", "better"], rows, class_="numbers names")
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
    head: list[Child] = ["group", "seeds", "median", "interquartile mean"]
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
    interval = f"[{show(estimate.low)}, {show(estimate.high)}]"
    return join(show(estimate.value), " ", element("span", interval, class_="interval"))
