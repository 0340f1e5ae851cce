"""Groups of runs that differ in nothing but their seed, and their main figures row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePath
from typing import Any, NamedTuple

from fedmx.errors import FedmxError
from fedmx.quantities import QUANTITIES, Quantity
from fedmx.report.formats import (
    NOTHING,
    SHOW,
    duration,
    finite,
    mebibytes,
    number,
    percent,
    plain,
    target_percent,
    target_text,
)
from fedmx.report.summary import (
    ABSENT,
    SIZES,
    TOLERANCE,
    Compression,
    Point,
    RunSummary,
    as_text,
    compared,
)
from layers.compute.engines.evaluation import ACCURACY, LOSS

_SAME_RESULT = ("name", "executor", "run")  # what does not change a result
_FIRST = "logic"  # the section that is compared most often comes first in a name
_LONGEST_WORD = 40


@dataclass(frozen=True)
class Group:
    """Runs of one experiment with different seeds, or one run.

    Attributes:
        name: distinguishes the group from the others.
        runs: at least one.
        settings: the settings in which the groups differ, by path, as texts.
    """

    name: str
    runs: tuple[RunSummary, ...]
    settings: Mapping[str, str]

    @classmethod
    def alone(cls, run: RunSummary, name: str) -> Group:
        """Return a group of one run."""
        return cls(name, (run,), {})

    @property
    def title(self) -> str:
        """The name, how many seeds if there are several, and which runs have not ended."""
        going = [run for run in self.runs if not run.ended]
        if len(self.runs) > 1:
            unfinished = f", {len(going)} not finished" if going else ""
            return f"{self.name} ({len(self.runs)} seeds{unfinished})"
        return f"{self.name} ({rounds_text(going[0])} rounds)" if going else self.name

    @property
    def ended(self) -> tuple[RunSummary, ...]:
        """The runs whose figures are final; means are over them."""
        return tuple(run for run in self.runs if run.ended)

    @property
    def names(self) -> list[str]:
        """A name for each run."""
        if len(self.runs) == 1:
            return [self.name]
        return [f"{self.name}, seed {run.seed}" for run in self.runs]


def grouped(runs: Sequence[RunSummary], labels: Sequence[str]) -> list[Group]:
    """Return groups of runs with the same settings, in the order of each group's first run.

    A group's name lists only settings that differ. If a group has a seed twice, each of its runs
    becomes a group with its label as the name.

    Args:
        runs: one run or more.
        labels: a different name for each.
    """
    together: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, run in enumerate(runs):
        together.setdefault(tuple(sorted(_deciding(run).items())), []).append(index)
    parts: list[list[int]] = []
    for members in together.values():
        seeds = [runs[index].seed for index in members]
        parts += [members] if len(set(seeds)) == len(seeds) else [[index] for index in members]
    found = differing([_deciding(runs[part[0]]) for part in parts])
    names = _names(found, [labels[part[0]] for part in parts])
    return [
        Group(name, tuple(runs[index] for index in part), settings)
        for name, part, settings in zip(names, parts, found, strict=True)
    ]


def deciding(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that may change a result, as texts."""
    return {
        path: as_text(value)
        for path, value in settings.items()
        if path.partition(".")[0] not in _SAME_RESULT
    }


def _deciding(run: RunSummary) -> dict[str, str]:
    """Return what determines the result: settings, the user's code, and whether it is a fork."""
    found = {path: text for path, text in deciding(run.settings).items() if path != "seed"}
    if isinstance(run.folder.facts.get("fork"), dict):
        found["fork"] = "fork"  # its first rounds are another run's
    if isinstance(code := run.folder.facts.get("code"), dict):
        found |= {f"code {file}": str(sha256)[:8] for file, sha256 in code.items()}
    return found


