"""The server: it runs rounds over whatever carries its tasks, sockets or a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedmx.server.clients import Clients
from fedmx.server.evaluation import Evaluation, Rows, evaluate
from fedmx.server.round import Round
from layers.compute.blas import one_blas_thread
from layers.compute.engines.compute import Compute
from layers.compute.scores import Scores
from layers.logic import Logic, ServerState, run_round

Scorer: TypeAlias = "Callable[[np.ndarray, np.ndarray, int], Scores | None]"
"""Evaluates a model on the server's samples: weights, buffers, batch size; None: it does not."""


class Keeper(Protocol):
    """Who is told of every round, before the next one begins."""

    def keep(self, round: Round, checkpoint: Mapping[str, Any]) -> None:
        """Record a round and the state after it; what it raises ends the run."""


@dataclass(frozen=True)
class Stop:
    """When a run ends before its last round.

    Attributes:
        accuracy: of the global model, from 0 to 1, at least.
        loss: of the global model, at most.
        seconds: that have passed.
        clock_s: that have passed by the clients' clock, which may be virtual.
        client_accuracy: of the global model on the clients' own test samples, their mean, at least.
    """

    accuracy: float | None = None
    loss: float | None = None
    seconds: float | None = None
    client_accuracy: float | None = None
    clock_s: float | None = None

    def reason(self, round: Round) -> str | None:
        """Return why the run ends after `round`, or None."""
        if self.accuracy is not None and (round.accuracy or 0.0) >= self.accuracy:
            return f"accuracy {round.accuracy:.4f} reached {self.accuracy}"
        mean = round.client_accuracy_mean
        if self.client_accuracy is not None and (mean or 0.0) >= self.client_accuracy:
            return f"mean accuracy over clients {mean:.4f} reached {self.client_accuracy}"
        if self.loss is not None and round.loss is not None and round.loss <= self.loss:
            return f"loss {round.loss:.4f} reached {self.loss}"
        if self.seconds is not None and round.elapsed_s >= self.seconds:
            return f"{round.elapsed_s:.0f} s passed the limit of {self.seconds:g} s"
        if self.clock_s is not None and round.clock_elapsed_s >= self.clock_s:
            return f"{round.clock_elapsed_s:.0f} s passed the clock's limit of {self.clock_s:g} s"
        return None


@dataclass
class Server:
    """One run from its first round, or from a checkpoint, to its last.

    Attributes:
        network: the clients, simulated or remote.
        logic: who takes part and how updates become a model; the same value as the clients'.
        compute: the engine, and the samples on which the global model is evaluated.
        last: the number of the last round.
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        client_rows: each client's rows of the samples, to evaluate on each by itself, too.
        scores: evaluates a model on the same samples elsewhere, where that is faster.
        stop: what ends the run sooner.
        keeper: records rounds.
        begin: the state to begin with; None draws the initial model from the logic's seed.
        state: the state after the last round.
        elapsed_s: that the rounds so far took.
        clock_s: that they took by the clients' clock, which may be virtual, with the time between
            them when nobody was there.
        reason: why the run ended, once it has.
    """

    network: Clients
    logic: Logic
    compute: Compute
    last: int = 1
    evaluate_every: int = 1
    evaluate_batch: int = 500
    client_rows: Sequence[Rows] | None = None
    scores: Scorer | None = None
    stop: Stop = field(default_factory=Stop)
    keeper: Keeper | None = None
    begin: InitVar[ServerState | None] = None
    state: ServerState = field(init=False)
    elapsed_s: float = 0.0
    clock_s: float = 0.0
    reason: str = ""

    def __post_init__(self, begin: ServerState | None) -> None:
        self.state = begin or ServerState(0, *self.compute.engine.initial(self.logic.seed))

    def __enter__(self) -> Server:
        self.network.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.network.__exit__(*exc_info)

    def __iter__(self) -> Iterator[Round]:
        return self.rounds()

    @property
    def address(self) -> str:
        """Where clients connect, with the real port once it listens; empty in a simulation."""
        return self.network.address

    @property
    def weights(self) -> np.ndarray:
        """The global model, float32 (d,)."""
        return self.state.weights

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from what `Keeper.keep` was given."""
        self.state = ServerState.of_tree(checkpoint["server"])
        self.elapsed_s = checkpoint["elapsed_s"]
        self.clock_s = checkpoint["clock_s"]
        self.reason = checkpoint["reason"]
        self.network.restore(checkpoint["clients"])

    def rounds(self) -> Iterator[Round]:
        """Run and yield rounds until the last one, or until `stop` says so.

        The state is that after the round that was yielded; leaving the loop leaves it so, and
        the clients wait for the server to go on, unless `finish` tells them that it will not.

        Raises:
            TooFewUpdates: a round brought too little; the state is that before it.
        """
        if not self.reason and self.state.round >= self.last:
            self.reason = f"all {self.last} rounds were run"
        if self.reason:  # resumed when only the end had not been told
            self.finish(self.reason)
        while not self.reason:
            self.network.population()  # waiting for clients to come is not the round's time
            began = time.monotonic()
            with one_blas_thread():
                self.state, report = run_round(self.state, self.network, self.logic)
            found: Evaluation | None = None
            if report.round % self.evaluate_every == 0 or report.round == self.last:
                found = self.evaluation()
            seconds = time.monotonic() - began
            self.elapsed_s += seconds
            self.clock_s += self.network.clock.waited_s + report.took_s
            round = Round(
                report=report,
                accuracy=found.accuracy if found else None,
                loss=found.loss if found else None,
                seconds=seconds,
                elapsed_s=self.elapsed_s,
                clock_elapsed_s=self.clock_s,
                virtual=self.network.clock.virtual,
                overhead=self.network.overhead(),
                client_accuracy_mean=found.client_accuracy_mean if found else None,
                client_accuracy_variance=found.client_accuracy_variance if found else None,
            )
            self.reason = self.stop.reason(round) or ""
            if not self.reason and self.state.round >= self.last:
                self.reason = f"all {self.last} rounds were run"
            if self.keeper is not None:
                self.keeper.keep(round, self.checkpoint())
            if self.reason:
                self.finish(self.reason)
            yield round

    def finish(self, reason: str) -> None:
        """Tell the clients that the run is over, so that they end instead of waiting."""
        self.reason = reason
        self.network.finish(reason)

    def evaluate(self) -> tuple[float, float]:
        """Return accuracy and mean loss of the global model on the server's samples."""
        found = self.evaluation()
        return found.accuracy, found.loss

    def evaluation(self) -> Evaluation:
        """Evaluate the global model on the server's samples, and by client if there are rows."""
        return evaluate(self._scores(), self.client_rows)

    def _scores(self) -> Scores:
        weights, buffers, batch = self.state.weights, self.state.buffers, self.evaluate_batch
        scores = self.scores(weights, buffers, batch) if self.scores is not None else None
        if scores is None:
            self.compute.engine.load(weights, buffers)
            scores = self.compute.engine.scores(self.compute.samples, batch)
        return scores

    def checkpoint(self) -> dict[str, Any]:
        """Return everything that `restore` needs, as named arrays and numbers."""
        return {
            "server": self.state.tree(),
            "clients": self.network.tree(),
            "elapsed_s": self.elapsed_s,
            "clock_s": self.clock_s,
            "reason": self.reason,
        }
