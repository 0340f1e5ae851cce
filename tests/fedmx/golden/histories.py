"""What is said about recorded runs, as text: their differences, forks, replayed parts and packs.

The records are made up. The runs of the forks and packs are real; only names and numbers that are
the same on every machine are written.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedmx import Experiment, RunFolder
from fedmx.errors import FedmxError
from fedmx.history import PackFile, RecordedRun, diff, fork, pack, replay, rerun, verify
from fedmx.history.diff import DiffReport, OtherStep, step_of
from fedmx.history.divergence import (
    OF_THE_NETWORK,
    Divergence,
    RoundRecords,
    other_bits,
    other_records,
)
from fedmx.history.fork import Removal, first_rounds
from fedmx.history.pack import MANIFEST, members_of, packed, to_bytes
from fedmx.history.packing import check_records
from fedmx.history.replay import Part, PartTrace, Step, all_same
from fedmx.history.values import OtherValues, VectorNumbers, compared, first_other
from fedmx.history.verify import run_again
from fedmx.run.records import JsonLines
from layers.logic import ClientReport, Task, Training, Update
from tests.fedmx.golden.values import floats
from tests.fedmx.pack.packed_runs import (
    Members,
    chain_anew,
    forged,
    records,
    write_experiment,
    write_records,
)
from tests.fedmx.recorded_runs import record

# --- differences --------------------------------------------------------------------------------


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


def _made(
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
    one = _made(parent, "one")
    yield "the same", one, one
    yield "a longer one", one, _made(parent, "long", last=7)
    many = {"seed": 2, "last": 6, "of": 7, "rate": 0.2, "epochs": 3}
    yield "five settings", one, _made(parent, "five", **many)
    yield "six settings", one, _made(parent, "six", **many, engine="mxnet")
    yield "hooks", one, _made(parent, "hooks", hooks="[stc, {name: fedprox, mu: 0.5}]")
    yield "fewer hooks", _made(parent, "more", hooks="[stc, {name: fedprox, mu: 0.5}]"), one
    data = {"shape": [64], "classes": 9, "data_sha256": "d2"}
    yield "data", one, _made(parent, "data", facts=data)
    versions = {
        "numpy": "2.0.0",
        "threads": 4,
        "builds": {"numpy": "ab", "mxnet": "bc", "other": "1"},
        "variables": {},
        "code": {"own.py": "f" * 64, "more.py": "0" * 64},
        "device": "cuda",
    }
    lost = {"status": "lost", "reason": "too late", "update_blake3": []}
    yield "versions", one, _made(parent, "versions", clients={2: lost}, facts=versions)
    yield "samples", one, _made(parent, "samples", clients={5: {"samples": 3, **lost}})
    yield "a client", one, _made(parent, "client", clients={3: {"client": 4}})
    yield "records", one, _made(parent, "records", rounds={2: {"accuracy": 0.25}})
    later = {2: {"accuracy": 0.25}, 4: {"model_sha256": "x"}}
    yield "records, then bits", one, _made(parent, "then", rounds=later, clients={4: lost})
    served = {"mode": "server"}
    network = {2: {"control_bytes": 9}}
    yield "connections", one, _made(parent, "served", rounds=network, facts=served)
    both = {2: {"control_bytes": 9}, 4: {"accuracy": 1}}
    yield "connections and more", one, _made(parent, "both", rounds=both, facts=served)
    two = _made(parent, "deployed", facts=served)
    yield "connections of two deployments", two, _made(parent, "x", rounds=network, facts=served)
    update = {3: {"update_blake3": ["v"]}}
    forked = _made(parent, "fork", clients=update, facts={"fork": _ORIGIN})
    yield "before a fork", one, forked
    yield "a fold before a fork", forked, _made(parent, "y", rounds={1: {"model_sha256": "x"}})
    yield "a fate before a fork", forked, _made(parent, "z", clients={2: lost})
    yield "no hashes", one, _made(parent, "old", rounds={4: {"chain": None}})
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


# --- forks --------------------------------------------------------------------------------------

_SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 3,
    "clients": 6,
    "compute": {
        "engine": "numpy",
        "model": "logistic",
        "data": "digits",
        "normalise": {"scale": 16},
        "train": {"batch_size": 20, "learning_rate": 0.05},
    },
    "logic": {"selector": {"name": "uniform", "count": 2}, "hooks": ["fedavgm", "stc"]},
}
_EVERYTHING = [
    "seed=2",
    "clients=7",
    "compute.model=lenet5",
    "compute.data={name: digits, hold_out: 0.3}",
    "compute.engine=mxnet",
    "compute.start=a.safetensors",
    "compute.normalise.scale=8",
    "compute.partition=dirichlet",
    "compute.bits=portable",
    "compute.evaluate.sample=10",
    "clock.devices=lognormal",
]
_REFUSED: tuple[tuple[int | None, list[str], list[int]], ...] = (
    (1, _EVERYTHING, []),
    (1, ["logic.preset={name: fedshare}"], []),
    (1, ["logic.hooks=[fedshare, divergence]"], []),
    (1, [], [6]),
    (1, [], [*range(6)]),
    (1, ["logic.min_updates=6"], [0]),
    (4, [], []),
    (-1, [], []),
    (3, [], []),
    (2, ["rounds=2"], []),
    (None, [], []),
    (None, ["rounds=8"], []),
)
_WANTED: tuple[tuple[int | None, list[str], list[int]], ...] = (
    (0, [], []),
    (2, ["compute.train.learning_rate=0.01", "rounds=9", "name=other"], []),
    (1, ["logic.hooks=[{name: clip, norm: 5}, {name: fedavgm, momentum: 0.5}]"], []),
    (0, ["logic.hooks=[fedadam]"], []),
    (2, ["logic.hooks=[fedadam]", "logic.selector.count=3"], []),
    (1, ["logic.preset={name: ditto, fraction: 0.5}", "logic.hooks=[]"], []),
)


def forks(parent: Path) -> str:
    """Which forks of a run are refused, and what the others say of their beginning."""
    run = record(Experiment(**_SMALL), parent)
    lines = [f"{one['round']}: client {one['client']} {one['status']}" for one in run.clients()]
    first = first_rounds(run, range(6))
    lines.append(f"{first}")
    came = {round: client for client, round in first.items()}
    never = came[None]
    removed: list[tuple[int | None, list[str], list[int]]] = [
        (None, [], [came[1]]),
        (None, [], [came[2]]),
        (None, ["rounds=8"], [came[2], never]),
        (2, [], [came[2]]),
        (2, ["logic.selector.count=3"], [came[1], never]),
        (2, [], [never]),
        (None, [], [never]),
        (None, [], [never, came[1], came[2]]),
    ]
    for round, overrides, without in (*_REFUSED, *_WANTED, *removed):
        lines.append(f"{round} {overrides} {without}")
        try:
            made = fork(run, round, overrides, without)
        except FedmxError as error:
            lines.append(f"  refused: {error}")
            continue
        lines += [f"  {name}: {value}" for name, value in made.origin.record().items() if value]
        lines += [f"  {line}" for line in made.origin.lines()]
        numbers = [one["round"] for one in made.folder.rounds()]
        lines.append(f"  {made.folder.name} {numbers} {made.folder.checkpoint_rounds}")
    again = fork(run, 2)
    for round in (0, 1, 2):
        try:
            lines.append(f"fork of a fork {round}: {fork(again.folder, round).origin.round}")
        except FedmxError as error:
            lines.append(f"fork of a fork {round}: refused: {error}")
    return "\n".join(lines)


def removals(parent: Path) -> str:
    """What is said of clients that forks leave out."""
    lines = []
    for dependence in ("", "BySize does not select by the clients' numbers alone"):
        for first in ({2: 4}, {2: 1}, {2: None}, {2: 3, 5: 2}, {2: 3, 5: None}):
            removal = Removal((*first,), first, dependence)
            try:
                lines.append(f"{first} {dependence}: after round {removal.round}")
            except FedmxError as error:
                lines.append(f"{first} {dependence}: refused: {error}")
                continue
            for round in (0, 1, 2, 3):
                for same in (True, False):
                    note = removal.note(round, same)
                    lines.append(f" {round} {same} {removal.is_exact(round)}: {note}")
    run = _made(parent, "run", clients={2: {"status": "not-selected"}, 3: {"client": 4}})
    lines.append(f"{first_rounds(run, [0, 1, 2, 4, 5])}")
    back = {1: {"stepped_back": [{"to": 2}]}, 4: {"stepped_back": [{"to": 3}, {"to": 1}]}}
    run = _made(parent, "back", rounds=back, clients={1: {"client": 5}, 2: {"client": 5}})
    lines.append(f"{first_rounds(run, [0, 1, 2, 4, 5])}")
    return "\n".join(lines)


# --- packs --------------------------------------------------------------------------------------


def packs(parent: Path) -> str:
    """What is in a pack, and what is said of damaged and changed ones."""
    run = record(
        Experiment(**{**_SMALL, "rounds": 2, "clients": 4, "stop": {"accuracy": 1}}), parent
    )
    path = parent / "whole.fedmx"
    pack(run, path)
    content = path.read_bytes()
    lines = [*members_of(content), PackFile.read(path).manifest.to_bytes().decode()]
    forked = fork(run, 1, ["rounds=3"])
    list(forked.rounds())
    pack(forked.folder, parent / "fork.fedmx")
    lines += [*members_of((parent / "fork.fedmx").read_bytes())]
    facts = json.loads(PackFile.read(parent / "fork.fedmx").members["run.json"])["facts"]
    lines.append(json.dumps(facts["fork"]))
    for name, changed in _damaged(content).items():
        (parent / "x.fedmx").write_bytes(changed)
        lines.append(f"{name}: {_read(parent / 'x.fedmx', parent / 'opened')}")
    for change in _CHANGES:
        forged(path, change, parent / "x.fedmx")
        lines.append(f"{change.__name__}: {_read(parent / 'x.fedmx', parent / 'opened')}")
    for change in _FORKED:
        forged(parent / "fork.fedmx", change, parent / "x.fedmx")
        lines.append(f"{change.__name__}: {_read(parent / 'x.fedmx', parent / 'opened')}")
    for change in (with_a_module, of_other_machines):
        found = verify(forged(path, change, parent / "x.fedmx")).record()
        lines += [f"{change.__name__}: {json.dumps(found, indent=1)}"]
    lines += _not_packed(parent)
    return _of_any_machine("\n".join(lines))


def _of_any_machine(text: str) -> str:
    """Replace hashes, lengths and versions, and sentences of other packages."""
    text = re.sub("[0-9a-f]{64}", "HASH", text)
    text = re.sub(r'"bytes": \d+', '"bytes": LENGTH', text)
    text = re.sub(r"against \d+(\.\d+)+", "against VERSION", text)
    text = re.sub(r"(has no checkpoint of round \d+ \().*", r"\1...)", text)
    return re.sub(r"(Error while deserializing)[^()]*", r"\1", text)


def _not_packed(parent: Path) -> Iterator[str]:
    """Yield why runs are not packed."""
    runs = {name: _made(parent, name) for name in ("failed", "stopped")}
    for status, run in runs.items():
        run.finish(cast(Any, status), "the reason")
    private = {
        "privacy": "{name: central, clip: 0.5, delta: 0.01, noise: 1.1}",
        "preset": "{name: fedavg, weights: uniform}",
        "logic": ", selector: {name: poisson, probability: 0.5}, min_updates: 0",
    }
    runs["private"] = _made(parent, "private", facts={"mode": "server"}, **private)
    runs["other data"] = _made(parent, "other")
    for name, run in runs.items():
        with pytest.raises(FedmxError) as caught:
            pack(run, parent / "not.fedmx")
        yield f"{name}: {caught.value}"
    (parent / "folder.fedmx").mkdir()
    for path in (parent / "folder.fedmx", parent / "not there" / "x.fedmx", parent / "x.zip"):
        with pytest.raises(FedmxError) as caught:
            pack(runs["stopped"], path)
        yield f"{path.name}: {caught.value}"


def _read(path: Path, folder: Path) -> str:
    """Read, unpack and check a pack, as `verify` does before it runs anything."""
    try:
        made = PackFile.read(path)
        opened = made.unpack(folder)
        found = check_records(made, opened)
    except FedmxError as error:
        # What follows the place is pydantic's sentence.
        return re.sub(r"(manifest is wrong \([^:]*: ).*\)", r"\1...)", str(error))
    finally:
        if folder.exists():
            folder.rename(folder.with_name(f"{folder.name}-{len(list(folder.parent.iterdir()))}"))
    return f"{found.rounds} rounds"


def _zip(members: Mapping[str, bytes], comment: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, one in members.items():
            archive.writestr(zipfile.ZipInfo(name), one, how)
        archive.comment = comment
    return file.getvalue()


def _damaged(content: bytes) -> dict[str, bytes]:
    whole = PackFile.of_bytes(content)
    members, others = members_of(content), dict(whole.members)
    manifest = json.loads(members[MANIFEST])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        seal = archive.comment

    def of_manifest(changed: object) -> bytes:
        return to_bytes({**members, MANIFEST: json.dumps(changed).encode()})

    def without(name: str) -> dict[str, bytes]:
        return {one: text for one, text in others.items() if one != name}

    return {
        "nothing": b"",
        "other bytes": b"PK" * 500,
        "the first half": content[: len(content) // 2],
        "a byte of a member": content.replace(b'"round"', b'"rounD"', 1),
        "bytes behind it": content + b"x",
        "no seal": _zip(members, b""),
        "another seal": _zip(members, b"fedmx pack " + b"0" * 64),
        "no manifest": _zip(others, seal),
        "another time of its members": _zip(members, seal),
        "compressed": _zip(members, seal, zipfile.ZIP_DEFLATED),
        "another name": _zip({**members, "modules/../up.py": b""}, seal),
        "a long name": _zip({**members, "x" * 300: b""}, seal),
        "a member more": to_bytes({**members, "words.json": b"[]"}),
        "a member less": to_bytes({**without("status.json"), MANIFEST: members[MANIFEST]}),
        "another member": to_bytes({**members, "status.json": b"{}"}),
        "no status": packed(whole.manifest, without("status.json")),
        "no records": packed(whole.manifest, without("rounds.jsonl")),
        "a module of Python": packed(whole.manifest, {**others, "modules/json.py": b""}),
        "a module of fedmx": packed(whole.manifest, {**others, "modules/layers/x.py": b""}),
        "a manifest of text": to_bytes({**members, MANIFEST: b"text"}),
        "a list": of_manifest([]),
        "a later format": of_manifest({**manifest, "format": 2, "more": 1}),
        "no run": of_manifest({key: one for key, one in manifest.items() if key != "run"}),
        "a key more": of_manifest({**manifest, "more": 1}),
        "a negative size": of_manifest({**manifest, "data": {**manifest["data"], "test": -1}}),
        "half a hash": of_manifest({**manifest, "data": {**manifest["data"], "sha256": "0" * 63}}),
    }


def _in_rounds(members: Members, round: int, **values: Any) -> None:
    lines = records(members, "rounds.jsonl")
    lines[round - 1] = {key: one for key, one in (lines[round - 1] | values).items() if one != ...}
    write_records(members, "rounds.jsonl", lines)


def _in_clients(members: Members, **values: Any) -> None:
    lines = records(members, "clients.jsonl")
    lines[-1] |= values
    write_records(members, "clients.jsonl", lines)


def nothing(members: Members) -> None:
    pass


def no_rounds(members: Members) -> None:
    members["rounds.jsonl"] = b""


def no_round_1(members: Members) -> None:
    write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[1:])


def no_round_2(members: Members) -> None:
    write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[:1])


def a_damaged_round(members: Members) -> None:
    members["rounds.jsonl"] = members["rounds.jsonl"].replace(b"accuracy", b"accurbcy", 1)


def a_damaged_client(members: Members) -> None:
    members["clients.jsonl"] = members["clients.jsonl"].replace(b"accepted", b"acceqted", 1)


def another_accuracy(members: Members) -> None:
    _in_rounds(members, 2, accuracy=0.99)


def no_chain(members: Members) -> None:
    _in_rounds(members, 2, chain=...)


def no_model(members: Members) -> None:
    _in_rounds(members, 1, model_sha256=...)


def a_model_that_is_no_text(members: Members) -> None:
    _in_rounds(members, 1, model_sha256=5)


def no_participants(members: Members) -> None:
    _in_rounds(members, 2, participants=...)


def participants_of_text(members: Members) -> None:
    _in_rounds(members, 2, participants=["0"])


def another_model_in_the_records(members: Members) -> None:
    _in_rounds(members, 2, model_sha256="0" * 64)
    chain_anew(members)


def another_update(members: Members) -> None:
    _in_clients(members, update_blake3=["0" * 64])


def an_update_that_is_no_list(members: Members) -> None:
    _in_clients(members, update_blake3="0" * 64)


def an_update_of_numbers(members: Members) -> None:
    _in_clients(members, update_blake3=[5])


def a_client_of_text(members: Members) -> None:
    _in_clients(members, client="0")


def no_bytes_of_the_model(members: Members) -> None:
    members["model.safetensors"] = b""


def no_file_of_the_model(members: Members) -> None:
    del members["model.safetensors"]


def another_model(members: Members) -> None:
    content = bytearray(members["model.safetensors"])
    content[-1] ^= 1
    members["model.safetensors"] = bytes(content)


def another_name_of_a_tensor(members: Members) -> None:
    content = members["model.safetensors"]
    members["model.safetensors"] = content.replace(b"bias", b"bias"[::-1], 1)


def another_type_of_a_tensor(members: Members) -> None:
    members["model.safetensors"] = members["model.safetensors"].replace(b'"F32"', b'"I32"', 1)


def another_experiment(members: Members) -> None:
    members["experiment.yaml"] += b"# more\n"


def a_run_that_failed(members: Members) -> None:
    members["status.json"] = b"{}"


def no_builds(members: Members) -> None:
    write_experiment(members, members["experiment.yaml"].decode(), builds=None)


def a_fork_of_nothing(members: Members) -> None:
    write_experiment(members, members["experiment.yaml"].decode(), fork={"round": 1})


def a_fork_without_its_checkpoint(members: Members) -> None:
    text = members["experiment.yaml"].decode()
    write_experiment(members, text, fork={"round": 1, "run": "parent"})


_CHANGES: tuple[Callable[[Members], None], ...] = (
    nothing,
    no_rounds,
    no_round_1,
    no_round_2,
    a_damaged_round,
    a_damaged_client,
    another_accuracy,
    no_chain,
    no_model,
    a_model_that_is_no_text,
    no_participants,
    participants_of_text,
    another_model_in_the_records,
    another_update,
    an_update_that_is_no_list,
    an_update_of_numbers,
    a_client_of_text,
    no_bytes_of_the_model,
    no_file_of_the_model,
    another_model,
    another_name_of_a_tensor,
    another_type_of_a_tensor,
    another_experiment,
    a_run_that_failed,
    no_builds,
    a_fork_of_nothing,
    a_fork_without_its_checkpoint,
)
_BEGIN = "checkpoints/round-000001.safetensors"


def the_fork(members: Members) -> None:
    pass


def no_begin(members: Members) -> None:
    del members[_BEGIN]


def half_a_begin(members: Members) -> None:
    members[_BEGIN] = members[_BEGIN][:-9]


def a_begin_of_another_round(members: Members) -> None:
    facts = json.loads(members["run.json"])["facts"]
    text = members["experiment.yaml"].decode()
    write_experiment(members, text, fork={**facts["fork"], "round": 2})
    members["checkpoints/round-000002.safetensors"] = members.pop(_BEGIN)


_FORKED = (the_fork, no_begin, half_a_begin, a_begin_of_another_round)


def with_a_module(members: Members) -> None:
    members["modules/mine/__init__.py"] = b"a\nb\n"
    members["modules/other.py"] = b"raise SystemExit\n"


def of_other_machines(members: Members) -> None:
    text = members["experiment.yaml"].decode()
    write_experiment(members, text, mode="server", numpy="0.1", address="203.0.113.1:1")
    del members["journal.jsonl"]


def verifications(parent: Path) -> str:
    """Where packed runs diverge from their records when they are run again."""
    lines = []
    for deployed, changes in ((False, _OF_A_RUN), (True, _OF_A_DEPLOYMENT)):
        run = record(Experiment(**{**_SMALL, "rounds": 2}), parent, deployed=deployed)
        path = parent / f"{deployed}.fedmx"
        pack(run, path)
        for change in changes:
            forged(path, change, parent / "x.fedmx")
            changed = PackFile.read(parent / "x.fedmx")
            opened = changed.unpack(parent / f"{deployed}-{change.__name__}")
            check_records(changed, opened)
            told: list[Mapping[str, Any]] = []
            found = run_again(RecordedRun.open(opened), changed.manifest.data, told.append)
            lines.append(f"{deployed} {change.__name__}: {found} {told}")
            lines.append(f"  {None if found is None else found.record()}")
        whole = PackFile.read(path)
        data = whole.manifest.data.model_copy(update={"sizes": (1, 2, 3)})
        opened = whole.unpack(parent / f"{deployed}-opened")
        found = run_again(RecordedRun.open(opened), data, told.append)
        lines.append(f"{deployed}, other parts: {found}")
    return re.sub("(BLAKE3|recorded) [0-9a-f]{12}", r"\1 HASH", "\n".join(lines))


def _experiment(members: Members, *overrides: str) -> None:
    text = members["experiment.yaml"].decode()
    changed = Experiment.parse(text).with_overrides(overrides)
    write_experiment(members, changed.to_yaml(), digest=changed.digest())


def other_steps(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    lines[0]["steps"] += 1
    write_records(members, "clients.jsonl", lines)


def other_fates(members: Members) -> None:
    _in_rounds(members, 2, rejected=5, lost=6)
    chain_anew(members)


def other_control_bytes(members: Members) -> None:
    _in_rounds(members, 2, control_bytes=5)
    chain_anew(members)


def a_last_update_that_is_another(members: Members) -> None:
    another_update(members)
    chain_anew(members)


def a_client_less(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    gone = lines.pop()
    write_records(members, "clients.jsonl", lines)
    rounds = records(members, "rounds.jsonl")
    rounds[1]["participants"].remove(gone["client"])
    write_records(members, "rounds.jsonl", rounds)
    chain_anew(members)


def fewer_rounds(members: Members) -> None:
    _experiment(members, "rounds=1")


def more_updates(members: Members) -> None:
    _experiment(members, "logic.min_updates=3")


def an_update_in_the_journal(members: Members) -> None:
    lines = records(members, "journal.jsonl")
    event = next(event for _, event, *_ in lines[1]["entries"] if event["event"] == "update")
    event["blake3"] = "0" * 64
    write_records(members, "journal.jsonl", lines)


def a_task_in_the_journal(members: Members) -> None:
    lines = records(members, "journal.jsonl")
    commands = [one for _, _, *some in lines[1]["entries"] for one in some]
    next(one for one in commands if one[0] == "tasks")[2][1] = 7
    write_records(members, "journal.jsonl", lines)


_OF_A_RUN: tuple[Callable[[Members], None], ...] = (
    nothing,
    other_steps,
    other_fates,
    other_control_bytes,
    a_last_update_that_is_another,
    a_client_less,
    fewer_rounds,
    more_updates,
    an_update_in_the_journal,
)
_OF_A_DEPLOYMENT: tuple[Callable[[Members], None], ...] = (
    nothing,
    other_fates,
    other_control_bytes,
    an_update_in_the_journal,
    a_task_in_the_journal,
)


# --- replays ------------------------------------------------------------------------------------


def replays(parent: Path) -> str:
    """What replays of a run say of its rounds, its parts and its changed records."""
    run = record(Experiment(**{**_SMALL, "rounds": 2}), parent)
    taken = {one["client"] for one in run.clients(2)}
    here, absent = min(taken), min({*range(6)} - taken)
    lines = []
    for given in ({}, {"round": 2}, {"round": 2, "client": here}):
        found = replay(run, **given).record()
        for part in found.get("parts", ()):
            for step in part["steps"]:
                lines.append(" ".join(f"{step[name]}" for name in ("end", "step", "pass")))
            del part["steps"]
        lines.append(f"{[*given]}: {json.dumps(found, indent=1)}")
    for name, change in _SPOILED.items():
        copy = Path(shutil.copytree(run.path, parent / name))
        change(copy)
        for given in ({}, {"round": 2, "client": here}):
            lines.append(f"{name} {[*given.items()]}: {_replayed(copy, **given)}")
    for given in (
        {"round": 0},
        {"round": 4},
        {"client": 3},
        {"stop_at": "Stc.send"},
        {"client": 3, "stop_at": "Stc.send"},
        {"round": 2, "client": absent},
        {"round": 2, "client": here, "stop_at": "Stc.sned"},
        {"round": 2, "client": here, "overrides": ["executor.processes=1"]},
        {"overrides": ["seed=2"]},
    ):
        lines.append(f"{given}: {_replayed(run, **given)}")  # type: ignore[arg-type]
    for round in (-1, 0, 5):
        with pytest.raises(FedmxError) as caught:
            rerun(run, round)
        lines.append(f"from {round}: {caught.value}")
    made = fork(run, 1).folder
    with pytest.raises(FedmxError) as caught:
        rerun(made, 1)
    lines.append(f"fork from 1: {caught.value}")
    made.checkpoint_path(1).unlink()
    with pytest.raises(FedmxError) as caught:
        rerun(made, 2)
    lines.append(f"without its checkpoint: {caught.value}")
    return _of_any_machine("\n".join(lines))


def _replayed(run: RunFolder | Path, **given: Any) -> str:
    try:
        report = replay(run, **given)
    except FedmxError as error:
        return f"refused: {error}"
    rounds = [f"{one.round} {one.same} {one.record_holds} {one.differing}" for one in report.rounds]
    return f"{report.same} {rounds} {[part.same for part in report.parts]}"


def _line_of(file: str, round: int, **changed: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        lines = JsonLines(run / file)
        rows = list(lines.read())
        lines.path.unlink()
        at = next(row for row in rows if row["round"] == round)
        lines.append({**row, **changed} if row is at else row for row in rows)

    return change


def _without(file: str, round: int) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        JsonLines(run / file).keep(lambda row: row["round"] != round)

    return change


def _damaged_line(file: str, old: bytes) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / file).write_bytes((run / file).read_bytes().replace(old, old.upper(), 1))

    return change


_SPOILED = {
    "another model": _line_of("rounds.jsonl", 2, model_sha256="0" * 64),
    "another accuracy": _line_of("rounds.jsonl", 2, accuracy=0.999),
    "another update": _line_of("clients.jsonl", 2, update_blake3=["0" * 64]),
    "no update": _line_of("clients.jsonl", 2, update_blake3=[]),
    "no chain": _line_of("rounds.jsonl", 2, chain=None),
    "no round 2": _without("rounds.jsonl", 2),
    "no clients of round 2": _without("clients.jsonl", 2),
    "no journal of round 2": _without("journal.jsonl", 2),
    "no journal": _without("journal.jsonl", 1),
    "a damaged round": _damaged_line("rounds.jsonl", b"accuracy"),
    "a damaged client": _damaged_line("clients.jsonl", b"accepted"),
}


HISTORIES: tuple[Callable[[Path], str], ...] = (
    differences,
    diffs,
    steps,
    values,
    forks,
    removals,
    packs,
    verifications,
    replays,
)
