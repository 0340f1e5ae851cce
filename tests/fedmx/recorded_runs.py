"""Small runs in their folders, for the tests of what is done with them afterwards."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, RunFolder, recorded, simulate
from fedmx.run import gather_facts
from fedmx.run.records import JsonLines
from fedmx.simulation.executors.parallel import Backend
from tests.fedmx import kinds
from tests.fedmx.fork_server import write_no_page

TREE: dict[str, Any] = {
    "rounds": 6,
    "clients": 6,
    "compute": {**kinds.TREE["compute"], "model": "logistic"},
    "logic": {"selector": {"name": "uniform", "fraction": 0.7}},
    "run": {"checkpoint": {"every": 4}},
}


def record(
    given: Experiment,
    runs: Path,
    *,
    modules: Path | None = None,
    deployed: bool = False,
    backend: Backend | None = None,
) -> RunFolder:
    """Simulate an experiment to its end, as the command does; return its folder in `runs`.

    If there is a `backend`, its workers train, and it stays open. If `deployed`, the server takes
    its clients for deployed ones, and records their course.
    """
    assembly = Assembly(given)
    server = simulate(assembly, backend)
    if deployed:
        server.network.untrusted = True  # type: ignore[misc]
    facts = gather_facts(
        seed=given.seed,
        mode="server" if deployed else "simulation",
        digest=given.digest(),
        engine=given.compute.engine,
        modules=str(modules or runs),
        **assembly.facts(),
    )
    folder = RunFolder.create(runs, given.name, given.to_yaml(), facts, assembly.kept())
    with no_page():
        list(recorded(server, folder, every=given.run.checkpoint.every))
    return folder


@contextlib.contextmanager
def no_page() -> Iterator[None]:
    """Let runs that end in this block have an empty page."""
    with pytest.MonkeyPatch.context() as patch:
        write_no_page(patch.setattr)
        yield


def run_of(
    folder: Path, *, modules: Path | None = None, deployed: bool = False, **changed: Any
) -> RunFolder:
    """Record a run of `TREE` with changes."""
    text = json.dumps({**TREE, **changed})
    given = Experiment.parse(text, "runs.yaml", folder=modules, modules=None)
    return record(given, folder, modules=modules, deployed=deployed)


def changed_records(
    run: RunFolder, folder: Path, file: str, *, last: bool = False, **values: Any
) -> RunFolder:
    """A copy of a run in whose records of round 3, or in the last of them, something is another."""
    path = Path(shutil.copytree(run.path, folder / "other"))
    lines = JsonLines(path / file)
    records = list(lines.read())
    of_round = [one for one in records if one["round"] == 3]
    lines.path.unlink()
    for one in of_round[-1:] if last else of_round:
        one.update(values)
    lines.append(records)
    return RunFolder.open(path)


HALVING = """
from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientSide, Hook, ServerSide


@dataclass(frozen=True)
class Halving(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            half = update.delta * np.float32(0.5)
            return replace(update, delta=half)

    class Server(ServerSide):
        def receive(self, update, context):
            return replace(update, delta=update.delta * np.float32(2))
"""


def halving_run(folder: Path) -> RunFolder:
    """Six rounds of all six clients with a hook of the test's own before STC."""
    (folder / "replayed_halving.py").write_text(HALVING)
    hooks = ["replayed_halving:Halving", "stc"]
    logic = {"selector": {"name": "uniform", "fraction": 1.0}, "hooks": hooks}
    return run_of(folder, modules=folder, logic=logic)


ATTACK = """
from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientSide, Hook


@dataclass(frozen=True)
class Attack(Hook):
    round: int

    class Client(ClientSide):
        def send(self, update, context):
            if (context.client, context.round) != (2, self.hook.round):
                return update
            signs = np.where(np.arange(update.delta.size) % 2, 1, -1).astype(np.float32)
            return replace(update, delta=np.float32(3e38) * signs)
"""


def attacked_run(folder: Path, *, attacked: int, **changed: Any) -> RunFolder:
    """A run that has stepped back, since client 2 sent a huge update in the round `attacked`."""
    module = f"attack_{folder.name}"  # Python imports a module of one name once
    (folder / f"{module}.py").write_text(ATTACK)
    logic = {
        "selector": {"name": "uniform", "fraction": 1.0},
        "hooks": [{"name": f"{module}:Attack", "round": attacked}],
        "max_update": None,
    }
    run = run_of(folder, modules=folder, logic=logic, **changed)
    assert any("stepped_back" in record for record in run.rounds())
    return run
