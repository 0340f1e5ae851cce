"""The journal of a run is enough to run it to the same bits, whatever happened in it.

Here the clients are in this process, and the server is told that they are deployed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, Round, RunFolder, Server, recorded, simulate
from fedmx.history.carrier import JournalClients
from fedmx.history.recorded import follow, following
from fedmx.journal.journal import JournalError, journals_of
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.engines.mxnet.engine import MXNetEngine
from tests.fedmx.deployment.test_deployment_by_hand import samples_of
from tests.fedmx.kinds import KINDS, experiment
from tests.fedmx.server import test_step_back as steps
from tests.fedmx.timeless import timeless

FLEET = {"deadline_s": 4, "devices": "lognormal", "dropout": 0.2, "uploads": "serial"}
RUNS: dict[str, dict[str, Any]] = {
    **{name: KINDS[name] for name in ("projected stc", "scaffold", "passes", "online knapsack")},
    "over-selection and a deadline": {
        "logic": {
            "preset": {"name": "scaffold", "fraction": 0.5},
            "over_select": 1.5,
            "min_updates": 0,
        },
        "clock": FLEET,
    },
    "measured times": {
        "logic": {"preset": {"name": "fedcs", "candidates": 0.7}, "min_updates": 0},
        "clock": FLEET,
    },
    "labels": {"logic": {"preset": {"name": "fedaim", "mediators": 1, "threshold": 0.95}}},
}


def deployed(server: Server) -> Server:
    """The server of a simulation, which takes its clients for deployed ones."""
    server.network.foreign = True  # type: ignore[misc]
    return server


def run_of(given: Experiment, parent: Path) -> RunFolder:
    """The folder of a run that was resumed once, from the start."""
    folder = RunFolder.create(parent, "run", given.to_yaml(), {})
    begun = recorded(deployed(simulate(given)), folder, every=2)
    assert next(begun).round == 1  # of which there is no checkpoint
    begun.close()
    list(recorded(deployed(simulate(given)), RunFolder.open(folder.path)))
    return RunFolder.open(folder.path)


def assert_same(rounds: list[Round], folder: RunFolder) -> None:
    """Everything that the folder says of its rounds, but real time, is what these rounds say."""
    assert [one.model_sha256 for one in rounds] == [one["model_sha256"] for one in folder.rounds()]
    # The clients' time was virtual, which that of deployed clients is not.
    records = timeless((one.record() for one in rounds), "virtual")
    assert records == timeless(folder.rounds(), "virtual", "chain")
    for one in rounds:
        assert timeless(one.client_records()) == timeless(folder.clients(one.round))
    found = journals_of(folder.journal(), "journal.jsonl")
    for one in rounds:
        recorded_one = found[one.round].record(None)
        assert json.loads(json.dumps(one.journal.record(None))) == json.loads(
            json.dumps(recorded_one)
        )


def server_following(given: Experiment, folder: RunFolder, foreign: bool = True) -> Server:
    found = journals_of(folder.journal(), "journal.jsonl")
    return following(Assembly(given), found, len(found), foreign=foreign, strict=True)


@pytest.mark.parametrize("name", RUNS)
def test_each_round_is_the_recorded_one(name: str, tmp_path: Path) -> None:
    given = experiment(tmp_path, **RUNS[name])
    folder = run_of(given, tmp_path)
    with server_following(given, folder) as server:
        rounds = list(server)
    assert len(rounds) == 3
    assert_same(rounds, folder)


@pytest.mark.parametrize("name", ["scaffold", "over-selection and a deadline", "labels"])
def test_a_simulated_run_is_followed_as_a_deployed_one(name: str, tmp_path: Path) -> None:
    given = experiment(tmp_path, **RUNS[name])
    folder = RunFolder.create(tmp_path, "run", given.to_yaml(), {})
    list(recorded(simulate(given), folder))
    with server_following(given, folder, foreign=False) as server:
        rounds = list(server)
    assert len(rounds) == 3
    assert_same(rounds, folder)


@pytest.mark.parametrize("name", steps.COURSES)
def test_a_run_that_stepped_back_ends_in_the_same_bits(name: str, tmp_path: Path) -> None:
    hooks, every, expected = steps.COURSES[name]
    folder = RunFolder.create(tmp_path, "run", "rounds: 6\n", {})
    list(recorded(deployed(steps.simulation(*hooks)), folder, every=every))
    found = journals_of(folder.journal(), "journal.jsonl")
    server = steps.simulation(*hooks)
    engine = MXNetEngine(steps.deep, (4,), 3)
    server.network = JournalClients(
        SerialExecutor(server.logic, engine, samples_of),
        found,
        foreign=True,
        virtual=False,
        population=lambda one: one.population,
        strict=True,
    )
    rounds = list(follow(server, found, steps.ROUNDS))
    assert [(step.to, step.excluded) for step in server.steps_back.steps] == expected
    assert_same(rounds, folder)


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, RunFolder]:
    folder = tmp_path_factory.mktemp("scaffold")
    given = experiment(folder, **KINDS["scaffold"])
    return given, run_of(given, folder)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("compute.train.learning_rate=0.06", "its update"),
        ("compute.partition=iid", "its update"),
        ("seed=8", "(tasks|its update)"),
    ],
)
def test_a_difference_is_named_with_round_and_client(
    override: str, why: str, scaffold: tuple[Experiment, RunFolder]
) -> None:
    given, folder = scaffold
    server = server_following(given.with_overrides([override]), folder)
    with server, pytest.raises(JournalError, match=rf"^round 1, client \d: .*{why}") as caught:
        list(server)
    assert caught.value.round == 1
    assert caught.value.client in range(6)


def test_a_changed_hash_is_found_in_its_round(
    scaffold: tuple[Experiment, RunFolder], tmp_path: Path
) -> None:
    given, folder = scaffold
    records = folder.journal()
    (event, *_) = [one[1] for one in records[1]["entries"] if one[1]["event"] == "update"]
    event["blake3"] = "0" * 64
    found = journals_of(records, "journal.jsonl")
    server = following(Assembly(given), found, 3, foreign=True, strict=True)
    rounds = iter(server)
    next(rounds)
    with pytest.raises(JournalError, match=f"^round 2, client {event['client']}: its update"):
        next(rounds)


@pytest.mark.parametrize("place", [0, 1])
def test_a_task_that_differs_is_named_with_its_client_and_the_recorded_one(
    scaffold: tuple[Experiment, RunFolder], place: int
) -> None:
    given, folder = scaffold
    records = folder.journal()
    commands = [one for entry in records[1]["entries"] for one in entry[2:]]
    (tasks,) = [tasks for name, *tasks in commands if name == "tasks"]
    client, accepted = tasks[place]
    tasks[place][1] = 7  # the round of the client's last accepted update
    found = journals_of(records, "journal.jsonl")
    with following(Assembly(given), found, 3, foreign=True, strict=True) as server:
        rounds = iter(server)
        next(rounds)
        with pytest.raises(JournalError, match=rf"^round 2, client {client}: tasks: ") as caught:
            next(rounds)
    assert (caught.value.round, caught.value.client) == (2, client)
    here, recorded_one = (str([client, number]) for number in (accepted, 7))
    assert re.search(rf"{re.escape(here)}.*{re.escape(recorded_one)}", str(caught.value))
