"""An executor whose liars know the honest updates of their round before they send their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmx.simulation.executors.executor import (
    AnswerResult,
    Executor,
    SerialExecutor,
    TrainResult,
    Work,
)
from layers.logic import ClientLedger, Question, Task
from layers.logic.core.attack import Collusion
from layers.logic.core.state import frozen
from layers.logic.seeds import generator


@dataclass(eq=False)
class _Honest:
    """The work on an honest client's task: its result is kept, since liars look at it, too."""

    work: Work
    kept: TrainResult | None = None
    cancelled: bool = False

    def result(self) -> TrainResult:
        """Return the result of the task."""
        if self.kept is None:
            self.kept = self.work.result()
        return self.kept

    def cancel(self) -> None:
        """Note that the server needs no update; the liars of the round may."""
        self.cancelled = True


class ColludingExecutor:
    """Lets another executor do the work, and replaces the updates of liars.

    An honest update is one of a task of the same number, whether the server waits for it or not. So
    the liars' update follows from the tasks of a round, not from times, and is the same on every
    executor and in a replay.

    Args:
        executor: does the work.
        attack: makes the liars' update.
        seed: of the experiment.
    """

    def __init__(self, executor: Executor, attack: Collusion, seed: int) -> None:
        self.executor = executor
        self._attack = attack
        self._seed = seed
        self._round = 0  # the number of the tasks
        self._honest: dict[int, _Honest] = {}  # by client, in the order of the plan
        self._malicious: dict[int, None] = {}
        self._lie: np.ndarray | None = None

    def __enter__(self) -> Any:
        self.executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.executor.__exit__(*exc_info)

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Submit a task; a liar's result waits for those of the honest clients."""
        if task.round != self._round or task.client in (*self._honest, *self._malicious):
            self._begin(task.round)  # also a round that is repeated
        work = self.executor.submit(task, ledger)
        if task.client in self._attack.malicious:
            self._malicious[task.client] = None
            return replace(work, result=lambda: self._lied(work))
        honest = self._honest[task.client] = _Honest(work)
        return Work(work.down_bytes, honest.result, honest.cancel)

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> Sequence[AnswerResult]:
        """Return the answers of clients; liars answer as the others do."""
        return self.executor.ask(question, clients, ledgers)

    def _begin(self, round: int) -> None:
        for one in self._honest.values():
            if one.cancelled and one.kept is None:
                one.work.cancel()
        self._round, self._honest, self._malicious, self._lie = round, {}, {}, None

    def _lied(self, work: Work) -> TrainResult:
        """Return a liar's result, with the update that all liars of the round send."""
        result = work.result()
        if self._lie is None:
            updates = [one.result().update for one in self._honest.values()]
            deltas = [one.delta for one in updates if one.delta.size]
            if deltas:
                honest = np.stack(deltas).astype(np.float64)
                rng = generator(self._seed, "collude", self._round)
                lie = self._attack.collude(honest, len(self._malicious), rng)
                self._lie = frozen(lie.astype(np.float32))
        if self._lie is None or not result.update.delta.size:
            return result  # nobody is there to be imitated, or the liar could not train
        lied = replace(result.update, delta=self._lie)
        if isinstance(self.executor, SerialExecutor) and self.executor.trace is not None:
            self.executor.trace.append("client", "message", lied)
        return replace(result, update=lied)
