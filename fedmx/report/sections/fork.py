"""The section about a fork: of which run it is one, what changed, and what became of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedmx.report.figures.html import Child, Html, element, table
from fedmx.report.records.comparison import comparison
from fedmx.report.records.origin import Origin
from fedmx.report.records.settings import table_of
from fedmx.report.records.summary import RunSummary, summarise
from fedmx.run import RunFolder

_NOT_SHOWN = ("executor", "network", "run")  # they do not change the result


@dataclass(frozen=True)
class Branches:
    """A fork and the run that it is a fork of.

    Attributes:
        origin: where the fork comes from.
        fork: its figures.
        parent: those of the run; None: its folder is not there any more.
    """

    origin: Origin
    fork: RunSummary
    parent: RunSummary | None

    @classmethod
    def of(cls, run: RunFolder, summary: RunSummary) -> Branches | None:
        """Return the branches of a run that is a fork; None: it is none."""
        origin = Origin.of(run.facts)
        if origin is None:
            return None
        parent = origin.parent()
        return cls(origin, summary, None if parent is None else summarise(parent))

    def curves(self) -> tuple[list[RunSummary], list[str]]:
        """Return what to draw, and its names: the fork from where it begins, and the whole run."""
        if self.parent is None:
            return [self.fork], ["this fork"]
        shared = [p.round for p in self.fork.evaluated if p.round <= self.origin.round]
        begin = max(shared, default=0)
        own = replace(self.fork, points=[p for p in self.fork.points if p.round >= begin])
        return [own, self.parent], ["this fork", self.origin.run]


def fork_section(branches: Branches | None, label: str | None) -> Html | None:
    """Return what there is to say of a fork, or None if the run is none."""
    if branches is None:
        return None
    origin, parent = branches.origin, branches.parent
    begin = f"after round {origin.round}" if origin.round else "from the initial model on"
    parts: list[Child] = [
        element("h2", "Fork" if label is None else f"Fork {label}"),
        element("p", f"This run is another future of {origin.run}, {begin}."),
        *(element("p", line) for line in origin.lines()),
    ]
    if parent is None:
        text = f"The folder of that run, {origin.folder}, is not there any more."
        return element("section", *parts, element("p", text, class_="quiet"))
    runs, head = [branches.fork, parent], ["", "this fork", origin.run]
    changed = _rows([run.settings for run in runs])
    if changed:
        parts.append(table(["differs", *head[1:]], changed, class_="settings differs"))
    else:
        parts.append(element("p", "All settings that decide the result are the same."))
    results: list[list[Child]] = [[name, *cells] for name, cells in comparison(runs, None)]
    parts += [element("h3", "Both futures"), table([*head], results, class_="numbers")]
    return element("section", *parts)


def _rows(settings: Sequence[Mapping[str, Any]]) -> list[list[Child]]:
    return [
        [path, *texts]
        for path, texts in table_of(settings)
        if len(set(texts)) > 1 and path.partition(".")[0] not in _NOT_SHOWN
    ]
