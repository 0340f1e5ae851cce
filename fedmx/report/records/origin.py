"""Where a fork comes from, as the facts of its folder say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

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
