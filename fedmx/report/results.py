"""The results: a verdict in a few words, tiles of one run, or a table of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fedmx.report.curves import Targets
from fedmx.report.formats import (
    SHOW,
    both_ways,
    duration,
    finite,
    mebibytes,
    number,
    percent,
    target_percent,
    target_text,
    value_text,
)
from fedmx.report.groups import (
    Cell,
    Group,
    compare_groups,
    further,
    not_reached,
    rounds_text,
    so_far,
)
from fedmx.report.html import Child, Html, card, element, join, turned
from fedmx.report.summary import SIZES, Point, RunSummary
from fedmx.report.svg import sample

_RISES_FROM = 1.25  # the last losses, against the lowest ones
_AT_A_TIME = 3  # losses in a median, so that one bad round is no trend
_NEVER = "never above chance"
_CHANCE_FACTOR, _CHANCE_MARGIN = 1.25, 0.03


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run or a group.

    Attributes:
        words: the outcome in a few words.
        kind: *bad*: the model is useless, or the run failed; *good*: the target was reached.
    """

    words: str
    kind: Literal["bad", "good", "plain"] = "plain"

    @property
    def bad(self) -> bool:
        """Whether the model is useless, or the run failed."""
        return self.kind == "bad"


def verdict(run: RunSummary, target: float | None = None) -> Verdict:
    """Return the verdict on one run.

    Args:
        run: its figures.
        target: the value of its metric to reach; None: none.
    """
    if not run.evaluated:
        words = "no round was evaluated" if run.points else "no round has ended"
        return Verdict(words, "bad" if run.status == "failed" else "plain")
    wrong = [words for words in (_no_number(run), _rises(run), _at_chance(run)) if words]
    if target is not None and (reached := run.reached(target)) is not None:
        what = f"target {target_text(run.metric, target)} after {_rounds(reached.round)}"
        words = "; ".join([f"{what}, {both_ways(reached.bytes)}", *wrong])
        return Verdict(words, "bad" if _useless(run) else "plain" if wrong else "good")
    if run.status == "failed":
        wrong.insert(0, f"failed after {_rounds(run.rounds)}")
    going = not run.ended and run.status != "failed"
    best = run.best
    if best is None or (wrong and wrong[-1] == _NEVER):
        words = "; ".join(wrong) or f"the {run.metric.words} is not a number"
        return Verdict(words, "bad")
    where = f"{value_text(run.metric, run.value(best))} after {_rounds(best.round)}"
    if target is not None:
        yet = "" if run.ended else "yet "  # a failed run can be resumed
        rest = f"target {target_text(run.metric, target)} not {yet}reached, best {where}"
    else:
        rest = f"best {where}, {both_ways(best.bytes)}"
    bad = _useless(run) or run.status == "failed"
    words = "; ".join([*wrong, rest])
    if going:
        words = f"after {rounds_text(run)} rounds: {words}"
    return Verdict(words, "bad" if bad else "plain")


def group_verdict(group: Group, target: float | None = None) -> Verdict:
    """Return the verdict on the runs of a group together; see `verdict`."""
    runs = group.runs
    if len(runs) == 1:
        return verdict(runs[0], target)
    verdicts = [verdict(run, target) for run in runs]
    bad = [one for one in verdicts if one.bad]
    parts = []
    if going := len(runs) - len(group.ended):
        have = "has" if going == 1 else "have"
        parts.append(f"{going} of {len(runs)} seeds {have} not finished")
    if bad:
        reasons = dict.fromkeys(one.words.partition(";")[0] for one in bad)
        parts.append(f"{len(bad)} of {len(runs)} seeds went wrong: {' / '.join(reasons)}")
    if target is not None:
        parts.append(_together(runs, target, yet=going > 0))
    else:
        bests = sorted(best for run in runs if (best := run.best_value) is not None)
        if bests:
            texts = [value_text(runs[0].metric, best) for best in bests]
            parts.append(f"best {_span(texts)}")
    good = all(one.kind == "good" for one in verdicts)
    return Verdict("; ".join(parts), "bad" if bad else "good" if good else "plain")


