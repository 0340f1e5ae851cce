"""Asynchronous rounds (FedBuff, FedAsync): equal to numbers that were computed independently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment, ExperimentError, simulate
from fedmx.run.checkpoint import read_checkpoint, write_checkpoint
from fedmx.simulation.executors.executor import SerialExecutor, TrainResult, Work
from fedmx.simulation.simulated_clients import SimulatedClients
from layers.logic import (
    ClientLedger,
    Logic,
    ServerState,
    Task,
    TimerFired,
    Update,
    answer,
    run_round,
)
from layers.logic.algorithms.asynchronous import (
    Concurrent,
    FedAsync,
    FedBuff,
    fedbuff,
    staleness_weight,
)
from layers.logic.catalogue.presets import fedavg
from layers.logic.clock import Devices, VirtualClock
from layers.logic.clock.devices import Fleet
from layers.logic.core.messages import Training
from layers.logic.core.round import OpenRound
from layers.logic.core.state import NO_ROUND
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.round.exchange import Command, Costs, Event, ReportCosts, SendTask, SetTimer
from tests.logic.memory_carrier import a_logic, a_state, same_bits
from tests.logic.quadratic import Quadratic, QuadraticEngine, bowls
from tests.logic.vector_files import CLOSE, vectors

WHICH = range(6)


# --- a carrier that follows a trace of events -------------------------------------------------


class Traced(Concurrent):
    """Asks the clients that the trace sends next."""

    def draw(self, round: OpenRound) -> list[int]:
        return TRACE.sends()


class Trace:
    """The events of a file: sends, which the selector takes, and updates, which arrive."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.events = list(events)
        self.tasks: dict[int, Task] = {}
        self.accounted = False
        self.due = False

    def sends(self) -> list[int]:
        clients = []
        while self.events and self.events[0]["op"] == "send":
            clients.append(self.events.pop(0)["client"])
        return clients

    untrusted = False

    def open_round(self, state: ServerState) -> tuple[ServerState, Mapping[int, int]]:
        return state, dict.fromkeys(range(12), 10)

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        for command in commands:
            if isinstance(command, SendTask):
                self.tasks[command.task.client] = command.task
            elif isinstance(command, SetTimer) and command.name == "refill":
                self.due = command.at_s is not None
            elif isinstance(command, ReportCosts):
                return Costs(0.0), 0.0
        if self.due:
            self.due = False
            return TimerFired("refill"), 0.0
        event = self.events.pop(0)
        task = self.tasks.pop(event["client"])
        if "version" in event:
            assert task.model_version == event["version"]
        delta = np.array(event["delta"], np.float32)
        update = Update(task.round, task.client, 10, 1, delta, np.zeros(1, np.float32))
        return replace(update, metrics={"loss": 1.0}), 0.0


TRACE = Trace(())


def follow(logic: Logic, case: Mapping[str, Any], versions: int) -> Iterator[Any]:
    """Yield each version of the model, and the report of its round."""
    global TRACE
    TRACE = Trace(case["events"])
    state = a_state(logic, case["model_0"])
    for _ in range(versions):
        state, report = run_round(state, TRACE, logic)
        yield state, report


