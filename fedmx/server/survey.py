"""Federated statistics: what clients tell of their samples before a run, as sums."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import yaml

from fedmx.assembly.assembly import Assembly
from fedmx.errors import ExperimentError, FedmxError
from fedmx.log import Log
from fedmx.server.server import Server
from layers.logic import Answer, Question
from layers.logic.core.statistics import BINS, Statistics, features_of, quantiles_of
from layers.logic.round.exchange import Answered, Ask, ClientLost, SetTimer, TimerFired

log = Log("fedmx.server")

LEAST = 10
"""The fewest samples of a client whose statistics are asked for."""

LIMIT_S = 600.0
"""How long the survey waits for answers."""

FAR = 4.0
"""A client is far from the others if its mean differs by more of their deviations."""


@dataclass(frozen=True, eq=False)
class Survey:
    """The result of a survey.

    Attributes:
        all: the statistics of all clients together.
        clients: those of each client that answered.
        silent: the clients that said nothing: they have too few samples, or their policy or a
            failure keeps them from it.
    """

    all: Statistics
    clients: Mapping[int, Statistics]
    silent: tuple[int, ...]

    def far(self) -> list[tuple[int, int]]:
        """Return each client and feature whose mean is far from that of the other clients."""
        found = []
        for client in self.clients:
            others = [one for number, one in self.clients.items() if number != client]
            if len(others) < 2:
                continue
            middle = np.median([one.mean for one in others], axis=0)
            spread = np.median([one.deviation for one in others], axis=0)
            away = np.abs(self.clients[client].mean - middle)
            found += [
                (client, int(feature)) for feature in np.flatnonzero(away > FAR * spread + 1e-12)
            ]
        return found

    def normalise(self) -> dict[str, Any]:
        """Return the section `compute.normalise` that these statistics give."""
        deviation = np.where(self.all.deviation > 0, self.all.deviation, 1.0)
        return {"mean": self.all.mean.tolist(), "std": deviation.tolist()}


def unnormalised(assembly: Assembly) -> Assembly:
    """Return the assembly whose samples are those that are stored, for a survey.

    Raises:
        ExperimentError: the experiment is private, and its epsilon does not count statistics.
    """
    if assembly.experiment.privacy is not None:
        raise ExperimentError(
            "privacy: statistics of clients have no noise, and epsilon does not count them; leave "
            "privacy out for fedmx survey, and give mean and std in compute.normalise"
        )
    experiment = assembly.experiment.with_overrides(["compute.normalise={scale: 1}"])
    return replace(assembly, experiment=experiment, survey=True)


def normalised(assembly: Assembly, serve: Callable[[Assembly], Server]) -> Assembly:
    """Return the assembly with the numbers of `compute.normalise: federated`.

    Args:
        assembly: the parts of the experiment; without that setting it is returned as it is.
        serve: returns the server that asks the clients.
    """
    given = assembly.experiment.compute.normalise
    if given is None or not given.federated:
        return assembly
    stored = unnormalised(assembly)
    log.info(
        "statistics_first",
        "clients first tell the statistics of their samples (compute.normalise: federated); the "
        "run begins after that",
    )
    with serve(stored) as server:
        found, address = survey(server, stored).normalise(), server.network.address
    text = yaml.safe_dump(found, default_flow_style=True, width=math.inf)
    overrides = [f"compute.normalise={text}"]
    if address:  # the clients come back to it, also if the system chose the port
        overrides.append(f"network.address={json.dumps(address)}")
    return replace(assembly, experiment=assembly.experiment.with_overrides(overrides))


def survey(server: Server, assembly: Assembly, least: int = LEAST) -> Survey:
    """Ask all clients that can be asked; `server` is entered, and has run no round.

    Args:
        server: has the clients.
        assembly: the parts of its experiment, with the stored samples; see `unnormalised`.
        least: the fewest samples of a client that answers.

    Raises:
        FedmxError: no client answered.
    """
    features, classes = features_of(assembly.data.shape), assembly.data.targets.classes
    _, population = server.network.open_round(server.state)
    question = Question(
        "statistics", classes=classes, samples=least, values=max(features * BINS, classes), round=1
    )
    first = _asked(server, question, sorted(population), features, classes)
    if not first:
        raise FedmxError(
            f"no client told statistics: each needs {least} samples at least, and a policy that "
            "allows it"
        )
    whole = Statistics.of([*first.values()])
    ranges = whole.ranges.astype(np.float32)
    second = _asked(server, replace(question, weights=ranges.reshape(-1)), [*first], features, 0)
    counts = [one["histogram"] for one in second.values() if "histogram" in one]
    known = quantiles_of(counts, ranges.astype(np.float64)) if counts else whole.quantiles
    clients = {client: Statistics.of([one]) for client, one in first.items()}
    silent = tuple(client for client in sorted(population) if client not in first)
    return Survey(replace(whole, quantiles=known), clients, silent)


def _asked(
    server: Server, question: Question, clients: Sequence[int], features: int, classes: int
) -> dict[int, Mapping[str, np.ndarray]]:
    """Return the answers by client, of those that are of the right sizes."""
    commands: list[Any] = [SetTimer("deadline", LIMIT_S), Ask(question, tuple(clients))]
    waiting, answers = set(clients), {}
    while waiting:
        event, _ = server.network.exchange(commands)
        commands = []
        match event:
            case Answered(answer):
                waiting.discard(answer.client)
                if _is_whole(answer, features, classes):
                    answers[answer.client] = answer.values
            case ClientLost(client=client):
                waiting.discard(client)
            case TimerFired():
                break
    return {client: answers[client] for client in sorted(answers)}  # type: ignore[misc]


def _is_whole(answer: Answer, features: int, classes: int) -> bool:
    sizes = {name: one.size for name, one in answer.values.items() if isinstance(one, np.ndarray)}
    moments = {**dict.fromkeys(("number", "mean", "squares", "missing"), features)}
    return sizes in ({**moments, "labels": classes}, {"histogram": features * BINS}) and all(
        np.isfinite(one).all() for one in answer.values.values() if isinstance(one, np.ndarray)
    )
