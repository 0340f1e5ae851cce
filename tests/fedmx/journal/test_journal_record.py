"""The record of a round's journal: whatever it has, it is read as it was."""

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
from fedmx.journal.chain import message_hash
from fedmx.journal.journal import (
    TRACEBACK,
    AnswerArrived,
    Entry,
    Journal,
    JournalError,
    UpdateArrived,
    journals_of,
)
from fedmx.run.records import JsonLines
from layers.logic import (
    ClientLost,
    ClientReport,
    Offer,
    Overhead,
    Rejected,
    RoundReport,
    StateLost,
    TimerFired,
    Times,
    Traffic,
    Update,
)
from layers.logic.round.exchange import Costs, Joined, Left, SendTask
from layers.logic.round.patience import Patience
from layers.logic.round.validation import check_offer
from tests.fedmx.golden.values import MESSAGES, TASK

CLIENTS = st.integers(0, 5)
NUMBERS = st.integers(0, 1 << 60)
SECONDS = st.floats(0, 1e6)
ANY = st.floats(width=64)
TEXT = st.text(max_size=8)
HASHES = st.binary(min_size=4, max_size=4).map(bytes.hex)
POPULATIONS = st.dictionaries(CLIENTS, NUMBERS)
EVENTS = st.one_of(
    st.builds(UpdateArrived, st.integers(1, 9), CLIENTS, HASHES, st.none() | TEXT),
    st.builds(AnswerArrived, CLIENTS, HASHES),
    st.builds(AnswerArrived, CLIENTS, st.just(""), st.binary(max_size=5)),
    st.builds(
        Offer, st.integers(1, 9), CLIENTS, NUMBERS, ANY, ANY, st.dictionaries(TEXT, ANY), SECONDS
    ),
    st.builds(
        ClientLost,
        st.integers(0, 9),
        CLIENTS,
        TEXT,
        st.sampled_from(["", TRACEBACK]),
        st.booleans(),
    ),
    st.builds(StateLost, st.integers(1, 9), CLIENTS),
    st.builds(TimerFired, st.sampled_from(["deadline", "offers", "patience"])),
    st.builds(Joined, CLIENTS, NUMBERS),
    st.builds(Left, CLIENTS),
    st.builds(
        Costs,
        took_s=SECONDS,
        waited_s=SECONDS,
        traffic=st.dictionaries(CLIENTS, st.builds(Traffic, NUMBERS, NUMBERS)),
        times=st.dictionaries(CLIENTS, st.builds(Times, SECONDS, st.none() | SECONDS)),
        overhead=st.builds(Overhead, NUMBERS, NUMBERS, st.lists(TEXT, max_size=2).map(tuple)),
    ),
)
COMMANDS = st.sampled_from(
    [["begin"], ["tasks", [1, 0], [2, 3, 2]], ["verdicts", [1, True]], ["timer", "offers", 0.1]]
)
ENTRIES = st.builds(Entry, st.lists(COMMANDS, max_size=2).map(tuple), EVENTS, SECONDS)
JOURNALS = st.builds(
    Journal,
    round=st.just(1),
    population=POPULATIONS,
    patience=st.none() | st.builds(Patience, limit_s=SECONDS.filter(bool)),
    opened_s=st.none() | SECONDS.filter(bool),
    excluded=st.dictionaries(CLIENTS, TEXT),
    entries=st.lists(ENTRIES, max_size=5),
)


def text_of(one: Journal) -> str:
    """All of a journal as text, in which NaN equals NaN."""
    entries = [
        (entry.commands, type(entry.event), _sorted(vars(entry.event)), entry.at_s)
        for entry in one.entries
    ]
    return repr((sorted(one.population.items()), one.opened_s, one.patience, one.excluded, entries))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((str(key), _sorted(inner)) for key, inner in value.items())
    return value


@given(JOURNALS, POPULATIONS, st.booleans())
def test_a_journal_is_read_from_the_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, one: Journal, before: dict[int, int], known: bool
) -> None:
    file = JsonLines(tmp_path_factory.mktemp("journal") / "journal.jsonl")
    file.append([one.record(before if known else None)])
    (record,) = file.read()
    assert text_of(Journal.of(record, before if known else None)) == text_of(one)


