"""Where a fork comes from, what changed, and what became of both runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedmx.report.groups import comparison
from fedmx.report.html import Child, Html, element, table
from fedmx.report.summary import RunSummary, summarise, table_of
from fedmx.run import RunError, RunFolder


@dataclass(frozen=True)
class Origin:
    """Of which run a fork is, and what happened at its begin.

    Attributes:
        run: the name of the run that it is a fork of.
        folder: the folder of that run.
        round: the last round that both have; 0: they have the initial model.
        by_number: whether the cohorts of these rounds were drawn by the clients' numbers alone.
        overrides: the settings that changed, as ``PATH=VALUE``.
        without: the clients that the fork is without, and that run is not.
        kept: the parts whose memory goes on.
        dropped: the parts whose memory ended with that run.
        empty: the parts that begin without a memory.
        exact: whether nothing of the clients in `without` is in the fork; None: it is without none.
        note: what to know about it, in words.
    """

    run: str
    folder: str
    round: int
    by_number: bool = False
    overrides: tuple[str, ...] = ()
    without: tuple[int, ...] = ()
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    exact: bool | None = None
    note: str = ""

    def record(self) -> dict[str, Any]:
        """Return it as the fact `fork` of a run folder has it."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Origin | None:
        """Return the origin that the facts of a run folder tell; None: the run is no fork."""
        record = facts.get("fork")
        if not isinstance(record, dict):
            return None
        values: dict[str, Any] = {
            one.name: tuple(value) if isinstance(value := record[one.name], list) else value
            for one in fields(cls)
            if one.name in record
        }
        return cls(**values)

    def lines(self) -> Iterator[str]:
        """Yield what there is to know about the fork, a sentence or a list each."""
        for what, names in (
            ("go on with their memory", self.kept),
            ("are gone, with their memory", self.dropped),
            ("are new or have other settings, and begin without a memory", self.empty),
        ):
            if names:
                yield f"These parts {what}: {', '.join(names)}."
        if self.note:
            yield self.note

    def parent(self) -> RunFolder | None:
        """Return the folder of the run that it is a fork of; None: it is not there any more."""
        try:
            folder = RunFolder.open(Path(self.folder), salvage=True)
        except RunError:
            return None
        return folder if folder.name == self.run else None


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