def differing(settings: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return only the settings that differ; `ABSENT` for one that a run does not have."""
    paths = dict.fromkeys(path for one in settings for path in one)
    paths = {p: None for p in paths if len({one.get(p, ABSENT) for one in settings}) > 1}
    return [{path: one.get(path, ABSENT) for path in paths} for one in settings]


def _names(differing: Sequence[Mapping[str, str]], labels: Sequence[str]) -> list[str]:
    """Return the shortest names that are all different."""
    paths = sorted(differing[0], key=lambda path: path.partition(".")[0] != _FIRST)
    distinct = _distinct(differing, [])
    needed: list[str] = []
    for path in paths:
        if _distinct(differing, [*needed, path]) > distinct:
            needed.append(path)
            distinct = _distinct(differing, needed)
    names = [", ".join(filter(None, (word(p, one[p]) for p in needed))) for one in differing]
    if not needed:
        return list(labels)
    times = Counter(names)
    return [
        f"{name} ({label})" if name and times[name] > 1 else name or label
        for name, label in zip(names, labels, strict=True)
    ]


def pair_names(first: Group, second: Group) -> tuple[str, str, str]:
    """Return the name of each of two groups without what they share, and what they share."""
    found = differing([first.settings, second.settings])
    one, two = _names(found, [first.name, second.name])
    if not found[0]:
        return one, two, ""
    shared = {path: text for path, text in first.settings.items() if path not in found[0]}
    return one, two, ", ".join(filter(None, (word(path, text) for path, text in shared.items())))


def _distinct(differing: Sequence[Mapping[str, str]], paths: Sequence[str]) -> int:
    return len({tuple(one[path] for path in paths) for one in differing})


def word(path: str, value: str) -> str:
    """Return one setting as part of a name, as ``fedprox`` or ``mu 0.1``; empty if absent."""
    if value == ABSENT:
        return ""
    key = path.rpartition(".")[2]
    if value in ("null", "none"):
        return f"no {key}"
    if "/" in value:
        value = PurePath(value).name or value
    if len(value) > _LONGEST_WORD:
        value = f"{value[: _LONGEST_WORD // 2]}…{value[-_LONGEST_WORD // 2 :]}"
    name_alone = value not in ("true", "false") and not _is_number(value)
    return value if name_alone else f"{key} {value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Show = Callable[[float | None], str]
"""Returns the text of a value."""


class Cell(NamedTuple):
    """The figure of a group: the value of its run, or the mean and the range over its runs."""

    text: str
    range: str = ""


@dataclass(frozen=True)
class FigureRow:
    """One figure of several runs.

    Attributes:
        label: the name of the figure.
        texts: the text for each run.
        values: the value of each run; None: a mean has no meaning. In it, None: not measured;
            infinity: the target was not reached.
        show: formats a mean.
    """

    label: str
    texts: Sequence[str]
    values: Sequence[float | None] | None = None
    show: Show = number

    @property
    def empty(self) -> bool:
        """Whether no run has a value."""
        return all(text in (NOTHING, mebibytes(0)) for text in self.texts)

    def cell(self, members: Sequence[int], ended: Sequence[bool]) -> Cell:
        """Return the cell of the runs at these positions.

        Args:
            members: the positions.
            ended: whether each run has ended; a mean is over those only.
        """
        texts = [self.texts[place] for place in members]
        if self.values is None or len(members) == 1:
            times = Counter(texts)
            several = [f"{count} × {text}" for text, count in times.items()]
            return Cell(texts[0] if len(times) == 1 else ", ".join(several))
        last = [place for place in members if ended[place]]
        known = [value for place in last if (value := self.values[place]) is not None]
        reached = sum(map(math.isfinite, known))
        if not reached:
            return Cell(texts[0] if len(set(texts)) == 1 else NOTHING)
        if reached < len(known):  # the mean of the others would look too good
            return Cell(NOTHING, f"{reached} of {len(members)} reached it")
        parts = []
        least, most = self.show(min(known)), self.show(max(known))
        if least != most:
            parts.append(f"{least} to {most}")
        if len(known) < len(members):
            parts.append(f"{len(known)} of {len(members)}")
        return Cell(self.show(sum(known) / len(known)), ", ".join(parts))


def further(runs: Sequence[RunSummary]) -> list[Quantity]:
    """Return what has a row besides the metric that stands for the model: the other metrics, and
    what else was measured."""
    found = {one.key: one for run in runs for one in run.metrics} | {
        one.key: one for one in QUANTITIES if one.optional
    }
    first = runs[0].metric.key
    return [one for one in found.values() if one.label and one.key != first]


def rows_of(
    runs: Sequence[RunSummary], target: float | None, client_target: float | None = None
) -> list[FigureRow]:
    """Return the main figures; a row without a value of any run is left out."""

    def row(label: str, values: Sequence[float | None], show: Show = number) -> FigureRow:
        return FigureRow(label, [show(value) for value in values], values, show)

    def last(label: str, values: Sequence[float | None], show: Show = number) -> FigureRow:
        pairs = zip(runs, values, strict=True)
        return FigureRow(label, [so_far(run, show(value)) for run, value in pairs], values, show)

    by_client = [run.final_by_client for run in runs]
    metric = runs[0].metric
    show = SHOW[metric.unit]
    rows = [
        FigureRow("Status", [run.status for run in runs]),
        FigureRow("Rounds", [rounds_text(run) for run in runs]),
        last(f"Final {metric.words}", [run.value(run.final) for run in runs], show),
        FigureRow(
            f"Best {metric.words}",
            [
                so_far(run, f"{show(run.value(b))} (round {b.round})")
                if (b := run.best)
                else NOTHING
                for run in runs
            ],
            [run.best_value for run in runs],
            show,
        ),
        last(
            "Final accuracy by client, mean",
            [point.client_accuracy_mean if point else None for point in by_client],
            percent,
        ),
        last(
            "Final accuracy by client, variance",
            [point.client_accuracy_variance if point else None for point in by_client],
        ),
        *(
            last(one.label, [run.last(one) for run in runs], SHOW[one.unit])
            for one in further(runs)
        ),
        last("Final loss", [run.final_loss for run in runs]),
    ]
    for key, size in SIZES.items():
        rows.append(row(size.label, [run.totals[key] for run in runs], mebibytes))
        if size.messages:
            direction = size.label.removeprefix("Bytes ").capitalize()
            rows += _compression_rows(
                f"{direction} a round", [run.compression.get(key) for run in runs]
            )
    rows.append(row("Machine time", [run.seconds for run in runs], duration))
    if any(run.folder.damage for run in runs):
        rows.append(FigureRow("Damaged, left out", [str(len(run.folder.damage)) for run in runs]))
    rows.append(row("Virtual time", [run.virtual_s for run in runs], duration))
    if target is not None:
        points = [run.reached(target) for run in runs]
        rows += _target_rows(f"To {target_text(metric, target)}", runs, points)
    if client_target is not None:
        points = [run.reached_by_clients(client_target) for run in runs]
        rows += _target_rows(f"To {target_percent(client_target)}, mean over clients", runs, points)
    return [one for one in rows if not one.empty]


def comparison(
    runs: Sequence[RunSummary], target: float | None, client_target: float | None = None
) -> list[tuple[str, list[str]]]:
    """Return the main figures: a label, and a text for each run."""
    return [(row.label, list(row.texts)) for row in rows_of(runs, target, client_target)]


def compare_groups(
    groups: Sequence[Group], target: float | None, client_target: float | None = None
) -> list[tuple[str, list[Cell]]]:
    """Return the main figures: a label, and a cell for each group."""
    runs = [run for group in groups for run in group.runs]
    ends = list(accumulate(len(group.runs) for group in groups))
    places = [range(end - len(group.runs), end) for end, group in zip(ends, groups, strict=True)]
    rows = rows_of(runs, target, client_target)
    ended = [run.ended for run in runs]
    return [(row.label, [row.cell(members, ended) for members in places]) for row in rows]


def check_target(metric: Quantity, target: float) -> None:
    """Check that a target is a value of a metric, as 0.98 of an accuracy.

    Raises:
        FedmxError: it is not; a share may have been given in percent.
    """
    if metric.unit == "share" and not 0 < target <= 1:
        article = "an" if metric.words[0] in "aeiou" else "a"
        raise FedmxError(
            f"target: must be {article} {metric.words} from 0 to 1, as 0.98, not {target:g}"
        )
    if not math.isfinite(target):
        raise FedmxError(f"target: must be a finite number, not {target:g}")


def common_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """Return the target of all runs: the given one, or the easiest one at which they end.

    Raises:
        FedmxError: the given one is not a value of their metric.
    """
    metric = runs[0].metric
    if given is not None:
        check_target(metric, given)
        return given
    return easiest(metric, [run.settings for run in runs])


def common_client_target(runs: Sequence[RunSummary], given: float | None = None) -> float | None:
    """Return the target of the mean over clients; None if no run has measured that mean."""
    if not any(run.final_by_client for run in runs):
        return None
    if given is not None and runs[0].metric.key == ACCURACY:
        return given
    return min(_numbers("stop.client_accuracy", [run.settings for run in runs]), default=None)


def easiest(metric: Quantity, settings: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the target of a metric, in the ``stop`` of some experiments, that is reached first."""
    own = metric.key in (ACCURACY, LOSS)
    found = _numbers(f"stop.{metric.key}" if own else f"stop.metric.{metric.name}", settings)
    return min(found, key=lambda target: metric.sign * target, default=None)


def _numbers(path: str, settings: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the numbers that some experiments have at a path."""
    return [number for one in settings if (number := finite(one.get(path))) is not None]


def rounds_text(run: RunSummary) -> str:
    """Return how many rounds a run has, and how many were planned."""
    planned = run.planned_rounds
    return str(run.rounds) if planned is None else f"{run.rounds} of {planned}"


def so_far(run: RunSummary, text: str) -> str:
    """Return the text of a last or best figure; a run that goes on has none yet."""
    return text if run.ended or text == NOTHING else f"{text} so far"


def not_reached(run: RunSummary) -> str:
    """Return the words for a target that a run has not reached."""
    return "not reached" if run.ended else "not yet"


def _target_rows(
    label: str, runs: Sequence[RunSummary], points: Sequence[Point | None]
) -> list[FigureRow]:
    """Return the rounds, bytes and time up to a target, by the clocks that the runs have."""
    quantities: list[tuple[str, list[float | None], Show]] = [
        ("bytes up and down", [p.bytes if p else math.inf for p in points], mebibytes),
        ("machine time", [p.time_s if p else math.inf for p in points], duration),
        ("virtual time", [p.virtual_s if p else math.inf for p in points], duration),
    ]
    return [
        FigureRow(
            f"{label}: rounds",
            [str(p.round) if p else not_reached(run) for run, p in zip(runs, points, strict=True)],
            [float(p.round) if p else math.inf for p in points],
            lambda value: NOTHING if value is None else plain(value),
        ),
        *(
            FigureRow(
                f"{label}: {name}",
                [show(None if one == math.inf else one) for one in values],
                values,
                show,
            )
            for name, values, show in quantities
        ),
    ]


def _compression_rows(label: str, sizes: Sequence[Compression | None]) -> list[FigureRow]:
    """Return the bytes of a direction in a round, and the bytes in float32 if they differ."""
    bytes_per_round = [one.sent_bytes / one.rounds if one else None for one in sizes]
    texts = [one.per_round if one else NOTHING for one in sizes]
    rows = [FigureRow(label, texts, bytes_per_round, mebibytes)]
    if any(one and abs(one.ratio - 1) > TOLERANCE for one in sizes):
        against_float32 = [one.against_float32 if one else NOTHING for one in sizes]
        ratios = [one.ratio if one else None for one in sizes]
        rows.append(FigureRow(f"{label} against float32", against_float32, ratios, _compared))
    return rows


def _compared(ratio: float | None) -> str:
    return NOTHING if ratio is None else compared(ratio)