@given(st.lists(POPULATIONS, min_size=1, max_size=6))
def test_a_population_is_recorded_as_its_difference(populations: list[dict[int, int]]) -> None:
    records, before = [], None
    for number, population in enumerate(populations, start=1):
        records.append(Journal(number, population).record(before))
        if before is not None:
            change = records[-1].get("population", {})
            told = {*change.get("left", ()), *change.get("came", ())}
            clients = {*before, *population}
            assert told == {one for one in clients if before.get(one) != population.get(one)}
        before = population
    records = [{"entries": [], **json.loads(json.dumps(record))} for record in records]
    found = journals_of(records, "journal.jsonl")
    assert [one.population for one in found.values()] == populations


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path, "run", "rounds: 3\n", {})
    before = None
    for number in (1, 2, 3):
        one = Journal(number, {0: 5, 1: number}, entries=[Entry((), Costs(0.5), 0.5)])
        folder.append_journal(one.record(before))
        before = one.population
    return folder


def rounds_of(folder: RunFolder) -> list[int]:
    return list(journals_of(RunFolder.open(folder.path).journal(), "journal.jsonl"))


def test_a_resumed_run_forgets_the_journal_after_its_checkpoint(folder: RunFolder) -> None:
    folder.truncate_after(2)
    assert rounds_of(folder) == [1, 2]


def test_a_changed_record_ends_the_journal_before_it(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.journal_path.write_bytes(folder.journal_path.read_bytes().replace(b'"1": 2', b'"1": 4'))
    assert rounds_of(folder) == [1]
    assert "journal.jsonl:2" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"entries": [[0.5, {"event": "dance"}]]}, {"population": {"left": [1]}}, {"entries": 3}],
)
def test_a_record_that_is_not_understood_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(JournalError, match=r"^c: .*round 1\b"):
        journals_of([{"round": 1, "entries": [], **wrong}], "c")


def test_no_number_is_lost() -> None:
    offer = Offer(1, 0, 1 << 70, math.inf, -math.inf, {"loss": math.nan, "b": 0.1 + 0.2}, 1 / 3)
    record = Journal(1, entries=[Entry((), offer, 2 / 3)]).record(None)
    (entry,) = Journal.of(json.loads(json.dumps(record)), None).entries
    assert repr(vars(entry.event)) == repr(vars(offer))
    assert entry.at_s == 2 / 3


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
    record = json.loads(json.dumps(Journal(1, entries=[Entry((), offer, 0.5)]).record(None)))
    assert len(json.dumps(record)) < 300_000
    (entry,) = Journal.of(record, None).entries
    for one in (offer, entry.event):
        with pytest.raises(Rejected, match="metric"):
            check_offer(one, 10, 10)


def test_an_update_that_counted_stays_so_if_its_client_breaks_the_rules_in_the_next_pass() -> None:
    journal, update = Journal(3), MESSAGES["update"]
    assert isinstance(update, Update)
    journal.append(0.5, update, [SendTask(TASK)])
    again = replace(TASK, pass_number=2)
    journal.append(1.5, ClientLost(3, 5, "too long", rejected=True), [SendTask(again)])
    fate = ClientReport(5, "rejected", "too long", counted_before=True, task_round=3)
    journal.conclude(RoundReport(3, 0.1, 1, (fate,), Traffic()), [{"to": 1}])
    assert journal.record(None) == {
        "round": 3,
        "stepped_back": [{"to": 1}],
        "entries": [
            [
                0.5,
                {"event": "update", "client": 5, "blake3": message_hash(update)},
                ["tasks", [5, 2]],
            ],
            [
                1.5,
                {"event": "lost", "client": 5, "reason": "too long", "rejected": True},
                ["tasks", [5, 2, 2]],
            ],
        ],
    }
    assert journal.updates_of(5, 3) == (message_hash(update),)