def kind_of(case: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(case["staleness"])
    return {"staleness": given.pop("kind"), **given}


@pytest.mark.parametrize("which", range(5))
def test_staleness_weights_are_those_of_the_paper(which: int) -> None:
    case = vectors("fedbuff")["staleness"][which]
    a, b = case.get("a", 0.0), case.get("b", 0.0)
    weights = [staleness_weight(case["kind"], tau, a, b) for tau in case["tau"]]
    np.testing.assert_allclose(weights, case["s"], rtol=1e-12)


@pytest.mark.parametrize("which", WHICH)
def test_a_trace_of_fedbuff_gives_its_models(which: int) -> None:
    case = vectors("fedbuff")["fedbuff"][which]
    expected = case["expected"]["recommended"]
    rule = FedBuff(**kind_of(case), staleness_limit=case["staleness_limit"])
    server = FedAvgM(case["server_rate"], case["server_momentum"])
    logic = a_logic(Traced(12, case["buffer"]), 5, aggregator=rule, hooks=(server,))
    refused: list[int] = []
    for (state, report), one in zip(follow(logic, case, len(expected)), expected, strict=True):
        accepted = [row for row in report.clients if row.status == "accepted"]
        assert [row.client for row in accepted] == one["clients"]
        assert [row.staleness for row in accepted] == one["staleness"]
        np.testing.assert_allclose(state.weights, one["model"], **CLOSE)
        refused += report.of("rejected")
    given = case["expected"].get("refused", [])
    assert refused == given[: len(refused)]
    assert bool(refused) == bool(given)


@pytest.mark.parametrize("which", range(4))
def test_a_trace_of_fedasync_gives_its_models(which: int) -> None:
    case = vectors("fedbuff")["fedasync"][which]
    expected = case["expected"]["recommended"]
    rule = FedAsync(alpha=case["alpha"], **kind_of(case))
    logic = a_logic(Traced(12, 1), 4, aggregator=rule)
    for (state, report), one in zip(follow(logic, case, len(expected)), expected, strict=True):
        (row,) = [row for row in report.clients if row.status == "accepted"]
        assert (row.client, row.staleness) == (one["client"], one["staleness"])
        np.testing.assert_allclose(state.weights, one["model"], **CLOSE)


# --- the simulated clients, on a virtual clock ------------------------------------------------


@dataclass(frozen=True)
class Listed(Devices, Fleet):
    """The k-th task of a client takes the k-th time of its list."""

    times: Mapping[int, Sequence[float]]
    asked: Counter[int] = field(default_factory=Counter)

    def draw(self, clients: int, seed: int) -> Fleet:
        return self

    def train_s(self, client: int, samples: int, training: Training) -> float:
        place = self.asked[client]
        self.asked[client] += 1
        return self.times[client][place % len(self.times[client])]

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        return 0.0


@dataclass
class Quadratics:
    """An executor of clients whose loss is a parabola."""

    logic: Logic
    clients: Mapping[int, Quadratic]

    def __enter__(self) -> Quadratics:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        def train() -> TrainResult:
            engine = QuadraticEngine(task.weights.size)
            settled = ledger.settle(task.last_accepted_round)
            data = self.clients[task.client]
            update, after = answer(task, settled.start, engine, data, self.logic)
            return TrainResult(update, 10, settled.trained(after, NO_ROUND))

        return Work(100, train, lambda: None)

    def ask(self, question: Any, clients: Sequence[int]) -> Any:
        raise NotImplementedError


class Drawn(Concurrent):
    """Takes the clients in the order of a list of draws; those in flight are passed over."""

    def draw(self, round: OpenRound) -> list[int]:
        places = self.concurrency - len(round.in_flight)
        if places < (self.refill_at if round.in_flight else 1):
            return []
        chosen: list[int] = []
        while len(chosen) < places:
            client = DRAWS.pop(0)
            if client not in round.in_flight and client not in chosen:
                chosen.append(client)
        return chosen


DRAWS: list[int] = []


@pytest.mark.parametrize("which", WHICH)
def test_a_run_on_a_virtual_clock_gives_its_versions(which: int) -> None:
    global DRAWS
    case = vectors("fedbuff")["virtual_clock"][which]
    expected = case["expected"]["versions"]
    DRAWS = list(case["draws"])
    clients = {
        client: Quadratic(np.array(A), np.array(b), n=10, steps_per_epoch=case["local_steps"])
        for client, (A, b) in enumerate(zip(case["A"], case["b"], strict=True))
    }
    rule = FedBuff(**kind_of(case))
    selector = Drawn(case["concurrency"], case["buffer"], case["refill"])
    server = FedAvgM(case["server_rate"], case["server_momentum"])
    training = Training(learning_rate=case["local_rate"])
    logic = a_logic(selector, 4, aggregator=rule, hooks=(server,), training=training)
    times = {int(client): given for client, given in case["durations_s"].items()}
    carrier = SimulatedClients(
        Quadratics(logic, clients),  # type: ignore[arg-type]
        dict.fromkeys(clients, 10),
        VirtualClock(len(clients), Listed(times)),
    )
    state = a_state(logic, case["model_0"])
    sent = [one for one in case["expected"]["events"] if one["op"] == "send"]
    tasks, at_s = 0, 0.0
    for one in expected:
        state, report = run_round(state, carrier, logic)
        at_s += report.took_s
        tasks += report.tasks
        rows = [row for row in report.clients if row.status == "accepted"]
        assert [row.client for row in rows] == one["clients"]
        assert [row.staleness for row in rows] == one["staleness"]
        assert at_s == pytest.approx(one["at"], abs=1e-9)
        np.testing.assert_allclose(state.weights, one["model"], **CLOSE)
        assert report.in_flight == len(state.in_flight)
    last = expected[-1]["version"]
    assert tasks == sum(one["version"] < last for one in sent)


# --- equal to FedAvg where nothing is asynchronous --------------------------------------------


def run_on_equal_devices(logic: Logic, clients: Mapping[int, Quadratic]) -> list[ServerState]:
    carrier = SimulatedClients(
        Quadratics(logic, clients),  # type: ignore[arg-type]
        dict.fromkeys(clients, 20),
        VirtualClock(len(clients), Listed({client: [1.5] for client in clients})),
    )
    state, states = a_state(logic), []
    for _ in range(6):
        state, _ = run_round(state, carrier, logic)
        states.append(state)
    return states


def asynchronous(refill_at: int, clients: Mapping[int, Quadratic]) -> list[ServerState]:
    preset = fedbuff(concurrency=4, buffer=4, refill_at=refill_at)
    how = {"aggregator": preset.aggregator, "hooks": preset.hooks, "clients": len(clients)}
    return run_on_equal_devices(a_logic(preset.selector, **how), clients)


def test_a_buffer_that_is_filled_at_once_is_fedavg_bit_for_bit() -> None:
    clients = {k: replace(one, n=20) for k, one in bowls(9, noise=0.3).items()}
    preset = fedavg(count=4, weights="uniform")
    waiting = run_on_equal_devices(
        a_logic(preset.selector, aggregator=preset.aggregator, clients=len(clients)), clients
    )
    for one, other in zip(asynchronous(4, clients), waiting, strict=True):
        assert same_bits(one.weights, other.weights)


# --- whole experiments ------------------------------------------------------------------------

TIERS = {
    "name": "tiers",
    "tiers": [
        {"share": 1, "samples_per_s": 2, "up_bytes_per_s": 1e4, "down_bytes_per_s": 1e5},
        {"share": 3, "samples_per_s": 10, "up_bytes_per_s": 5e4, "down_bytes_per_s": 5e5},
    ],
}
CLOCKS: dict[str, dict[str, Any]] = {
    "devices": {"devices": TIERS},
    "serial uploads": {"devices": TIERS, "uploads": "serial"},
    "shared uploads": {"devices": TIERS, "uploads": {"name": "parallel", "bytes_per_s": 2e4}},
    "dropouts": {"devices": TIERS, "dropout": 0.2},
    "no clock": {},
}
LEAVING = "client,time,state\n" + "".join(
    f"{client},{time},{state}\n"
    for client in range(12)
    for time, state in ((0, "on"), (9 + 2 * client, "off"), (30 + client, "on"))
)
LOGICS: dict[str, dict[str, Any]] = {
    "fedbuff": {"preset": {"name": "fedbuff", "concurrency": 5, "buffer": 3, "momentum": 0.3}},
    "fedasync": {"preset": {"name": "fedasync", "concurrency": 4, "staleness_limit": 6}},
    "both ways": {"preset": {"name": "fedbuff", "concurrency": 5, "buffer": 2}, "hooks": ["stc"]},
}


COMPUTE = {
    **{"model": "logistic", "data": "digits", "normalise": {"scale": 16}},
    "train": {"epochs": 1, "batch_size": 20, "learning_rate": 0.1},
}


def an_experiment(clock: str | dict[str, Any], logic: str) -> Experiment:
    given = {"compute": COMPUTE, "logic": LOGICS[logic]}
    given["clock"] = CLOCKS[clock] if isinstance(clock, str) else clock
    return Experiment(seed=4, rounds=10, clients=12, **given)


@pytest.mark.parametrize(
    ("clock", "logic"),
    [*((clock, "fedbuff") for clock in CLOCKS), ("devices", "fedasync"), ("devices", "both ways")],
)
def test_a_run_that_is_resumed_from_any_checkpoint_ends_in_the_same_bits(
    clock: str, logic: str, tmp_path: Path
) -> None:
    whole = simulate(an_experiment(clock, logic))
    checkpoints, digests, times = [], [], []
    for one in whole:
        file = tmp_path / f"{one.round}.safetensors"
        write_checkpoint(file, one.round, whole.checkpoint())
        checkpoints.append(file)
        digests.append(one.model_sha256)
        times.append(one.clock_elapsed_s if one.virtual else 0.0)
    assert whole.state.in_flight or not CLOCKS[clock]
    for place in (0, 3, 6):
        resumed = simulate(an_experiment(clock, logic))
        resumed.restore(read_checkpoint(checkpoints[place]).state)
        rest = list(resumed)
        assert [one.model_sha256 for one in rest] == digests[place + 1 :]
        assert [one.clock_elapsed_s if one.virtual else 0.0 for one in rest] == times[place + 1 :]


def test_a_task_in_flight_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, int]] = []
    submit = SerialExecutor.submit

    def counted(self: SerialExecutor, task: Task, ledger: ClientLedger) -> Work:
        trained.append((task.client, task.round))
        return submit(self, task, ledger)

    monkeypatch.setattr(SerialExecutor, "submit", counted)
    rounds = list(simulate(an_experiment("devices", "fedbuff")))
    assert any(one.report.in_flight for one in rounds)
    assert len(trained) == len(set(trained)) == sum(one.tasks for one in rounds)


