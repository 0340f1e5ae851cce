"""The course of a deployed run: its rounds, read from the records of its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedmx.course.course_event import UpdateArrived
from fedmx.course.course_round import CourseRound
from fedmx.course.errors import CourseError


@dataclass(frozen=True)
class Course:
    """The rounds of a deployed run, from the first one to the last whose record is sound.

    Attributes:
        source: name of the file, for messages.
        rounds: the rounds by number.
    """

    source: str
    rounds: Mapping[int, CourseRound]

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]], source: str) -> Course:
        """Return the course that the lines of course.jsonl have, up to the first missing round.

        Raises:
            CourseError: there is no first round, or a record is not understood.
        """
        rounds: dict[int, CourseRound] = {}
        before = None
        for record in records:
            if record.get("round") != len(rounds) + 1:
                break
            try:
                one = CourseRound.of(record, before)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise CourseError(
                    f"{source}: the record of round {len(rounds) + 1} is not understood ({error}); "
                    "use the version of fedmx that run.json names"
                ) from None
            rounds[one.round] = one
            before = one.populations[-1]
        if not rounds:
            raise CourseError(
                f"{source}: there is no record of round 1, so that this run cannot be simulated; "
                "servers of this version and later ones write it"
            )
        return cls(source, rounds)

    @property
    def last_round(self) -> int:
        """The number of the last round."""
        return len(self.rounds)

    def round(self, number: int) -> CourseRound:
        """Return a round.

        Raises:
            CourseError: there is none of this number.
        """
        if number not in self.rounds:
            raise CourseError(
                f"{self.source}: the course ends with round {self.last_round}; there is no sound "
                f"record of round {number}",
                number,
            )
        return self.rounds[number]

    @cached_property
    def late(self) -> frozenset[tuple[int, int]]:
        """The updates that arrived after the round of their task, as (client, that round)."""
        return frozenset(
            (one.event.client, one.event.round)
            for number, round in self.rounds.items()
            for one in round.events
            if isinstance(one.event, UpdateArrived) and one.event.round < number
        )
