"""What `diff` found, as a sentence and as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedmx.diff.records import Parting
from fedmx.diff.stations import FOLD, START, OtherStation

MOST = 5  # settings in the sentence


@dataclass(frozen=True)
class DiffReport:
    """Where two runs part.

    Attributes:
        runs: the names of their folders.
        settings: the settings that differ and decide the result, each in words.
        versions: the versions and machine facts that differ and decide bits, each in words.
        data: how the data differ, as far as the runs say, each in words.
        last_rounds: the last round that each has recorded.
        parting: where their records part.
        station: what replaying that part in both says; None: nothing was to be replayed.
        not_replayed: why something that was to be replayed is not; empty: nothing was left out.
    """

    runs: tuple[str, str]
    settings: tuple[str, ...]
    versions: tuple[str, ...]
    data: tuple[str, ...]
    last_rounds: tuple[int, int]
    parting: Parting
    station: OtherStation | None = None
    not_replayed: str = ""

    @property
    def same(self) -> bool:
        """Whether all rounds that both have are the same bits."""
        return self.parting.round is None

    @property
    def sentence(self) -> str:
        """Where the runs part, in one sentence with the numbers."""
        text = self._found()
        if self.settings:
            listed = [*self.settings[:MOST]]
            if len(self.settings) > MOST:
                listed.append(f"and {len(self.settings) - MOST} more")
            text = f"the settings differ ({', '.join(listed)}); {text}"
        if self.data:
            text = f"the data differ ({', '.join(self.data)}); {text}"
        if self.versions:
            text = f"{text}; {', '.join(self.versions)}"
        return text

    def record(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "runs": list(self.runs),
            "same": self.same,
            "sentence": self.sentence,
            "settings": list(self.settings),
            "versions": list(self.versions),
            "data": list(self.data),
            "last_rounds": list(self.last_rounds),
            **asdict(self.parting),
            "station": None if self.station is None else self.station.record(),
            "not_replayed": self.not_replayed,
        }

    def _found(self) -> str:
        parting, station = self.parting, self.station
        if parting.round is None:
            return self._same_text()
        where = f"round {parting.round}"
        if parting.client is not None:
            where += f", client {parting.client}"
        if station is None:
            why = f"; {self.not_replayed}" if self.not_replayed else ""
            return f"{where}: {parting.text}{self._others()}{why}"
        if not station.station:
            return f"{where}: {parting.text}{self._others()}; {self._who_is_right(station)}"
        name, values = station.station, f"{station.other or 'only one of the runs has it'}"
        if name == FOLD:
            return f"{where}, in the fold: {parting.text}: {values}"
        if name == START:
            return f"before round 1, the initial weights: {values}"
        place = "in the task" if name == "task" else f"after {name}"
        text = f"{where}, {place}: {values}{self._others()}"
        for run, agrees in zip(self.runs, station.agrees, strict=True):
            if agrees is False:
                text += f"; replayed here, {run} ends in other bits than it recorded"
        return text

    def _others(self) -> str:
        more = self.parting.number - 1
        if more < 1:
            return ""
        return f" ({more} other {'client differs' if more == 1 else 'clients differ'}, too)"

    def _same_text(self) -> str:
        one, other = self.last_rounds
        text = f"all {self.parting.rounds} rounds that both have are the same bits"
        if one == other:
            return text
        ends = f"{self.runs[one > other]} ends there, {self.runs[one < other]} goes on"
        return f"{text}; {ends} to round {max(one, other)}"

    def _who_is_right(self, station: OtherStation) -> str:
        text = "replayed here, both give the same bits"
        match station.agrees:
            case (True, _):
                agreeing, parting = self.runs
            case (_, True):
                parting, agreeing = self.runs
            case _:
                return f"{text}, which neither run recorded: both ran other code or elsewhere"
        return (
            f"{text}, those that {agreeing} recorded, so that {parting} ran other code, in another "
            "environment, or on another machine"
        )