@pytest.mark.parametrize("clock", CLOCKS)
def test_tasks_and_bytes_of_clients_add_up_to_those_of_the_rounds(clock: str) -> None:
    rounds = list(simulate(an_experiment(clock, "fedbuff")))
    for name in ("tasks", "up_bytes", "down_bytes"):
        rows = [row for one in rounds for row in one.client_records()]
        assert sum(row[name] for row in rows) == sum(one.record()[name] for one in rounds), name


@pytest.mark.parametrize(
    ("logic", "clock", "named"),
    [
        ({"hooks": ["scaffold"]}, {}, "Scaffold"),
        ({"aggregator": "fedfv"}, {}, "FedFV"),
        ({"hooks": ["stragglers"]}, {}, "Stragglers"),
        ({"over_select": 1.5}, {}, "over_select"),
        ({}, {"deadline_s": 3}, "deadline_s"),
    ],
)
def test_parts_that_need_rounds_that_wait_are_refused(
    logic: dict[str, Any], clock: dict[str, Any], named: str
) -> None:
    parts = {"selector": "concurrent", "aggregator": "fedbuff", **logic}
    with pytest.raises(ExperimentError, match=named):
        simulate(Experiment(rounds=1, clients=12, compute=COMPUTE, logic=parts, clock=clock))


