"""The texts about differences of recorded runs. Their records are made up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedmx import Experiment, RunFolder
from fedmx.errors import FedmxError
from fedmx.history import RecordedRun, diff
from fedmx.history.diff import DiffReport, OtherStep, step_of
from fedmx.history.divergence import (
    OF_THE_NETWORK,
    Divergence,
    RoundRecords,
    other_bits,
    other_records,
)
from fedmx.history.replay import Part, PartTrace, Step, all_same
from fedmx.history.values import OtherValues, VectorNumbers, compared, first_other
from layers.logic import ClientReport, Task, Training, Update
from tests.fedmx.golden.values import floats


def _client(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "round": 4,
        "client": number,
        "status": "accepted",
        "reason": "",
        "samples": 10 + number,
        "loss": 0.5,
        "update_blake3": [f"u{number}"],
        "asked_s": 0.25,
        "traceback": "",
        **changed,
    }


def _round(clients: Sequence[Mapping[str, Any]], **changed: Any) -> RoundRecords:
    values = {"round": 4, "model_sha256": "m", "chain": "c", "accuracy": 0.5, "seconds": 1.0}
    return RoundRecords.of({**values, "control_bytes": 5, **changed}, clients)


def _changed(number: int, many: int = 3, **changed: Any) -> list[dict[str, Any]]:
    """The records of clients; those up to a number are changed."""
    return [_client(one, **(changed if one <= number else {})) for one in range(many)]


_LATER = {"client": 1, "version": 3}
_PAIRS: dict[str, tuple[RoundRecords, RoundRecords]] = {
    "the same": (_round(_changed(-1)), _round(_changed(-1))),
    "times": (
        _round(_changed(-1)),
        _round(_changed(2, asked_s=9.0, traceback="a file"), seconds=7.0, chain="d"),
    ),
    "other clients": (_round(_changed(-1)), _round([_client(0), _client(2)])),
    "another order": (_round([_client(2), _client(0)]), _round([_client(0), _client(2)])),
    "nobody": (_round([]), _round([_client(0)])),
    "an update": (_round(_changed(-1)), _round(_changed(0, update_blake3=["v"]))),
    "two updates": (_round(_changed(-1)), _round(_changed(1, update_blake3=["v"]))),
    "ten updates": (_round(_changed(-1, 12)), _round(_changed(9, 12, update_blake3=["v"]))),
    "twelve updates": (_round(_changed(-1, 12)), _round(_changed(11, 12, update_blake3=["v"]))),
    "samples": (_round(_changed(-1)), _round(_changed(1, samples=7, update_blake3=["v"]))),
    "samples alone": (_round(_changed(-1)), _round(_changed(1, samples=7))),
    "a fate": (
        _round(_changed(-1)),
        _round(_changed(0, status="lost", reason="too late", update_blake3=[])),
    ),
    "a fate without a reason": (_round(_changed(0, status="declined")), _round(_changed(-1))),
    "another reason": (_round(_changed(0, reason="one")), _round(_changed(0, reason="two"))),
    "the model": (
        _round([*_changed(-1), _client(3, update_blake3=[])]),
        _round([*_changed(-1), _client(3, update_blake3=[])], model_sha256="n"),
    ),
    "a record of clients": (_round(_changed(-1)), _round(_changed(1, loss=0.25))),
    "a number of another kind": (_round(_changed(0, loss=1)), _round(_changed(0, loss=1.0))),
    "another order of keys": (
        _round(_changed(0, metrics={"a": 1, "b": 2}), mean={"a": 1, "b": 2}),
        _round(_changed(0, metrics={"b": 2, "a": 1}), mean={"b": 2, "a": 1}),
    ),
    "a record": (_round(_changed(-1)), _round(_changed(-1), accuracy=0.75)),
    "several records": (
        _round(_changed(-1), accuracy=1),
        _round(_changed(-1), accuracy=True, up_bytes=4),
    ),
    "a record of one": (_round(_changed(-1), words=["x" * 56]), _round(_changed(-1))),
    "a long record": (_round(_changed(-1), words=["x" * 57]), _round(_changed(-1), words=[])),
    "connections": (
        _round(_changed(0, reason="one")),
        _round(_changed(0, reason="two"), control_bytes=6, file_bytes=1, virtual=True),
    ),
    "a second task": (
        _round([_client(1, version=2), _client(1, version=3)]),
        _round([_client(1, version=2), _client(1, version=3, update_blake3=["v"])]),
    ),
    "an update that no task asked for": (
        _round([_client(1)]),
        _round([_client(1), _client(1, update_blake3=["v"])]),
    ),
}


def differences(parent: Path) -> str:
    """How two versions of a round differ in their records."""
    lines = []
    for name, pair in _PAIRS.items():
        for what, found in (
            ("bits", other_bits(4, *pair)),
            ("records", _of_records(pair, ())),
            ("records, one deployed", _of_records(pair, OF_THE_NETWORK)),
        ):
            lines.append(f"{name}: {what}: {found}")
            if found is not None:
                assert Divergence.of_record(json.loads(json.dumps(found.record()))) == found
                lines.append(f"  {found.client} {found.record()}")
    return "\n".join(lines)


def _of_records(
    pair: tuple[RoundRecords, RoundRecords], left_out: tuple[str, ...] | frozenset[str]
) -> Divergence | None:
    one, other = pair
    return other_records(4, one, other, left_out) if [*one.clients] == [*other.clients] else None


_EXPERIMENT = """
name: {name}
seed: {seed}
rounds: {last}
clients: {of}
compute:
  model: 2nn
  data: digits
  engine: {engine}
  train: {{learning_rate: {rate}, epochs: {epochs}}}
