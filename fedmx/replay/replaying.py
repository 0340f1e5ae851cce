"""Replay: what a run recorded, and what comes of it when it is run again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmx.replay.part import Part, replay_part, stopping_at
from fedmx.replay.recorded_run import RecordedRun
from fedmx.replay.rounds import ReplayedRound, check_part, replayed_rounds
from fedmx.run import RunError, RunFolder
from layers.compute.data.datasets import Files

SERIAL = ("executor=serial",)
"""The override with which the hooks of the clients work in this process."""


@dataclass(frozen=True)
class ReplayReport:
    """What came of a replay.

    Attributes:
        run: the run folder's name.
        rounds: the rounds that were run again, beside their records; none for a client's part.
        part: a client's part; None: whole rounds were replayed.
    """

    run: str
    rounds: tuple[ReplayedRound, ...] = ()
    part: Part | None = None

    @property
    def same(self) -> bool | None:
        """Whether all is as recorded; None: of this part, nothing is recorded to compare with."""
        if self.part is not None:
            return self.part.same
        return all(one.same for one in self.rounds)

    def record(self) -> dict[str, Any]:
        """Return the report as plain values."""
        part = {} if self.part is None else {"part": self.part.record_of_it()}
        rounds = {} if not self.rounds else {"rounds": [one.record() for one in self.rounds]}
        return {"run": self.run, "same": self.same, **rounds, **part}


def replay(
    run: str | Path | RunFolder | RecordedRun,
    round: int | None = None,
    client: int | None = None,
    *,
    modules: Collection[str] | None = (),
    overrides: Sequence[str] = (),
    files: Files | None = None,
    stop_at: str | None = None,
    on_round: Callable[[ReplayedRound], None] | None = None,
) -> ReplayReport:
    """Run a recorded run again, and compare its hashes with the records.

    ::

        report = replay("runs/quickstart-20260131-093000", round=37, client=12)
        for passage in report.part.passages:
            print(passage.end, passage.station, passage.numbers)

    Args:
        run: the run folder, or a run that is open.
        round: the only round to run again, from the nearest checkpoint before it; None: all, from
            the beginning.
        client: the only client of the round to look at, station by station; None: whole rounds.
        modules: the modules whose code the experiment may name; None: all.
        overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor.
        files: where data sets are; None: where the environment says.
        stop_at: a hook's method at which the debugger stops, as ``module:Class.method``, in the
            given round, for the given client or for all.
        on_round: is called with each round that was run again.

    Raises:
        RunError: there is no such round or client, or the run cannot be run again here.
        ExperimentError: its experiment cannot be built here, or names code that is not allowed.
        FedmxError: no hook has the method to stop at.
    """
    if round is None and (client is not None or stop_at is not None):
        what = "a client's part" if stop_at is None else "to stop in the debugger"
        raise RunError(f"{what} needs a round; give one")
    if not isinstance(run, RecordedRun):
        serial = SERIAL if client is not None or stop_at is not None else ()
        overrides = (*overrides, *serial)
        run = RecordedRun.open(run, modules=modules, overrides=overrides, files=files)
    name = run.folder.name
    if round is not None and client is not None:
        check_part(run, round, client)
        return ReplayReport(name, part=replay_part(run, round, client, stop_at=stop_at))
    stopping: AbstractContextManager[None] = nullcontext()
    if round is not None and stop_at is not None:
        stopping = stopping_at(run, round, stop_at)
    rounds: dict[int, ReplayedRound] = {}  # the last one of each number, after steps back
    with stopping:
        for one in replayed_rounds(run, round):
            rounds[one.round] = one
            if on_round is not None:
                on_round(one)
    return ReplayReport(name, tuple(rounds.values()))
