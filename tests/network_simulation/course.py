"""Two simulations of a run: without faults, and as its record says that it went."""

from __future__ import annotations

import json

import numpy as np

from fedmx import RunFolder, Server, SimulatedClients
from fedmx.course.chain import CHAIN, START, chained
from fedmx.course.course import Course
from fedmx.course.course_round import CourseRound
from fedmx.course.errors import CourseError
from fedmx.simulation.course_clients import CourseClients
from fedmx.simulation.executors.executor import SerialExecutor
from fedmx.simulation.simulate_course import follow
from tests.network_simulation.experiment import Engine, Experiment, compute, samples_of


def undisturbed(experiment: Experiment) -> np.ndarray:
    """Return the final weights of the plain serial simulation."""
    sizes = {client: len(samples_of(client, experiment.size)) for client in _clients(experiment)}
    clients = SimulatedClients(_executor(experiment), sizes)
    server = Server(clients, experiment.logic(), compute(0, experiment.size), experiment.rounds)
    with server:
        for _ in server:
            pass
    return server.weights


def simulated_again(experiment: Experiment, folder: RunFolder) -> tuple[np.ndarray, list[str]]:
    """Return the final weights of a replayed run, and its differences from the record."""
    course = Course.of(folder.course(), "course.jsonl")
    clients = CourseClients(_executor(experiment), course)
    server = Server(clients, experiment.logic(), compute(0, experiment.size), experiment.rounds)
    follow(server, course, experiment.rounds)
    then = {record["round"]: record for record in folder.rounds()}
    wrong: list[str] = []
    link = START
    try:
        for round in server:
            record = then.get(round.round, {})
            updates = [one for sent in round.update_sha256.values() for one in sent]
            link = chained(link, round.record(), updates, round.model_sha256)
            if round.model_sha256 != record.get("model_sha256"):
                wrong.append(f"round {round.round}: another model is made again")
            if link != record.get(CHAIN):
                wrong.append(f"round {round.round}: another record is made again")
            if _text(round.course) != _text(course.rounds[round.round]):
                wrong.append(f"round {round.round}: another course is made again")
    except CourseError as error:
        wrong.append(str(error))
    return server.weights, wrong


def _clients(experiment: Experiment) -> range:
    return range(experiment.clients)


def _executor(experiment: Experiment) -> SerialExecutor:
    size = experiment.size
    samples = {client: samples_of(client, size) for client in _clients(experiment)}
    return SerialExecutor(experiment.logic(), Engine(size), samples.__getitem__)  # type: ignore[arg-type]


def _text(round: CourseRound | None) -> str:
    """Return the record of a round, without the content of rejected updates."""
    record = {} if round is None else round.record(None)
    for event in record.get("events", ()):
        if event.get("rejected"):
            for key in ("event", "sha256", "reason", "rejected"):
                event.pop(key, None)
    return json.dumps(record)
