"""The station at which one client's part in a round parts in two runs, found by replaying both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmx.course.hashes import model_hash
from fedmx.diff.values import OtherValues, first_other
from fedmx.replay import RecordedRun, rerun
from fedmx.replay.one_part import NoPart
from fedmx.replay.part import Part, replay_part
from fedmx.run import RunError

START, FOLD = "initial weights", "fold"


class OtherClients(RunError):
    """A round that is run again has other clients than its record."""


@dataclass(frozen=True)
class OtherStation:
    """What replaying a part in both runs says.

    Attributes:
        station: the first station whose outcome differs, as in ``Quantise.send``; empty: none does.
        end: server or client.
        other: the values that differ; None: the stations themselves are others, or none differs.
        agrees: for each run whether its replay is what it recorded; None: nothing is recorded.
    """

    station: str
    end: str
    other: OtherValues | None
    agrees: tuple[bool | None, bool | None]

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        other = self.other
        values = {"differing": other.differing, "values": other.values} if other else {}
        return {
            "station": self.station,
            "end": self.end,
            **values,
            "text": str(other or ""),
            "agrees": list(self.agrees),
        }


def _replayed(run: RecordedRun, round: int, client: int) -> Part:
    try:
        return replay_part(run, round, client, keep=True)
    except NoPart:
        raise OtherClients(
            f"not replayed, since round {round} of {run.folder.path} has other clients when it is "
            "run again here: it ran other code, in another environment, or on another machine"
        ) from None


def station_of(one: RecordedRun, other: RecordedRun, round: int, client: int) -> OtherStation:
    """Replay a client's part in both runs, and return the first station that differs.

    Raises:
        OtherClients: run again here, a run has other clients in this round.
        RunError: a run cannot be run again here.
    """
    mine, theirs = (_replayed(run, round, client) for run in (one, other))
    agrees = mine.same, theirs.same
    places = [[(x.end, x.station, x.pass_number) for x in part.passages] for part in (mine, theirs)]
    for left, right in zip(mine.passages, theirs.passages, strict=False):
        if (left.end, left.station) != (right.end, right.station):
            break
        found = first_other(left.arrays, right.arrays)
        if found is not None:
            name = "task" if left.station == "start" else left.station
            if round == 1 and name == "task" and found.name in ("weights", "buffers"):
                name = START
            return OtherStation(name, left.end, found, agrees)
    if places[0] != places[1]:
        return OtherStation(_first_other_place(mine, theirs), "client", None, agrees)
    return OtherStation("", "", None, agrees)


def fold_of(one: RecordedRun, other: RecordedRun, round: int) -> OtherStation:
    """Run a round again in both runs, and return how the models after it differ."""
    models: list[dict[str, np.ndarray]] = []
    agrees: list[bool | None] = []
    for run in (one, other):
        recorded = run.round_records()[round]["model_sha256"]
        with rerun(run, round) as server:
            next(iter(server))
            state = server.state
            models.append({"weights": state.weights, "buffers": state.buffers})
            agrees.append(model_hash(state.weights, state.buffers) == recorded)
    found = first_other(*models)
    station = "" if found is None else FOLD
    return OtherStation(station, "server", found, (agrees[0], agrees[1]))


def _first_other_place(one: Part, other: Part) -> str:
    mine, theirs = ([x.station for x in part.passages] for part in (one, other))
    for left, right in zip(mine, theirs, strict=False):
        if left != right:
            return f"{left} against {right}"
    return f"the end: {len(mine)} against {len(theirs)} stations"
