"""The events of a deployed round as its course keeps them: all that was told, without vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from layers.logic import ClientLost, Offer, StateLost, TimerFired
from layers.logic.round.validation import LONGEST_METRIC, MOST_METRICS


@dataclass(frozen=True)
class UpdateArrived:
    """An update arrived, of which the course keeps the hash.

    Attributes:
        round: the round of the task that it answers.
        client: number of the client.
        sha256: `fedmx.course.hashes.message_hash` of the update; empty: no task had asked for it.
        rejected: why the server rejected it; None: it did not, or no task had asked for it.
    """

    round: int
    client: int
    sha256: str
    rejected: str | None = None


Kept: TypeAlias = "Offer | UpdateArrived | ClientLost | StateLost | TimerFired"


@dataclass(frozen=True)
class CourseEvent:
    """One event of a round.

    Attributes:
        event: the event.
        at_s: seconds since the round began, when the server handled it.
        samples: how many samples the client said then that it has; None: as in the population.
    """

    event: Kept
    at_s: float
    samples: int | None = None

    def record(self, round: int) -> dict[str, Any]:
        """Return the event as its place in the record of this round has it."""
        event = self.event
        record: dict[str, Any] = {"event": _NAMES[type(event)]}
        if not isinstance(event, TimerFired):
            record["client"] = event.client
            if event.round != round:
                record["round"] = event.round
        record["at_s"] = self.at_s
        if self.samples is not None:
            record["announced"] = self.samples
        if isinstance(event, UpdateArrived):
            record["sha256"] = event.sha256
            if event.rejected is not None:
                record["rejected"] = event.rejected
        elif isinstance(event, Offer):
            record |= {
                "arrived_s": event.at_s,
                "samples": event.samples,
                "norm": _number(event.norm),
                "upload_s": _number(event.upload_s),
                "metrics": _bounded(event.metrics),
            }
        elif isinstance(event, ClientLost):
            record["reason"] = event.reason
            if event.traceback:
                record["traceback"] = event.traceback
            if event.rejected:
                record["rejected"] = True
        return record

    @classmethod
    def of(cls, record: Mapping[str, Any], round: int) -> CourseEvent:
        """Return the event that a record of this round has.

        Raises:
            KeyError: a part is missing, or the event is unknown.
        """
        kind = _KINDS[record["event"]]
        at_s, samples = record["at_s"], record.get("announced")
        if kind is TimerFired:
            return cls(TimerFired(), at_s, samples)
        whose = record.get("round", round), record["client"]
        event: Kept
        if kind is UpdateArrived:
            event = UpdateArrived(*whose, record["sha256"], record.get("rejected"))
        elif kind is Offer:
            event = Offer(
                *whose,
                samples=record["samples"],
                norm=float(record["norm"]),
                upload_s=float(record["upload_s"]),
                metrics={name: float(value) for name, value in record["metrics"].items()},
                at_s=record["arrived_s"],
            )
        elif kind is StateLost:
            event = StateLost(*whose)
        else:
            traceback, rejected = record.get("traceback", ""), record.get("rejected", False)
            event = ClientLost(*whose, record["reason"], traceback, rejected)
        return cls(event, at_s, samples)


def _bounded(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return the metrics as JSON has them: too many, or too long names, stay too many or too long.

    So what an offer can write is bounded, and whoever reads the record refuses the same offers.
    """
    return {
        name[: LONGEST_METRIC + 1]: _number(value)
        for name, value in islice(metrics.items(), MOST_METRICS + 1)
    }


def _number(value: float) -> float | str:
    """Return a number as strict JSON can hold it; `float` makes it what it was."""
    return value if math.isfinite(value) else str(value)


_KINDS: Mapping[str, type[Kept]] = {
    "offer": Offer,
    "update": UpdateArrived,
    "lost": ClientLost,
    "memory lost": StateLost,
    "timer": TimerFired,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
