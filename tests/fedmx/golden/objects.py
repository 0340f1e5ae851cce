"""What objects show of themselves, and all that the records of a round can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmx import Experiment, Round, RunFolder, simulate
from fedmx.journal.journal import Journal
from fedmx.server.step_back import StepBack
from layers.logic import Overhead, RoundReport, Traffic
from layers.logic.core.report import ClientReport, Times

MIB = 2**20
COMPUTE = {"engine": "numpy", "model": "logistic", "data": {"name": "blobs", "tests": 50}}


def a_round(number: int) -> Round:
    clients = (ClientReport(4, "accepted", samples=1), ClientReport(2, "lost", "gone"))
    report = RoundReport(number, 0.1, 2, clients, Traffic(), numbers={"epsilon": 0.5})
    return Round(report, None, None, seconds=1.0, elapsed_s=1.0, journal=Journal(number))


def a_round_with_everything() -> Round:
    given = a_round(3)
    overhead = Overhead(operator=("paused",), other_versions=("client 1: fedmx 2",))
    told = {"numbers": {"mine": 4.0}, "suspended": {7: 2.5, 4: 1.0}, "in_flight": 2}
    more = replace(given.report, overhead=overhead, **told)
    step = StepBack(3, 2, "a broken model", (1, 2), (1,))
    return replace(given, report=more, epsilon=1.5, stepped_back=(step,), measured={"gap": 0.25})


def a_round_of_many_tasks() -> Round:
    journal = Journal(3, updates={(4, 3): {1: "a0" * 32, 2: "b1" * 32}, (4, 2): {1: "c2" * 32}})
    numbers = {"norm": 1.5, "checksum": 7.0, "round": 9.0}
    ended = {"traffic": Traffic(30, 20), "times": Times(0.0, 1.0, 1.5, 2.0, 2.5)}
    known = {
        "task_round": 3,
        "version": 2,
        "staleness": 1,
        "tasks": 1,
        "share": 0.25,
        "malicious": True,
    }
    clients = (
        ClientReport(4, "accepted", samples=10, steps=5, metrics=numbers, **ended, **known),
        ClientReport(4, "accepted", task_round=2),
        ClientReport(4, "rejected", "no", "Traceback", task_round=3, share=0.0),
    )
    report = RoundReport(3, 0.1, 2, clients, Traffic(), others=(ClientReport(8, "not-selected"),))
    return Round(report, None, None, seconds=1.0, elapsed_s=1.0, journal=journal)


def records(parent: Path) -> str:
    """The records of a round in which little happened, of one with everything, and of clients."""
    lines = ["a round:", *_told(a_round(3).record())]
    lines += ["", "everything:", *_told(a_round_with_everything().record())]
    given = a_round_of_many_tasks()
    for client in given.client_records():
        lines += ["", f"client {client['client']}:", *_told(client)]
    lines += ["", f"updates {given.updates}, participants {given.participants}"]
    return "\n".join([*lines, f"staleness {given.staleness}, hashes {given.update_blake3}"])


def _told(record: Mapping[str, Any]) -> Iterator[str]:
    return (f"  {name}: {json.dumps(value)}" for name, value in record.items())


def cells(shown: Any) -> list[tuple[str, str]]:
    """The rows of an object's card, with its heading as the first one."""
    html = shown._repr_html_()
    (heading,) = re.findall(r"<strong>(.*?)</strong>", html)
    return [("", heading), *re.findall(r"<th [^>]*>(.*?)</th><td [^>]*>(.*?)</td>", html)]


def objects(parent: Path) -> str:
    """The line and the card of each object."""
    lines: list[str] = []

    def add(shown: Any) -> None:
        lines.extend([repr(shown), *(f"  {name}: {text}" for name, text in cells(shown))])

    experiment = Experiment(name="shown", rounds=4, clients=4, compute=COMPUTE)
    add(experiment)
    add(experiment.with_overrides(["logic.hooks=[stc, {name: clip, norm: 2}]"]))
    simulation = simulate(experiment)
    add(simulation)
    simulation.state = replace(simulation.state, round=4)
    rounds = [
        {"round": round, "accuracy": accuracy, "loss": accuracy and 2.5 * (1 - accuracy)}
        | {"up_bytes": round * MIB, "down_bytes": 2 * round * MIB, "elapsed_s": 30.0 * round}
        for round, accuracy in ((1, 0.25), (2, 0.71236), (3, 0.5), (4, None))
    ]
    simulation.remember(rounds)
    simulation.reason = "all 4 rounds were run"
    add(simulation)
    simulation.experiment, simulation.reason = None, ""
    add(simulation)
    simulation.network.untrusted = True  # type: ignore[misc]
    add(simulation)
    clients = (ClientReport(1, "accepted", tasks=1), ClientReport(2, "lost", tasks=2))
    report = RoundReport(3, 0.1, 2, clients, Traffic(2 * MIB, 3 * MIB))
    evaluated = Round(report, 0.71236, 1.23456, seconds=1.5, elapsed_s=9.0)
    add(evaluated)
    add(replace(evaluated, accuracy=None))
    folder = RunFolder.create(parent, "new", "rounds: 1\n", {})
    add(folder)
    for one in rounds:
        folder.append_round(one)
    with open(folder.path / "rounds.jsonl", "ab") as file:
        file.write(b"{}\n")
    add(folder)
    folder.finish("done", "all 4 rounds were run")
    folder.report_path.touch()
    add(RunFolder.open(folder.path, salvage=True))
    return "\n".join(lines)


OBJECTS: tuple[Callable[[Path], str], ...] = (objects, records)
