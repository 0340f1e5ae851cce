"""The record of a round's course: whatever it has, it is read as it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmx import RunFolder
from fedmx.course.course import Course
from fedmx.course.course_event import CourseEvent, UpdateArrived
from fedmx.course.course_round import Asked, CourseRound, TaskSent
from fedmx.course.errors import CourseError
from fedmx.run.records import JsonLines
from layers.logic import ClientLost, Offer, Rejected, StateLost, TimerFired, Times, Traffic
from layers.logic.round.validation import check_offer

CLIENTS = st.integers(0, 5)
NUMBERS = st.integers(0, 1 << 60)
SECONDS = st.floats(0, 1e6)
ANY = st.floats(width=64)
TEXT = st.text(max_size=8)
HASHES = st.binary(min_size=4, max_size=4).map(bytes.hex)
POPULATIONS = st.dictionaries(CLIENTS, NUMBERS)
EVENTS = st.one_of(
    st.builds(UpdateArrived, st.integers(1, 9), CLIENTS, HASHES, st.none() | TEXT),
    st.builds(
        Offer, st.integers(1, 9), CLIENTS, NUMBERS, ANY, ANY, st.dictionaries(TEXT, ANY), SECONDS
    ),
    st.builds(ClientLost, st.integers(0, 9), CLIENTS, TEXT, TEXT, st.booleans()),
    st.builds(StateLost, st.integers(1, 9), CLIENTS),
    st.builds(TimerFired),
)
ROUNDS = st.builds(
    CourseRound,
    round=st.just(1),
    populations=st.lists(POPULATIONS, min_size=1, max_size=3).map(tuple),
    tasks=st.lists(st.builds(TaskSent, CLIENTS, NUMBERS, st.integers(1, 3))).map(tuple),
    events=st.lists(st.builds(CourseEvent, EVENTS, SECONDS, st.none() | NUMBERS), max_size=5).map(
        tuple
    ),
    asked=st.lists(
        st.builds(
            Asked,
            TEXT,
            st.dictionaries(CLIENTS, HASHES),
            st.dictionaries(CLIENTS, st.binary(max_size=5)),
            st.lists(CLIENTS).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    verdicts=st.lists(st.tuples(CLIENTS, st.booleans())).map(tuple),
    traffic=st.dictionaries(CLIENTS, st.builds(Traffic, NUMBERS, NUMBERS)),
    times=st.dictionaries(CLIENTS, st.builds(Times, SECONDS, st.none() | SECONDS)),
    took_s=SECONDS,
    overhead=st.dictionaries(TEXT, NUMBERS.filter(bool)),
    excluded=st.dictionaries(CLIENTS, TEXT),
)


def text_of(one: CourseRound) -> str:
    """All of a round as text, in which NaN equals NaN."""
    times = dict(sorted(one.times.items()))
    traffic = dict(sorted(one.traffic.items()))
    return repr((one.populations, one.tasks, one.asked, one.verdicts, times, traffic)) + repr(
        [(vars(event.event) | {"": type(event.event)}, event) for event in one.events]
        + [one.took_s, one.overhead, one.excluded]
    )


def trimmed(populations: tuple[Any, ...]) -> tuple[Any, ...]:
    """Populations without those at the end that equal the one before."""
    kept = list(populations)
    while len(kept) > 1 and kept[-1] == kept[-2]:
        kept.pop()
    return tuple(kept)


@given(ROUNDS, POPULATIONS, st.booleans())
def test_a_round_is_read_from_the_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    one: CourseRound,
    before: dict[int, int],
    known: bool,
) -> None:
    file = JsonLines(tmp_path_factory.mktemp("course") / "course.jsonl")
    file.append([one.record(before if known else None)])
    (record,) = file.read()
    read = CourseRound.of(record, before if known else None)
    assert trimmed(read.populations) == trimmed(one.populations)
    assert text_of(replace(read, populations=())) == text_of(replace(one, populations=()))


@given(st.lists(POPULATIONS, min_size=1, max_size=6))
def test_a_population_is_recorded_as_the_difference_to_the_one_before(
    populations: list[dict[int, int]],
) -> None:
    records, before = [], None
    for number, population in enumerate(populations, start=1):
        records.append(CourseRound(number, (population,)).record(before))
        if before is not None:
            (change,) = records[-1].get("population", [{}])
            told = {*change.get("left", ()), *change.get("came", ())}
            clients = {*before, *population}
            assert told == {one for one in clients if before.get(one) != population.get(one)}
        before = population
    course = Course.of(_through_json(records), "course.jsonl")
    assert [one.populations[-1] for one in course.rounds.values()] == populations


def _through_json(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(record)) for record in records]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path, "run", "rounds: 3\n", {})
    before = None
    for number in (1, 2, 3):
        one = CourseRound(number, ({0: 5, 1: number},), took_s=0.5)
        folder.append_course(one.record(before))
        before = one.populations[-1]
    return folder


def rounds_of(folder: RunFolder) -> list[int]:
    return list(Course.of(RunFolder.open(folder.path).course(), "course.jsonl").rounds)


def test_a_resumed_run_forgets_the_course_after_its_checkpoint(folder: RunFolder) -> None:
    folder.truncate_after(2)
    assert rounds_of(folder) == [1, 2]


def test_a_changed_record_ends_the_course_before_it(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    content = folder.course_path.read_bytes()
    folder.course_path.write_bytes(content.replace(b'"1": 2', b'"1": 4'))
    assert rounds_of(folder) == [1]
    assert "course.jsonl:2: the line is damaged" in caplog.text


def test_a_record_that_is_not_understood_is_named() -> None:
    good = CourseRound(1, ({0: 5},)).record(None)
    for wrong in ({"events": [{"event": "dance"}]}, {"population": [{"left": [1]}]}, {"tasks": 3}):
        with pytest.raises(CourseError, match=r"^c: the record of round 1 is not understood"):
            Course.of([{**good, **wrong}], "c")


def test_no_number_is_lost() -> None:
    offer = Offer(1, 0, 1 << 70, math.inf, -math.inf, {"loss": math.nan, "b": 0.1 + 0.2}, 1 / 3)
    record = CourseEvent(offer, 2 / 3).record(1)
    (again,) = _through_json([record])
    read = CourseEvent.of(again, 1)
    assert repr(vars(read.event)) == repr(vars(offer))
    assert read.at_s == 2 / 3


@pytest.mark.parametrize(
    "metrics",
    [
        {f"{number:07d}": 1.0 for number in range(200_000)},
        {"a" * 4_000_000: 1.0},
        {"a" * 300 + str(number): 1.0 for number in range(10_000)},
    ],
    ids=["many", "long", "many and long"],
)
def test_a_refused_offer_writes_little_and_is_refused_in_the_replay(metrics) -> None:
    offer = Offer(1, 0, 10, 1.0, metrics=metrics)
    record = json.loads(json.dumps(CourseEvent(offer, 0.5).record(1)))
    assert len(json.dumps(record)) < 300_000
    for one in (offer, CourseEvent.of(record, 1).event):
        with pytest.raises(Rejected, match="metric"):
            check_offer(one, 10, 10)
