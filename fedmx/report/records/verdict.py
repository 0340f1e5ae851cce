"""What became of a run, in a few words, and whether that is bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fedmx.report.records.groups import Group
from fedmx.report.records.points import Point
from fedmx.report.records.quantities import finite, mebibytes, percent, target_percent
from fedmx.report.records.summary import RunSummary

_RISES_FROM = 1.25  # the last losses, against the lowest ones
_AT_A_TIME = 3  # losses of which the median counts, so that one bad round is no trend
_NEVER = "never above chance"
_CHANCE_FACTOR, _CHANCE_MARGIN = 1.25, 0.03


@dataclass(frozen=True)
class Verdict:
    """What became of a run or a group.

    Attributes:
        words: a few.
        bad: whether the model is of no use, or the run failed.
        good: whether the target was reached.
    """

    words: str
    bad: bool = False
    good: bool = False

    @property
    def kind(self) -> str:
        """``bad``, ``good`` or ``plain``."""
        return "bad" if self.bad else "good" if self.good else "plain"


def verdict(run: RunSummary, target: float | None = None) -> Verdict:
    """Return the verdict on one run.

    Args:
        run: its figures.
        target: the accuracy, 0 to 1, that it was to reach; None: there is none.
    """
    if not run.evaluated:
        words = "no round was evaluated" if run.points else "no round has ended"
        return Verdict(words, bad=run.status == "failed")
    wrong = [words for words in (_no_number(run), _rises(run), _at_chance(run)) if words]
    best = run.best()
    assert best is not None
    if target is not None and (reached := run.reached(target)) is not None:
        what = f"target {target_percent(target)} after {_rounds(reached.round)}"
        words = "; ".join([f"{what}, {mebibytes(reached.bytes)}", *wrong])
        return Verdict(words, bad=_useless(run), good=not wrong)
    if run.status == "failed":
        wrong.insert(0, f"failed after {_rounds(run.points[-1].round)}")
    where = f"{percent(best.accuracy)} after {_rounds(best.round)}"
    if wrong and wrong[-1] == _NEVER:
        return Verdict("; ".join(wrong), bad=True)
    if target is not None:
        rest = f"target {target_percent(target)} not reached, best {where}"
    else:
        rest = f"best {where}, {mebibytes(best.bytes)}"
    return Verdict("; ".join([*wrong, rest]), bad=_useless(run) or run.status == "failed")


def group_verdict(group: Group, target: float | None = None) -> Verdict:
    """Return the verdict on the runs of a group together; see `verdict`."""
    runs = group.runs
    if len(runs) == 1:
        return verdict(runs[0], target)
    verdicts = [verdict(run, target) for run in runs]
    bad = [one for one in verdicts if one.bad]
    parts = []
    if bad:
        reasons = dict.fromkeys(one.words.partition(";")[0] for one in bad)
        parts.append(f"{len(bad)} of {len(runs)} seeds went wrong: {' / '.join(reasons)}")
    if target is not None:
        parts.append(_together(runs, target))
    else:
        bests = [best.accuracy or 0.0 for run in runs if (best := run.best())]
        if bests:
            parts.append(f"best {_span([percent(one) for one in sorted(bests)])}")
    return Verdict("; ".join(parts), bad=bool(bad), good=all(one.good for one in verdicts))


def _together(runs: Sequence[RunSummary], target: float) -> str:
    points = [point for run in runs if (point := run.reached(target)) is not None]
    what = f"target {target_percent(target)}"
    if not points:
        return f"{what} not reached in {len(runs)} seeds"
    rounds = sorted(point.round for point in points)
    sizes = sorted(point.bytes for point in points)
    all_of_them = len(points) == len(runs)
    who = "" if all_of_them else f" in {len(points)} of {len(runs)} seeds"
    after = _rounds(rounds[0]) if rounds[0] == rounds[-1] else f"{rounds[0]} to {rounds[-1]} rounds"
    return f"{what}{who} after {after}, {_span([mebibytes(size) for size in sizes])}"


def _span(texts: Sequence[str]) -> str:
    """Return the first and the last of sorted texts."""
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _rounds(count: int) -> str:
    return f"{count} round" if count == 1 else f"{count} rounds"


def _useless(run: RunSummary) -> bool:
    """Return whether the last model is no better than a guess, or worse than the first one."""
    losses = [point.loss for point in run.evaluated if point.loss is not None]
    worse = _rises(run) is not None and losses[-1] > losses[0]
    return worse or _no_number(run) is not None or _at_chance(run) is not None


def _no_number(run: RunSummary) -> str | None:
    """Return since when the loss is infinite or no number, if it is at the end."""
    since = _since([point.loss is None for point in run.evaluated], run.evaluated)
    measured = any(point.loss is not None for point in run.evaluated)
    return f"the loss is no number since round {since}" if since and measured else None


def _at_chance(run: RunSummary) -> str | None:
    """Return since when the accuracy is that of a guess, if it is at the end."""
    chance = finite(run.facts.get("chance"))
    if chance is None:
        classes = finite(run.facts.get("classes"))
        chance = 1 / classes if classes and classes > 1 else None
    if chance is None:
        return None
    limit = min(chance * _CHANCE_FACTOR, chance + _CHANCE_MARGIN)
    low = [(point.accuracy or 0.0) <= limit for point in run.evaluated]
    since = _since(low, run.evaluated)
    if since is None:
        return None
    return _NEVER if all(low) else f"at chance since round {since}"


def _since(flags: Sequence[bool], points: Sequence[Point]) -> int | None:
    """Return the round from which on all flags are set; None: the last is not."""
    since = None
    for flag, point in zip(reversed(flags), reversed(points), strict=True):
        if not flag:
            break
        since = point.round
    return since


def _rises(run: RunSummary) -> str | None:
    """Return from where the loss rises, if its last values are well above its lowest."""
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