def test_clients_that_left_are_lost_at_once_and_others_take_their_places(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text(LEAVING)
    there = {"name": "trace", "path": str(trace), "repeat": True}
    clock = {"devices": TIERS, "availability": there}
    rounds = list(simulate(an_experiment(clock, "fedbuff")))
    assert len(rounds) == 10
    assert [row for one in rounds for row in one.report.clients if row.status == "lost"]
    for one in rounds:
        rows = [row.client for row in one.report.clients if row.status == "lost"]
        assert len(set(rows)) == len(rows)  # none is asked again in its round
        assert 1 <= len(one.participants) <= 3


@pytest.mark.parametrize("logic", ["fedbuff", "fedasync"])
def test_the_clock_counts_the_time_before_anybody_was_there(logic: str, tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    lines = (f"{client},0,off\n{client},{50 + client},on\n" for client in range(12))
    trace.write_text("client,time,state\n" + "".join(lines))
    clock = {"devices": TIERS, "availability": {"name": "trace", "path": str(trace)}}
    rounds = list(simulate(an_experiment(clock, logic)))
    assert [one.report.waited_s for one in rounds] == [50.0] + 9 * [0.0]
    ended_s = 50.0 + np.cumsum([one.report.took_s for one in rounds])
    np.testing.assert_allclose([one.clock_elapsed_s for one in rounds], ended_s)
