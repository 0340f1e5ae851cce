"""Diff: the first round, client and station in which two recorded runs part."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedmx.diff.records import Parting, parting
from fedmx.diff.report import DiffReport
from fedmx.diff.settings import other_settings
from fedmx.diff.stations import OtherClients, OtherStation, fold_of, station_of
from fedmx.replay import RecordedRun
from fedmx.replay.replaying import SERIAL
from fedmx.replay.versions import other_versions
from fedmx.run import RunFolder
from layers.compute.data.datasets import Files

OF_DATA = {"shape": "shape", "classes": "classes", "data_sha256": "SHA-256"}
"""The facts of a run that say something of its data, and what they are called in words."""


def diff(
    one: str | Path | RunFolder | RecordedRun,
    other: str | Path | RunFolder | RecordedRun,
    *,
    modules: Collection[str] | None = (),
    files: Files | None = None,
) -> DiffReport:
    """Return where two runs part: settings, data, then the first round, client and station.

    The round is found by bisection over the recorded chains, the client by its recorded hashes, and
    the station by replaying that client's part of both runs from their nearest checkpoints.

    ::

        print(diff("runs/a-20260131-093000", "runs/a-20260201-101500").sentence)

    Args:
        one: a run folder, or a run that is open and whose executor is serial.
        other: the other one.
        modules: the modules whose code the experiments may name; None: all.
        files: where data sets are; None: where the environment says.

    Raises:
        RunError: the records have no hashes, or a run cannot be run again here.
        ExperimentError: an experiment cannot be built here, or names code that is not allowed.
    """
    mine, theirs = (
        run
        if isinstance(run, RecordedRun)
        else RecordedRun.open(run, modules=modules, overrides=SERIAL, files=files)
        for run in (one, other)
    )
    found = parting(mine, theirs)
    facts = mine.folder.facts, theirs.folder.facts
    why, station = _before_a_fork(found, mine, theirs), None
    if not why:
        try:
            station = _station(mine, theirs, found)
        except OtherClients as error:
            why = str(error)
    return DiffReport(
        runs=(str(mine.folder.path), str(theirs.folder.path)),
        settings=tuple(other_settings(mine.experiment, theirs.experiment)),
        versions=tuple(other_versions(*facts)),
        data=tuple(
            f"{word} {facts[0][name]} against {facts[1][name]}"
            for name, word in OF_DATA.items()
            if name in facts[0] and name in facts[1] and facts[0][name] != facts[1][name]
        ),
        last_rounds=(max(mine.round_records()), max(theirs.round_records())),
        parting=found,
        station=station,
        not_replayed=why,
    )


def _before_a_fork(found: Parting, *runs: RecordedRun) -> str:
    """Return why a round that was to be replayed is not: a fork begins later; empty: none does."""
    if not _is_replayed(found):
        return ""
    for run in runs:
        if found.round is not None and found.round <= run.folder.forked_after:
            return (
                f"not replayed, since {run.folder.path} is a fork after round "
                f"{run.folder.forked_after}: give the run before it, "
                f"{run.folder.facts['fork']['folder']}"
            )
    return ""


def _is_replayed(found: Parting) -> bool:
    """Return whether a replay can tell more of where two runs part."""
    return found.what == "fold" or (found.what == "update" and found.client is not None)


def _station(one: RecordedRun, other: RecordedRun, found: Parting) -> OtherStation | None:
    if found.round is None:
        return None
    if found.what == "update" and found.client is not None:
        return station_of(one, other, found.round, found.client)
    return fold_of(one, other, found.round) if found.what == "fold" else None
