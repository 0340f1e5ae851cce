"""Invariants that hold after every run."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedmx import RunFolder, Server, SimulatedClients
from fedmx.history.carrier import JournalClients
from fedmx.history.recorded import follow
from fedmx.journal.chain import CHAIN, START, chained
from fedmx.journal.journal import Journal, JournalError, journals_of
from fedmx.simulation.executors.executor import SerialExecutor
from tests.network_simulation.experiment import Engine, Experiment, compute, samples_of

if TYPE_CHECKING:
    from tests.network_simulation.world import World


# Log lines and rejections that faults alone may cause.
EXPECTED = re.compile(
    r"disconnected: .*"
    r"|.*no complete handshake within"
    r"|.*no step of the handshake within"
    r"|.*the handshake was silent, and evicted"
    r"|client \d+ is not back"
    r"|client \d+, round \d+: .*(No space left|free disk space|whose update is lost)"
    r"|client \d+: its (update|offer) of round \d+ came too late, or again"
    r"|round \d+ failed"
    r"|.*the checkpoint is damaged"
    r"|.*the connection (broke|was closed).*"
)
# And those that troubles may cause.
TROUBLED = re.compile(
    r"client \d+: connected, but no answer within .*"
    r"|(client-\d+: )?'client-\d+' is connected from .* have replaced it .*"
    r"|client \d+: (suspended|disconnected, and not back within) .*"
    r"|further lines about .* are left out: [\d,]+"
    r"|and \d+ more"
)
REPEATED = re.compile(r"client \d+: sent an (update|offer) that it was not asked for")


def undisturbed(experiment: Experiment) -> np.ndarray:
    """Return the final weights of the plain serial simulation."""
    sizes = {client: len(samples_of(client, experiment.size)) for client in _clients(experiment)}
    clients = SimulatedClients(_executor(experiment), sizes)
    server = Server(clients, experiment.logic(), compute(0, experiment.size), experiment.rounds)
    with server:
        for _ in server:
            pass
    return server.weights


def replayed(experiment: Experiment, folder: RunFolder) -> tuple[np.ndarray, list[str]]:
    """Return the final weights of a run that is replayed, and where it differs from the run."""
    journals = journals_of(folder.journal(), "journal.jsonl")
    clients = JournalClients(
        _executor(experiment),
        journals,
        untrusted=True,
        virtual=False,
        population=lambda one: one.population,
        strict=True,
    )
    server = Server(clients, experiment.logic(), compute(0, experiment.size), experiment.rounds)
    follow(server, journals, experiment.rounds)
    then = {record["round"]: record for record in folder.rounds()}
    wrong: list[str] = []
    link = START
    try:
        for round in server:
            record = then.get(round.round, {})
            updates = [one for sent in round.update_blake3.values() for one in sent]
            link = chained(link, round.record(), updates, round.model_sha256)
            if round.model_sha256 != record.get("model_sha256"):
                wrong.append(f"round {round.round}: the replay ends in another model")
            if link != record.get(CHAIN):
                wrong.append(f"round {round.round}: the replay makes another record")
            if _text(round.journal) != _text(journals[round.round]):
                wrong.append(f"round {round.round}: the replay makes another journal")
    except JournalError as error:
        wrong.append(str(error))
    return server.weights, wrong


def _clients(experiment: Experiment) -> range:
    return range(experiment.clients)


def _executor(experiment: Experiment) -> SerialExecutor:
    size = experiment.size
    samples = {client: samples_of(client, size) for client in _clients(experiment)}
    return SerialExecutor(experiment.logic(), Engine(size), samples.__getitem__)  # type: ignore[arg-type]


def _text(journal: Journal) -> str:
    """Return all of a journal but the values of the updates that the server rejected."""
    record = journal.record(None)
    for _, event, *_ in record["entries"]:
        if event.get("rejected"):
            for key in ("event", "blake3", "reason", "rejected"):
                event.pop(key, None)
    return json.dumps(record)


@cache
def model_of(experiment: Experiment) -> np.ndarray:
    """Return the undisturbed run's final weights."""
    return undisturbed(experiment)


def check(world: World) -> list[str]:
    """Return the violated invariants of a run, one line each."""
    wrong = list(world.scheduler.errors)
    server = world.server
    if "server" not in world.done or server is None:
        return wrong or ["the run has not ended"]
    experiment, folder = world.plan.experiment, RunFolder.open(world.run)
    again, unlike = replayed(experiment, folder)
    wrong += unlike
    if server.weights.tobytes() != again.tobytes():
        wrong.append("the final model is not that of the replayed run")
    if not world.plan.may_lose:
        counted = {(r["round"], client) for r in folder.rounds() for client in r["participants"]}
        if server.weights.tobytes() != model_of(experiment).tobytes():
            wrong.append("the final model is not the undisturbed one")
        wrong += [
            f"round {one['round']}: client {one['client']} {one['status']}: {one['reason']}"
            for one in folder.clients()
            if one["status"] not in ("accepted", "declined", "not-selected")
            and (one["round"], one["client"]) not in counted
        ]
    wrong += _records(world)
    wrong += [f"unexpected: {line}" for line in world.warnings if not _is_expected(line, world)]
    wrong += _left_over(world)
    return wrong


def _records(world: World) -> list[str]:
    """Check that the records of a run agree, and that each update counts once."""
    folder = RunFolder.open(world.run)
    wrong = []
    if folder.status != "done":
        wrong.append(f"the run folder says {folder.status}")
    rounds = folder.rounds()
    numbers = [record["round"] for record in rounds]
    if numbers != list(range(1, world.plan.experiment.rounds + 1)):
        wrong.append(f"the records have the rounds {numbers}")
    accepted: dict[int, list[int]] = {}
    of_clients: Counter[tuple[int, str]] = Counter()
    for record in folder.clients():
        for name in ("up_bytes", "down_bytes"):
            of_clients[record["round"], name] += record[name]
        if record["status"] == "accepted":
            accepted.setdefault(record["round"], []).append(record["client"])
    for record in rounds:
        number = record["round"]
        for name in ("up_bytes", "down_bytes"):
            if record[name] != (sum_of := of_clients[number, name]):
                wrong.append(f"round {number}: {record[name]} {name}, {sum_of} of clients")
        counted = sorted(accepted.get(number, []))
        if counted != sorted(record["participants"]):
            wrong.append(f"round {number}: the records differ: {counted}, {record['participants']}")
        if len(set(counted)) != len(counted):
            wrong.append(f"round {number}: an update counts twice: {counted}")
        for reason in record["rejected_connections"]:
            if not _is_expected(f"server: {reason}", world):
                wrong.append(f"round {number}: unexpected: {reason}")
    return wrong


def _is_expected(line: str, world: World) -> bool:
    said = line.partition(": ")[2]
    if world.plan.may_lose and "; the round is run again in" in said:
        return True
    if world.plan.patience is not None and TROUBLED.match(said):
        return True
    repeated = world.plan.repeats > 0 and REPEATED.match(said)
    return bool(repeated or EXPECTED.match(said))


def _left_over(world: World) -> list[str]:
    """Check that no connection, memory or socket is left; the server object still exists."""
    gc.collect()
    alive = [one for one in [ref() for ref in world.connections] if one is not None]
    wrong = [f"{len(alive)} connections are still in memory"] if alive else []
    if world.server is not None and "server" in world.done:
        listener = world.server.network.listener  # type: ignore[attr-defined]
        if not len(listener._events) and (held := listener._memory.budget.used):
            wrong.append(f"{held} bytes of incoming messages are still reserved")
    if world.network.listening:
        wrong.append("a socket still listens")
    return wrong
