"""The texts about forks of real runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmx import Experiment
from fedmx.errors import FedmxError
from fedmx.history import fork
from fedmx.history.fork import Removal, first_rounds
from tests.fedmx.golden.difference_pages import made_run
from tests.fedmx.recorded_runs import record

SMALL: dict[str, Any] = {
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
    """The refusals of forks of a run, and the records and notes of the other forks."""
    run = record(Experiment(**SMALL), parent)
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
    """The notes about clients that forks leave out."""
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
    run = made_run(parent, "run", clients={2: {"status": "not-selected"}, 3: {"client": 4}})
    lines.append(f"{first_rounds(run, [0, 1, 2, 4, 5])}")
    back = {1: {"stepped_back": [{"to": 2}]}, 4: {"stepped_back": [{"to": 3}, {"to": 1}]}}
    run = made_run(parent, "back", rounds=back, clients={1: {"client": 5}, 2: {"client": 5}})
    lines.append(f"{first_rounds(run, [0, 1, 2, 4, 5])}")
    return "\n".join(lines)


FORKS: tuple[Callable[[Path], str], ...] = (forks, removals)
