"""The journal of a run is enough to run it to the same bits, whatever happened in it.

Here the clients are in this process, and the server is told that they are deployed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, Round, RunFolder, Server, recorded, simulate
from fedmx.history.carrier import ADVICE, JournalClients
from fedmx.history.recorded import follow, following
from fedmx.journal.journal import Journal, JournalError, journals_of
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.logic import TooFewUpdates
from tests.fedmx.deployment.test_deployment_by_hand import samples_of
from tests.fedmx.kinds import KINDS, experiment
from tests.fedmx.server import test_step_back as steps
from tests.fedmx.timeless import timeless

Record = dict[str, Any]
Told = tuple[str, int | None]
"""What differs, and the client in question."""

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
    "quotas of strata": {
        "logic": {"preset": {"name": "fedsso", "beta": 0.5, "ask": "all"}, "min_updates": 0},
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
    server.network.untrusted = True  # type: ignore[misc]
    return server


def run_of(given: Experiment, parent: Path) -> RunFolder:
    """The folder of a run that was resumed once, from the start."""
    folder = RunFolder.create(parent, "run", given.to_yaml(), {})
    begun = recorded(deployed(simulate(given)), folder, every=2)
    assert next(begun).round == 1  # of which there is no checkpoint
    begun.close()
    list(recorded(deployed(simulate(given)), RunFolder.open(folder.path)))
    return RunFolder.open(folder.path)


def assert_same_models(rounds: list[Round], folder: RunFolder) -> None:
    """The rounds ended in the recorded models."""
    assert [one.model_sha256 for one in rounds] == [one["model_sha256"] for one in folder.rounds()]


def assert_same(rounds: list[Round], folder: RunFolder) -> None:
    """Everything that the folder says of its rounds, but real time, is what these rounds say."""
    assert_same_models(rounds, folder)
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


def server_following(
    given: Experiment,
    folder: RunFolder,
    records: list[Record] | None = None,
    untrusted: bool = True,
    strict: bool = True,
) -> Server:
    """A server that follows the journal of a run, or records that a test changed."""
    found = journals_of(records or folder.journal(), "journal.jsonl")
    return following(Assembly(given), found, len(found), untrusted=untrusted, strict=strict)


def stepping(found: dict[int, Journal], *hooks: Any, strict: bool = True) -> Server:
    """A server of the runs that step back, whose clients are those of the journal."""
    server = steps.simulation(*hooks)
    server.network = JournalClients(
        SerialExecutor(server.logic, MXNetEngine(steps.deep, (4,), 3), samples_of),
        found,
        untrusted=True,
        virtual=False,
        population=lambda one: one.population,
        strict=strict,
    )
    return server


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
    with server_following(given, folder, untrusted=False) as server:
        rounds = list(server)
    assert len(rounds) == 3
    assert_same(rounds, folder)


@pytest.mark.parametrize("name", steps.COURSES)
def test_a_run_that_stepped_back_ends_in_the_same_bits(name: str, tmp_path: Path) -> None:
    hooks, every, expected = steps.COURSES[name]
    folder = RunFolder.create(tmp_path, "run", "rounds: 6\n", {})
    list(recorded(deployed(steps.simulation(*hooks)), folder, every=every))
    found = journals_of(folder.journal(), "journal.jsonl")
    server = stepping(found, *hooks)
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


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, RunFolder]:
    folder = tmp_path_factory.mktemp("labels")
    given = experiment(folder, **RUNS["labels"])
    return given, run_of(given, folder)


def ends_early(record: Record) -> Told:
    del record["entries"][2:]
    return "the recorded round ended here", None


def other_clients_asked(record: Record) -> Told:
    command = record["entries"][0][2]
    now = str(command)
    del command[2][-1]
    return f"{now} here, {command} in the journal", None


def one_task_more(record: Record) -> Told:
    (tasks,) = [one for one in record["entries"][6][2:] if one[0] == "tasks"]
    tasks.append([17, 0])
    return "tasks: nothing here, [17, 0] in the journal", 17


def one_task_less(record: Record) -> Told:
    (tasks,) = [one for one in record["entries"][6][2:] if one[0] == "tasks"]
    client, accepted = tasks.pop()
    return f"tasks: {[client, accepted]} here, nothing in the journal", client


def another_task(record: Record) -> Told:
    (tasks,) = [one for one in record["entries"][6][2:] if one[0] == "tasks"]
    client, accepted = tasks[2]
    tasks[2] = [client, 7]  # the round of the client's last accepted update
    return f"tasks: {[client, accepted]} here, {tasks[2]} in the journal", client


def no_tasks(record: Record) -> Told:
    begun, tasks = record["entries"][6].pop(2), record["entries"][6].pop(2)
    assert (begun[0], tasks[0]) == ("begin", "tasks")
    record["entries"][6].append(begun)
    return f"{tasks} here, ['nothing'] in the journal", None


def one_command_more(record: Record) -> Told:
    record["entries"][-1].append(["timer", "deadline", 2.5])
    return "['nothing'] here, ['timer', 'deadline', 2.5] in the journal", None


def another_answer(record: Record) -> Told:
    event = record["entries"][3][1]
    event["blake3"] = "0" * 64
    return "its answer differs from the recorded one", event["client"]


def another_update(record: Record) -> Told:
    event = record["entries"][7][1]
    here, event["blake3"] = event["blake3"][:12], "0" * 64
    return f"its update differs (BLAKE3 {here}…, recorded 000000000000…)", event["client"]


TASKS = [other_clients_asked, one_task_more, one_task_less, another_task, no_tasks]


@pytest.mark.parametrize(
    "change", [ends_early, *TASKS, one_command_more, another_answer, another_update]
)
def test_the_first_difference_to_the_journal_is_told_whole(
    labels: tuple[Experiment, RunFolder], change: Callable[[Record], Told]
) -> None:
    given, folder = labels
    records = folder.journal()
    what, client = change(records[0])
    with server_following(given, folder, records) as server, pytest.raises(JournalError) as caught:
        next(iter(server))
    who = "round 1" if client is None else f"round 1, client {client}"
    assert str(caught.value) == f"{who}: {what}; {ADVICE}"
    assert (caught.value.round, caught.value.client) == (1, client)


def test_fewer_samples_than_a_client_had_are_told(labels: tuple[Experiment, RunFolder]) -> None:
    given, folder = labels
    records = folder.journal()
    _, client = another_update(records[0])
    had = records[0]["population"]["all"][str(client)]
    records[0]["population"]["all"][str(client)] = had + 1
    with server_following(given, folder, records) as server, pytest.raises(JournalError) as caught:
        next(iter(server))
    assert str(caught.value).startswith(f"round 1, client {client}: its update differs (BLAKE3 ")
    assert str(caught.value).endswith(f"; it had {had + 1} samples, and has {had} here")


def test_other_answers_and_updates_are_taken_unless_the_replay_is_strict(
    labels: tuple[Experiment, RunFolder],
) -> None:
    given, folder = labels
    records = folder.journal()
    another_answer(records[0])
    another_update(records[0])
    with server_following(given, folder, records, strict=False) as server:
        assert_same_models(list(server), folder)


def test_a_replayed_round_with_too_few_updates_is_not_run_again(
    scaffold: tuple[Experiment, RunFolder],
) -> None:
    given, folder = scaffold
    records = folder.journal()
    for entry in records[1]["entries"][:-1]:
        entry[1] = {"event": "lost", "client": entry[1]["client"], "reason": "gone"}
    with server_following(given, folder, records) as server:
        rounds = iter(server)
        next(rounds)
        with pytest.raises(TooFewUpdates, match="round 2"):
            next(rounds)


def test_a_step_back_that_the_run_did_not_take_is_a_difference(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run", "rounds: 6\n", {})
    list(recorded(deployed(steps.simulation()), folder, every=1))
    found = journals_of(folder.journal(), "journal.jsonl")
    server = stepping(found, steps.ONE, strict=False)  # the clients here have an attacker
    rounds = iter(follow(server, found, steps.ROUNDS))
    assert [next(rounds).round for _ in range(3)] == [1, 2, 3]
    with pytest.raises(JournalError) as caught:
        next(rounds)
    assert str(caught.value) == f"round 4: the run steps back to round 0; {ADVICE}"
    assert (caught.value.round, caught.value.client) == (4, None)