def _together(runs: Sequence[RunSummary], target: float, *, yet: bool) -> str:
    points = [point for run in runs if (point := run.reached(target)) is not None]
    what = f"target {target_text(runs[0].metric, target)}"
    if not points:
        return f"{what} not {'yet ' if yet else ''}reached in {len(runs)} seeds"
    rounds = sorted(point.round for point in points)
    sizes = sorted(point.bytes for point in points)
    who = "" if len(points) == len(runs) else f" in {len(points)} of {len(runs)} seeds"
    after = _rounds(rounds[0]) if rounds[0] == rounds[-1] else f"{rounds[0]} to {rounds[-1]} rounds"
    return f"{what}{who} after {after}, {_span([mebibytes(size) for size in sizes])} up and down"


def _span(texts: Sequence[str]) -> str:
    """Return the first and the last of sorted texts."""
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _rounds(count: int) -> str:
    return f"{count} round" if count == 1 else f"{count} rounds"


def _useless(run: RunSummary) -> bool:
    """Return whether the last model is no better than chance, or worse than the first one."""
    losses = [point.loss for point in run.evaluated if point.loss is not None]
    worse = _rises(run) is not None and losses[-1] > losses[0]
    return worse or _no_number(run) is not None or _at_chance(run) is not None


def _no_number(run: RunSummary) -> str | None:
    """Return since when the loss is infinite or NaN, if it still is at the end."""
    since = _since([point.loss is None for point in run.evaluated], run.evaluated)
    measured = any(point.loss is not None for point in run.evaluated)
    return f"the loss is not a number since round {since}" if since and measured else None


def _at_chance(run: RunSummary) -> str | None:
    """Return since when the accuracy is at chance, if it still is at the end."""
    chance = finite(run.folder.facts.get("chance"))
    if chance is None:
        return None
    limit = min(chance * _CHANCE_FACTOR, chance + _CHANCE_MARGIN)
    low = [(point.accuracy or 0.0) <= limit for point in run.evaluated]
    since = _since(low, run.evaluated)
    if since is None:
        return None
    return _NEVER if all(low) else f"at chance since round {since}"


def _since(flags: Sequence[bool], points: Sequence[Point]) -> int | None:
    """Return the first round after which all flags are set; None: the last is not."""
    since = None
    for flag, point in zip(reversed(flags), reversed(points), strict=True):
        if not flag:
            break
        since = point.round
    return since


