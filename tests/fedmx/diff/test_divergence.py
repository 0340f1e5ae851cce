"""What a diff names: the round, which kind of difference, and whose it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from fedmx import Experiment, RunFolder
from fedmx.history import RecordedRun, diff
from fedmx.history.diff import step_of
from fedmx.history.divergence import (
    OF_THE_NETWORK,
    Divergence,
    RoundRecords,
    other_bits,
    other_records,
)
from fedmx.history.replay import Part, Step
from fedmx.history.values import VectorNumbers
from layers.logic import ClientReport
from tests.fedmx.golden.values import floats


def client(number: int, **changed: Any) -> dict[str, Any]:
    record = {"round": 4, "client": number, "status": "accepted", "reason": "", "loss": 0.5}
    sent = {"samples": 10 + number, "update_blake3": [f"u{number}"], "asked_s": 0.25}
    return {**record, **sent, "traceback": "", **changed}


def version(clients: Sequence[Mapping[str, Any]], **changed: Any) -> RoundRecords:
    record = {"round": 4, "model_sha256": "m", "chain": "c", "accuracy": 0.5, "seconds": 1.0}
    return RoundRecords.of({**record, "control_bytes": 5, **changed}, clients)


def changed(first: int, of: int = 3, **values: Any) -> list[dict[str, Any]]:
    """The records of some clients; of the first ones some values are others."""
    return [client(one, **(values if one < first else {})) for one in range(of)]


V = {"update_blake3": ["v"]}
SAME = version(changed(0))
TWICE = [client(1, version=2), client(1, version=3)]
PAIRS: dict[str, tuple[RoundRecords, RoundRecords, tuple[str, tuple[int, ...]] | None]] = {
    "times": (SAME, version(changed(3, asked_s=9.0, traceback="x"), seconds=7.0, chain="d"), None),
    "other clients": (SAME, version([client(0), client(2)]), ("clients", ())),
    "another order": (version([client(1), client(0)]), version(changed(0, 2)), ("clients", ())),
    "nobody": (version([]), SAME, ("clients", ())),
    "two updates": (SAME, version(changed(2, **V)), ("update", (0, 1))),
    "all": (version(changed(0, 12)), version(changed(12, 12, **V)), ("update", (*range(12),))),
    "samples": (SAME, version(changed(2, samples=7, **V)), ("samples", (0, 1))),
    "samples alone": (SAME, version(changed(2, samples=7)), None),
    "a fate": (SAME, version(changed(1, status="lost", update_blake3=[])), ("fate", (0,))),
    "a reason": (SAME, version(changed(1, reason="late")), None),
    "the model": (SAME, version(changed(0), model_sha256="n"), ("fold", ())),
    "an accuracy": (SAME, version(changed(0), accuracy=0.75), None),
    "a later task": (version(TWICE), version([TWICE[0], {**TWICE[1], **V}]), ("update", (1,))),
    "no task": (version([client(1)]), version([client(1), client(1, **V)]), None),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_whose_bits_differ_is_named(name: str) -> None:
    one, other, expected = PAIRS[name]
    for pair in ((one, other), (other, one)):
        found = other_bits(4, *pair)
        assert (found and (found.what, found.clients)) == expected
        if found is not None:
            assert f"round 4: {found.text}" == str(found)
            assert Divergence.of_record(json.loads(json.dumps(found.record()))) == found


@pytest.mark.parametrize(
    ("of_clients", "of_round", "key", "whose"),
    [
        ({"loss": 0.25}, {}, "loss", (0, 1)),
        ({"loss": 1}, {"accuracy": 1}, "loss", (0, 1)),
        ({"reason": "late"}, {}, None, (0, 1)),
        ({}, {"accuracy": 0.75}, "accuracy", ()),
        ({}, {"up_bytes": 4}, "up_bytes", ()),
        ({}, {"control_bytes": 6, "file_bytes": 1, "virtual": True}, None, ()),
        ({"asked_s": 9.0, "traceback": "x"}, {"seconds": 7.0, "chain": "d"}, "", ()),
    ],
)
def test_a_record_that_differs_is_named_by_its_key(
    of_clients: dict[str, Any], of_round: dict[str, Any], key: str | None, whose: tuple[int, ...]
) -> None:
    """None: only between two runs that were both deployed, or both simulated."""
    other = version(changed(2, **of_clients), **of_round)
    found = [other_records(4, SAME, other, left) for left in ((), OF_THE_NETWORK)]
    assert (found[0] is None) == (key == "")
    assert (found[1] is None) == (not key)
    for one in filter(None, found):
        assert (one.what, one.clients) == ("records", whose)
        assert (key or "") in one.text


EXPERIMENT = """
seed: {seed}
rounds: 5
clients: 6
compute: {{model: 2nn, data: digits, engine: {engine}}}
logic: {{hooks: {hooks}}}
"""


def made(parent: Path, facts: Mapping[str, Any], other: int = 9, **settings: Any) -> RunFolder:
    """Make a run that nobody trained; from a round on it is another, by an update of client 0."""
    text = EXPERIMENT.format(**{"seed": 1, "engine": "numpy", "hooks": "[]", **settings})
    given = Experiment.parse(text)
    known = {"digest": given.digest(), "engine": given.compute.engine, **facts}
    run = RunFolder.create(parent, "made", given.to_yaml(), known)
    for number in range(1, 6):
        sent = [V if number == other else {}, {}, {}]
        run.append_clients([client(one, round=number, **sent[one]) for one in range(3)])
        link = f"{number >= other} {number}"
        record = {"round": number, "model_sha256": f"m{number}", "chain": link}
        run.append_round({**record, "participants": []})
    run.finish("done")
    return run


FACTS = {"shape": [1, 8, 8], "targets": 10, "data_sha256": "d1", "numpy": "1.26.4", "threads": 1}


@pytest.mark.parametrize(
    ("settings", "facts", "field", "named"),
    [
        ({"seed": 2}, {}, "settings", ["seed: 1 against 2"]),
        ({"engine": "mxnet"}, {}, "engines", ["numpy", "mxnet"]),
        ({"hooks": "[{name: fedprox, mu: 0.5}]"}, {}, "settings", ["hooks", "fedprox", "mu"]),
        ({}, {"shape": [64]}, "data", ["shape"]),
        ({}, {"targets": 9}, "data", ["targets 10 against 9"]),
        ({}, {"data_sha256": "d2"}, "data", ["d1 against d2"]),
        ({}, {"numpy": "2.0"}, "versions", ["numpy 1.26.4 against 2.0"]),
        ({}, {"threads": 4}, "versions", ["threads 1 against 4"]),
        ({}, {"device": "cuda"}, "versions", ["cuda"]),
    ],
)
def test_what_two_runs_were_given_is_compared(
    settings: dict[str, str], facts: dict[str, Any], field: str, named: list[str], tmp_path: Path
) -> None:
    report = diff(made(tmp_path, FACTS), made(tmp_path, {**FACTS, **facts}, **settings))
    told = " ".join(getattr(report, field))
    assert [part for part in named if part not in told] == []
    assert (report.same, report.rounds) == (True, 5)
    others = {"settings", "data", "versions"} - {
        field,
        *(["settings", "versions"] if settings else []),
    }
    assert {getattr(report, other) for other in others} == {()}


def test_a_round_before_a_fork_is_not_replayed_and_its_run_is_named(tmp_path: Path) -> None:
    origin = {"run": "parent", "folder": "the-folder-of-the-parent", "round": 4}
    found = diff(made(tmp_path, {**FACTS, "fork": origin}), made(tmp_path, FACTS, other=4))
    assert (found.divergence.round, found.divergence.what) == (4, "update")
    assert "the-folder-of-the-parent" in found.not_replayed
    assert found.step is None


def part(*steps: Step, round: int = 3, hashes: Sequence[str] = ()) -> Part:
    return Part(round, 1, steps, ClientReport(1, "accepted"), {"update_blake3": list(hashes)})


def step(name: str, value: float = 1, array: str = "weights", number: int = 1) -> Step:
    vector = floats(value, 2)
    blake3 = f"h{value:g}" if name == "message" else ""
    end = "client" if name.endswith("send") else "server"
    numbers = VectorNumbers.of(vector)
    return Step(end, name, number, numbers, 8, blake3=blake3, arrays={array: vector})  # type: ignore[arg-type]


START, SENT, ONE, TWO = step("start"), step("Stc.send"), step("message"), step("message", 2)
AGAIN = step("message", 3, number=2)


def first(array: str, value: float) -> list[Part]:
    return [part(step("start", value, array), round=1)]


NOBODY = (None, None)


STEPS: dict[str, tuple[list[Part], list[Part], str, tuple[bool | None, bool | None]]] = {
    "nothing": ([part(START, ONE, hashes=["h1"])], [part(START, ONE)], "", (True, None)),
    "the task": ([part(START)], [part(step("start", 5))], "task", NOBODY),
    "the weights": (first("weights", 1), first("weights", 5), "initial weights", NOBODY),
    "the buffers": (first("buffers", 1), first("buffers", 5), "initial weights", NOBODY),
    "the rate": (first("learning rate", 1), first("learning rate", 5), "task", NOBODY),
    "a step": (
        [part(START, SENT, ONE, hashes=["h1"])],
        [part(START, step("Stc.send", 3), TWO, hashes=["h1"])],
        *("Stc.send", (True, False)),
    ),
    "other steps": (
        [part(START, SENT)],
        [part(START, step("Clip.send"))],
        *("Stc.send against Clip.send", (None, None)),
    ),
    "a further step": ([part(START, SENT)], [part(START)], "the end: 2 against 1 steps", NOBODY),
    "a step less": ([part(START)], [part(START, SENT)], "the end: 1 against 2 steps", NOBODY),
    "two passes": (
        [part(START, ONE, AGAIN, hashes=["h1", "h3"])],
        [part(START, ONE, AGAIN, hashes=["h3", "h1"])],
        *("", (True, False)),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_first_step_that_differs_is_named_and_who_recorded_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *both, named, agrees = STEPS[name]
    parts = iter(both)
    monkeypatch.setattr(
        import_module("fedmx.history.diff"), "_replayed", lambda *given: tuple(next(parts))
    )
    found = step_of(cast(RecordedRun, None), cast(RecordedRun, None), 3, 1)
    assert (found.step, found.agrees) == (named, agrees)
