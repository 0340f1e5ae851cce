"""The origin of a fork, its changes, and the results of both runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedmx.report.groups import comparison
from fedmx.report.html import Child, Html, element, table
from fedmx.report.summary import RunSummary, table_of
from fedmx.run import RunError, RunFolder

_NOT_SHOWN = ("executor", "network", "run")  # sections that do not change the result


@dataclass(frozen=True)
class Origin:
    """The parent run of a fork, and what changed.

    Attributes:
        run: the name of the parent run.
        folder: the folder of the parent run.
        round: the last round that both share; 0: they share the initial model.
        by_number: whether the cohorts of these rounds were drawn by the clients' numbers alone.
        overrides: the settings that changed, as ``PATH=VALUE``.
        without: the clients that only the fork leaves out.
        kept: the parts that keep their memory.
        dropped: the parts that the fork no longer has.
        empty: the parts that start without a memory.
        exact: whether the fork has nothing of the clients in `without`; None: it leaves out none.
        note: a remark in words.
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
        """Return the fact `fork` of a run folder."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Origin | None:
        """Return the origin from the facts of a run folder; None: the run is not a fork."""
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
        """Yield sentences about the fork."""
        for what, names in (
            ("keep their memory", self.kept),
            ("are removed, with their memory", self.dropped),
            ("are new or have other settings, and start without a memory", self.empty),
        ):
            if names:
                yield f"These parts {what}: {', '.join(names)}."
        if self.note:
            yield self.note

    def parent(self) -> RunFolder | None:
        """Return the folder of the parent run; None: it no longer exists."""
        try:
            folder = RunFolder.open(Path(self.folder), salvage=True)
        except RunError:
            return None
        return folder if folder.name == self.run else None


@dataclass(frozen=True)
class Branches:
    """A fork and its parent run.

    Attributes:
        origin: where the fork comes from.
        fork: the fork.
        parent: the parent run; None: its folder no longer exists.
    """

    origin: Origin
    fork: RunSummary
    parent: RunSummary | None

    @classmethod
    def of(cls, run: RunSummary) -> Branches | None:
        """Return the branches of a fork; None: the run is not a fork."""
        origin = Origin.of(run.folder.facts)
        if origin is None:
            return None
        parent = origin.parent()
        return cls(origin, run, None if parent is None else RunSummary.of(parent).by(run.metric))

    def curves(self) -> tuple[list[RunSummary], list[str]]:
        """Return the runs to draw, and their names; the fork starts where it leaves its parent."""
        if self.parent is None:
            return [self.fork], ["this fork"]
        shared = [p.round for p in self.fork.evaluated if p.round <= self.origin.round]
        begin = max(shared, default=0)
        own = replace(self.fork, points=[p for p in self.fork.points if p.round >= begin])
        return [own, self.parent], ["this fork", self.origin.run]


def fork_section(branches: Branches | None, label: str | None) -> Html | None:
    """Return the section about a fork; None: the run is not a fork."""
    if branches is None:
        return None
    origin, parent = branches.origin, branches.parent
    begin = f"after round {origin.round}" if origin.round else "from the initial model on"
    parts: list[Child] = [
        element("h2", "Fork" if label is None else f"Fork {label}"),
        element("p", f"This run is a fork of {origin.run}, {begin}."),
        *(element("p", line) for line in origin.lines()),
    ]
    if parent is None:
        text = f"The folder of that run, {origin.folder}, no longer exists."
        return element("section", *parts, element("p", text, class_="quiet"))
    runs, names = [branches.fork, parent], ["this fork", origin.run]
    changed: list[list[Child]] = [
        [path, *texts]
        for path, texts in table_of([run.settings for run in runs])
        if len(set(texts)) > 1 and path.partition(".")[0] not in _NOT_SHOWN
    ]
    if changed:
        parts.append(table(["differs", *names], changed, class_="settings differs"))
    else:
        parts.append(element("p", "All settings that decide the result are the same."))
    results: list[list[Child]] = [[name, *cells] for name, cells in comparison(runs, None)]
    parts += [element("h3", "Both futures"), table(["", *names], results, class_="numbers")]
    return element("section", *parts)