def _rises(run: RunSummary) -> str | None:
    """Return since when the loss rises, if its last values are well above its lowest."""
    measured = [(p.round, p.loss) for p in run.evaluated if p.loss is not None]
    losses = [loss for _, loss in measured]
    if len(losses) < 2:
        return None
    width = min(_AT_A_TIME, max(1, len(losses) // 2))
    middles = [median(losses[i : i + width]) for i in range(len(losses) - width + 1)]
    lowest = min(middles)
    if lowest < 0 or middles[-1] < _RISES_FROM * lowest or middles[-1] == lowest:
        return None
    place = losses.index(min(losses[: len(losses) - width + 1]))
    return f"loss rises since round {measured[place][0]}"


def cards(run: RunSummary, targets: Targets) -> Html:
    """Return the tiles of one run, one for each figure that was measured."""
    final, best, by_client = run.final, run.best, run.final_by_client
    target, client_target = targets
    metric, show = run.metric, SHOW[run.metric.unit]
    tiles: list[Html] = []
    if final is not None:
        label = f"Final {metric.words}" if run.ended else f"{metric.words.capitalize()} so far"
        more, text = f"after round {final.round}", show(run.value(final))
        is_best = text == show(run.best_value)
        if is_best:
            more += ", the best"
        tiles.append(card(label, text, more))
        if best is not None and not is_best:
            label = so_far(run, f"Best {metric.words}")
            tiles.append(card(label, show(run.best_value), f"round {best.round}"))
    if by_client is not None:
        spread = f"mean over clients; variance {number(by_client.client_accuracy_variance)}"
        label = "Final accuracy by client" if run.ended else "Accuracy by client so far"
        tiles.append(card(label, percent(by_client.client_accuracy_mean), spread))
    for one in further([run]):
        if (value := run.last(one)) is not None:
            parts = run.last_parts(one).items()
            note = ", ".join(f"{name}: {SHOW[one.unit](part)}" for name, part in parts)
            tiles.append(card(so_far(run, one.label), SHOW[one.unit](value), note))
    if run.final_loss is not None:
        label = "Final loss" if run.ended else "Loss so far"
        tiles.append(card(label, number(run.final_loss)))
    tiles.append(card("Rounds", rounds_text(run), None if run.waits else "each makes a version"))
    for key, size in SIZES.items():
        if run.totals[key]:
            note = "; ".join(filter(None, (size.note, str(run.compression.get(key, "")))))
            tiles.append(card(size.label, mebibytes(run.totals[key]), note))
    if run.seconds:
        per_round = f"{duration(run.seconds / len(run.points))} a round, with evaluation"
        tiles.append(card("Machine time", duration(run.seconds), per_round))
    if run.virtual:
        per_round = f"{duration((run.virtual_s or 0.0) / len(run.points))} a round"
        tiles.append(card("Virtual time", duration(run.virtual_s), per_round))
    if target is not None:
        label = f"To {target_text(metric, target)}"
        tiles.append(_target_card(label, run, run.reached(target)))
    if client_target is not None:
        label = f"To {target_percent(client_target)}, mean over clients"
        tiles.append(_target_card(label, run, run.reached_by_clients(client_target)))
    return element("section", element("h2", "Results"), element("div", *tiles, class_="cards"))


def verdicts(groups: Sequence[Group], target: float | None) -> Html:
    """Return a line for each group: its sample line, its name and its verdict."""
    lines = []
    for index, group in enumerate(groups):
        found = group_verdict(group, target)
        name = element("strong", group.title)
        words = element("span", found.words, class_=found.kind)
        lines.append(element("li", sample(index), name, ": ", words))
    return element("ul", *lines, class_="verdicts")


def side_by_side(groups: Sequence[Group], targets: Targets) -> Html:
    """Return the table of several groups; many groups have a row each instead of a column."""
    found: list[tuple[str, list[Child]]] = [
        (label, [_cell(cell) for cell in cells])
        for label, cells in compare_groups(groups, *targets)
    ]
    runs = [run for group in groups for run in group.runs]
    ends = {(run.status, run.reason) for run in runs}
    if any(run.reason for run in runs) and not (len(ends) == 1 and runs[0].status == "done"):
        found.insert(1, ("Why it ended", [_reasons(group) for group in groups]))
    names = [join(sample(index), group.title) for index, group in enumerate(groups)]
    parts: list[Child] = [element("h2", "Results"), turned("", names, found, "numbers")]
    if any(len(group.runs) > 1 for group in groups):
        words = "With several seeds: the mean over those that have ended, and below it the range."
        if any(label.startswith("To ") for label, _ in found):
            words += " There is no mean of costs to a target that some of them missed."
        parts.append(element("p", words, class_="quiet"))
    return element("section", *parts)


def _cell(cell: Cell) -> Html:
    return join(cell.text, element("div", cell.range, class_="range") if cell.range else None)


def _reasons(group: Group) -> Html:
    if len({run.reason for run in group.runs}) == 1:
        texts = [group.runs[0].reason]
    else:
        texts = [f"seed {run.seed}: {run.reason}" for run in group.runs if run.reason]
    return element("div", *(element("div", text) for text in texts if text), class_="wrap")


def _target_card(label: str, run: RunSummary, point: Point | None) -> Html:
    if point is None:
        return card(label, not_reached(run))
    clock, seconds = ("virtual", point.virtual_s) if point.virtual else ("machine", point.time_s)
    size, time = (one.replace(" ", "\u00a0") for one in (both_ways(point.bytes), duration(seconds)))
    return card(label, f"round {point.round}", f"{size}, {time} of {clock} time")