logic: {{preset: {preset}, hooks: {hooks}{logic}}}
privacy: {privacy}
"""
_SETTINGS = {
    "seed": 1,
    "last": 5,
    "of": 6,
    "engine": "numpy",
    "rate": 0.1,
    "epochs": 2,
    "preset": "fedavg",
    "hooks": "[]",
    "logic": "",
    "privacy": "null",
}
_FACTS = {
    "mode": "simulation",
    "shape": [1, 8, 8],
    "classes": 10,
    "data_sha256": "d1",
    "numpy": "1.26.4",
    "python": "3.11.1",
    "threads": 1,
    "builds": {"numpy": "aa", "mxnet": "bb"},
    "variables": {"OMP_NUM_THREADS": "1", "A": "2"},
    "code": {"own.py": "0123456789abcdef" * 4},
}


def made_run(
    parent: Path,
    name: str,
    rounds: Mapping[int, Mapping[str, Any]] | None = None,
    clients: Mapping[int, Mapping[str, Any]] | None = None,
    facts: Mapping[str, Any] | None = None,
    **settings: Any,
) -> RunFolder:
    """Make a run of records that nobody trained; of some rounds and clients they are changed.

    From the first changed round on, each has another link of the chain.
    """
    text = _EXPERIMENT.format(name=name, **{**_SETTINGS, **settings})
    given = Experiment.parse(text)
    known = {**_FACTS, "digest": given.digest(), "engine": given.compute.engine, **(facts or {})}
    run = RunFolder.create(parent, name, given.to_yaml(), known)
    changed = False
    for number in range(1, given.rounds + 1):
        of_round, of_client = (rounds or {}).get(number, {}), (clients or {}).get(number, {})
        changed |= bool(of_round or of_client)
        rows = [{**_client(one), "round": number} for one in range(3)]
        run.append_clients([{**rows[0], **of_client}, *rows[1:]])
        link = f"{name if changed else 'link'}-{number}"
        run.append_round(
            {
                "round": number,
                "accuracy": 0.5,
                "participants": [0, 1, 2],
                "control_bytes": 7,
                "model_sha256": f"m{number}",
                "chain": link,
                **of_round,
            }
        )
    run.finish("done")
    return run


_ORIGIN = {"run": "parent", "folder": "the folder of the parent", "round": 3}


def _pairs(parent: Path) -> Iterator[tuple[str, RunFolder, RunFolder]]:
    one = made_run(parent, "one")
    yield "the same", one, one
    yield "a longer one", one, made_run(parent, "long", last=7)
    many = {"seed": 2, "last": 6, "of": 7, "rate": 0.2, "epochs": 3}
    yield "five settings", one, made_run(parent, "five", **many)
    yield "six settings", one, made_run(parent, "six", **many, engine="mxnet")
    yield "hooks", one, made_run(parent, "hooks", hooks="[stc, {name: fedprox, mu: 0.5}]")
    yield "fewer hooks", made_run(parent, "more", hooks="[stc, {name: fedprox, mu: 0.5}]"), one
    data = {"shape": [64], "classes": 9, "data_sha256": "d2"}
    yield "data", one, made_run(parent, "data", facts=data)
    versions = {
        "numpy": "2.0.0",
        "threads": 4,
        "builds": {"numpy": "ab", "mxnet": "bc", "other": "1"},
        "variables": {},
        "code": {"own.py": "f" * 64, "more.py": "0" * 64},
        "device": "cuda",
    }
    lost = {"status": "lost", "reason": "too late", "update_blake3": []}
    yield "versions", one, made_run(parent, "versions", clients={2: lost}, facts=versions)
    yield "samples", one, made_run(parent, "samples", clients={5: {"samples": 3, **lost}})
    yield "a client", one, made_run(parent, "client", clients={3: {"client": 4}})
    yield "records", one, made_run(parent, "records", rounds={2: {"accuracy": 0.25}})
    later = {2: {"accuracy": 0.25}, 4: {"model_sha256": "x"}}
    yield "records, then bits", one, made_run(parent, "then", rounds=later, clients={4: lost})
    served = {"mode": "server"}
    network = {2: {"control_bytes": 9}}
    yield "connections", one, made_run(parent, "served", rounds=network, facts=served)
    both = {2: {"control_bytes": 9}, 4: {"accuracy": 1}}
    yield "connections and more", one, made_run(parent, "both", rounds=both, facts=served)
    two = made_run(parent, "deployed", facts=served)
    yield "connections of two deployments", two, made_run(parent, "x", rounds=network, facts=served)
    update = {3: {"update_blake3": ["v"]}}
    forked = made_run(parent, "fork", clients=update, facts={"fork": _ORIGIN})
    yield "before a fork", one, forked
    yield "a fold before a fork", forked, made_run(parent, "y", rounds={1: {"model_sha256": "x"}})
    yield "a fate before a fork", forked, made_run(parent, "z", clients={2: lost})
    yield "no hashes", one, made_run(parent, "old", rounds={4: {"chain": None}})
    yield "no rounds", RunFolder.create(parent, "empty", one.experiment_yaml, one.facts), one


def diffs(parent: Path) -> str:
    """Where made-up runs diverge, in both directions."""
    lines = []
    for name, *runs in _pairs(parent):
        for pair in (runs, runs[::-1]):
            try:
                report = diff(*pair)
            except FedmxError as error:
                lines += [f"{name}: refused: {error}"]
                found = {}
                continue
            lines += [f"{name}: {report.same}: {report.sentence}"]
            found = report.record()
            assert found.pop("sentence") == report.sentence
        lines += [f"  {json.dumps(found)}"]
    return "\n".join(lines)


_FOUND = Divergence(3, "update", "the updates of clients 4 and 2 differ", (4, 2, 5))
_FOLD = Divergence(3, "fold", "the models after it differ, and its 6 updates do not")
_OTHER = OtherValues("update", 3, 7850, "the largest by 2 units in the last place")
_STEPS: dict[str, tuple[Divergence, OtherStep]] = {
    "a step": (_FOUND, OtherStep("Stc.send", "client", _OTHER, (True, True))),
    "a step, two clients": (
        dataclasses.replace(_FOUND, clients=(4, 2)),
        OtherStep("Stc.send", "client", _OTHER, (True, None)),
    ),
    "a step, one client": (
        dataclasses.replace(_FOUND, clients=(4,)),
        OtherStep("task", "client", _OTHER, (None, False)),
    ),
    "a step of a version": (_FOUND, OtherStep("Stc.send", "client", _OTHER, (False, False), 7)),
    "another step": (_FOUND, OtherStep("Stc.send against Clip.send", "client", None, (True, True))),
    "initial weights": (_FOUND, OtherStep("initial weights", "server", _OTHER, (True, True))),
    "a fold": (_FOLD, OtherStep("fold", "server", _OTHER, (True, True))),
    **{
        f"no step, {agrees}": (_FOUND, OtherStep("", "", None, agrees))
        for agrees in ((True, False), (False, True), (False, False), (None, None))
    },
    "no fold": (_FOLD, OtherStep("", "server", None, (False, True))),
}


def steps(parent: Path) -> str:
    """What replays of both runs say, and which step of their parts is the first that differs."""
    lines = []
    for name, (found, step) in _STEPS.items():
        report = DiffReport(("a", "b"), (), (), (), (9, 9), 9, found, step)
        lines += [f"{name}: {report.sentence}", f"  {report.record()['step']}"]
    for name, (mine, theirs) in _parts().items():
        parts = iter((mine, theirs))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                import_module("fedmx.history.diff"), "_replayed", lambda *given, p=parts: next(p)
            )
            step = step_of(cast(RecordedRun, None), cast(RecordedRun, None), 3, 1)
        lines += [f"{name}: {step.record()}"]
    return "\n".join(lines)


def _part(
    *steps: Step, round: int = 3, hashes: Sequence[str] = (), version: int | None = None
) -> Part:
    fate = ClientReport(1, "accepted", version=version)
    return Part(round, 1, steps, fate, {"update_blake3": list(hashes)})


def _step(name: str, value: float = 1, array: str = "weights", number: int = 1) -> Step:
    end = "client" if name.endswith("send") else "server"
    vector = floats(value, 2)
    numbers = VectorNumbers.of(vector)
    blake3 = f"h{value:g}" if name == "message" else ""
    return Step(end, name, number, numbers, 8, blake3=blake3, arrays={array: vector})  # type: ignore[arg-type]


def _parts() -> dict[str, tuple[tuple[Part, ...], tuple[Part, ...]]]:
    start, sent = _step("start"), _step("Stc.send")
    said = [_step("message", value) for value in (1, 2)]
    again = _step("message", 3, number=2)
    return {
        "the same": ((_part(start, said[0], hashes=["h1"]),), (_part(start, said[0]),)),
        "the task": ((_part(start),), (_part(_step("start", 5)),)),
        "the weights of round 1": (
            (_part(start, round=1, hashes=["x"]),),
            (_part(_step("start", 5), round=1),),
        ),
        "the buffers of round 1": (
            (_part(_step("start", 1, "buffers"), round=1),),
            (_part(_step("start", 5, "buffers"), round=1),),
        ),
        "the rate of round 1": (
            (_part(_step("start", 1, "learning rate"), round=1),),
            (_part(_step("start", 5, "learning rate"), round=1),),
        ),
        "a step": (
            (_part(start, sent, said[0], hashes=["h1"]),),
            (_part(start, _step("Stc.send", 3), said[1], hashes=["h1"]),),
        ),
        "a step of a later task": (
            (_part(start, version=1), _part(start, sent, version=2)),
            (_part(start, version=1), _part(start, _step("Stc.send", 3), version=2)),
        ),
        "another step": ((_part(start, sent),), (_part(start, _step("Clip.send")),)),
        "more steps": ((_part(start, sent),), (_part(start),)),
        "more tasks": ((_part(start),), (_part(start), _part(start))),
        "passes": (
            (_part(start, said[0], again, hashes=["h1", "h3"]),),
            (_part(start, said[0], again, hashes=["h3", "h1"]),),
        ),
    }


def values(parent: Path) -> str:
    """How arrays differ, and what is shown of a task and an update at each step."""
    one, nan = floats(1, 2, 3), float("nan")
    empty = floats()
    pairs: list[tuple[str, np.ndarray, np.ndarray]] = [
        ("weights", one, one.copy()),
        ("weights", one, floats(1, 2, np.nextafter(np.float32(3), np.float32(4)))),
        ("update", floats(0, 1), floats(-0.0, 1)),
        ("buffers", floats(0, 1, 2), floats(-0.0, np.float32(1.0000002), 2)),
        ("2:Stc/means", one, floats(4, 5, 6)),
        ("update", floats(0, 1), floats(np.float32(1e-45), 1)),
        ("update", floats(-1e-45, 1), floats(np.float32(1e-45), 1)),
        ("update", floats(1, 1), floats(np.float32(1 + 1000 * 2**-23), 1)),
        ("update", floats(1, 1), floats(np.float32(1 + 1001 * 2**-23), 1)),
        ("update", floats(nan, 1), floats(2, 1)),
        ("update", floats(np.inf, 1), floats(2, 1)),
        ("update", one, floats(1, 2)),
        ("update", one, one.astype(np.float64)),
        ("update", np.zeros(2000, np.float32), np.ones(2000, np.float32)),
        ("metric loss", np.asarray(0.123456789012), np.asarray(0.5)),
        ("samples", np.asarray(4), np.asarray(5)),
        ("0:Clip/norm", floats(1), floats(3)),
        ("0:EightBit/codes", np.array([1, 2, 250], np.uint8), np.array([1, 0, 5], np.uint8)),
        ("memory of Stc/x", np.array([1.5, 2.5]), np.array([1.5, 2.25])),
        ("update", empty, empty),
    ]
    lines = [f"{name}: {compared(name, one, other)}" for name, one, other in pairs]
    lines += [str(first_other({"a": one, "b": one}, other)) for other in ({"a": one}, {"b": one})]
    lines += [str(first_other({"a": one}, {"b": one, "a": one})), str(first_other({}, {}))]
    for vector in (empty, floats(3, -4, 0, 0), floats(nan, 1), floats(np.inf, 0), floats(nan)):
        lines.append(str(VectorNumbers.of(vector)))
    for keep in (False, True):
        trace = PartTrace(5, keep)
        for message, step, memory in _messages():
            trace.append("client", step, message, memory)
        for number, found in trace.steps.items():
            for shown in found:
                arrays = {name: array.tolist() for name, array in shown.arrays.items()}
                lines.append(f"{keep} {number}: {json.dumps(shown.record())} {arrays}")
    accepted = _part(_step("start"), _step("message", 1), _step("message", 3, number=2), version=4)
    recorded = {
        "same": {"status": "accepted", "update_blake3": ["h1", "h3"], "reason": ""},
        "another": {"status": "rejected", "update_blake3": ["h3"], "reason": "late"},
        "none": {},
    }
    parts = [dataclasses.replace(accepted, record=one) for one in recorded.values()]
    parts.append(dataclasses.replace(parts[0], fate=ClientReport(1, "lost", "it left")))
    for part in parts:
        lines.append(f"{part.same} {part.blake3} {part.recorded_blake3}")
        lines.append(json.dumps(part.record_of_it()))
    for some in ([], parts[:1], parts[:2], parts[2:3], parts[1:3], [parts[0], parts[2]]):
        lines.append(f"{[part.same for part in some]} {all_same(some)}")
    return "\n".join(lines)


def _messages() -> Iterator[tuple[Task | Update, str, Mapping[str, Any] | None]]:
    slots: dict[str, Any] = {
        "0:Stc": {"signs": np.array([1, -1], np.int8), "mean": 0.5, "none": None, "on": True},
        "1:Text": {"text": "ab", "bytes": b"\x01\x02\x03", "table": np.ones((2, 2))},
    }
    training = Training(epochs=2, batch_size=4, learning_rate=0.25)
    task = Task(3, 5, 9, training, floats(3, 4), floats(1), slots=slots)
    yield task, "start", None
    yield (
        dataclasses.replace(task, weights=floats()),
        "Stc.send",
        {"sent": floats(7), "n": {"x": 1}},
    )
    yield dataclasses.replace(task, client=4), "start", None
    yield task, "task", {}
    yield task, "Stc.receive", None
    yield dataclasses.replace(task, weights=floats(), slots={}), "start", None
    update = Update(3, 5, 40, 10, floats(0, -2), floats(1), {"loss": 0.125, "norm": 2.0}, slots)
    yield update, "training", None
    yield dataclasses.replace(update, delta=floats()), "Stc.send", {"residual": floats(0.5)}
    yield dataclasses.replace(update, delta=floats()), "message", None
    yield dataclasses.replace(update, round=4, slots={"pass": {"number": 2}}), "decoded", None


DIFFERENCES: tuple[Callable[[Path], str], ...] = (differences, diffs, steps, values)
