"""The server: it runs rounds with its clients, remote or simulated."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.journal.chain import model_hash
from fedmx.journal.journal import Journal
from fedmx.monitoring.monitor import Monitor
from fedmx.privacy.account import PRIVACY, Account
from fedmx.privacy.published import is_confidential
from fedmx.run import CheckpointError, RunFolder
from fedmx.server.callback import Callback, Callbacks
from fedmx.server.carrier import RunCarrier
from fedmx.server.evaluation import Evaluation, Measure, Rows, evaluate, of_clients
from fedmx.server.last_good import Recorder, last_good
from fedmx.server.round import Round
from fedmx.server.shown import Shown
from fedmx.server.step_back import StepsBack
from fedmx.server.stop import Stop, after_last
from fedmx.server.trial import trains
from layers.compute.bits import one_blas_thread
from layers.compute.engines.engine import Compute
from layers.compute.scores import Scores
from layers.logic import BrokenModel, Logic, RoundReport, ServerState, TooFewUpdates
from layers.logic.core.state import EXCLUDED
from layers.logic.round.pipeline import removed
from layers.logic.round.round import RoundMachine
from layers.logic.secrets import Secret
from layers.logic.storage import UpdateStore

Scorer: TypeAlias = "Callable[[np.ndarray, np.ndarray, int], Scores | None]"
"""Evaluates weights and buffers on the server's samples with a batch size; or returns None."""


@dataclass(repr=False)
class Server(Shown):
    """One run, from its first round or from a checkpoint to its last round.

    Attributes:
        network: the clients, simulated or remote.
        logic: the logic of the experiment; equal to the clients'.
        compute: the engine, and the samples on which the global model is evaluated.
        last_round: the number of the last round.
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        evaluate_batch: samples a batch of the evaluation.
        client_rows: each client's rows of the samples, for the accuracy on each client's own; None:
            it is not evaluated.
        measures: further measurements of each evaluated round.
        test: the test split, evaluated at the end of the run; None: `compute` has it.
        scores: evaluates a model on the same samples elsewhere, if that is faster.
        stop: the conditions that end the run sooner.
        monitor: shows the server's activity to an operator; None: nothing is shown.
        metrics: exports the monitor while the server listens; None: nothing is exported.
        operated: lets an operator tell the server what to do, in the run's folder; None: nothing
            does.
        store: keeps updates on disk until they are folded; None: they are in memory.
        callbacks: are called after each round, and may end the run.
        experiment: the experiment; None: the server was made of parts by hand.
        secret: the server's secret; None: it follows the seed.
        account: what the run spends of its privacy; None: it is not private.
        initial_state: the state before the first round; None: the initial model is drawn from the
            logic's seed.
        state: the state after the last round.
        elapsed_s: duration of the rounds so far.
        clock_s: their duration by the clients' clock, which may be virtual, with the time between
            them in which no client was available.
        reason: why the run has ended; empty: it has not.
        steps_back: how often the run has stepped back to an earlier model, and why.
        records: of each round until now, what `Round.record` says, without lists.
        folder: the run's folder; None: the run is not recorded.
        recorder: records rounds; None: rounds are not recorded.
    """

    network: RunCarrier
    logic: Logic
    compute: Compute
    last_round: int = 1
    evaluate_every: int = 1
    evaluate_batch: int = 500
    client_rows: Sequence[Rows] | None = None
    measures: Sequence[Measure] = ()
    test: Compute | None = None
    scores: Scorer | None = None
    stop: Stop = field(default_factory=Stop)
    monitor: Monitor | None = None
    metrics: AbstractContextManager[object] | None = None
    operated: Callable[[Path], AbstractContextManager[object]] | None = None
    store: UpdateStore | None = None
    callbacks: Sequence[Callback] = ()
    experiment: Experiment | None = None
    secret: Secret | None = None
    account: Account | None = None
    initial_state: InitVar[ServerState | None] = None
    state: ServerState = field(init=False)
    elapsed_s: float = field(default=0.0, init=False)
    clock_s: float = field(default=0.0, init=False)
    reason: str = field(default="", init=False)
    steps_back: StepsBack = field(default_factory=StepsBack, init=False)
    records: list[Mapping[str, Any]] = field(default_factory=list, init=False)
    folder: RunFolder | None = field(default=None, init=False)
    recorder: Recorder | None = field(default=None, init=False)

    def __post_init__(self, initial_state: ServerState | None) -> None:
        self._entered = 0
        self._logic_given = self.logic
        self._shown = ExitStack()
        self._callbacks = Callbacks(self.callbacks)
        self._given_state = initial_state
        self._lost_state: CheckpointError | None = None
        self.state = self._first_state()

    def _first_state(self) -> ServerState:
        """Return the state to step back to at the farthest.

        Raises:
            CheckpointError: it is lost.
        """
        if self._lost_state is not None:
            raise self._lost_state
        if self._given_state is not None:
            return self._given_state
        return ServerState(0, *self.compute.engine.initial(self.logic.seed))

    def begin_from(self, state: ServerState | CheckpointError) -> None:
        """Step back to this state at the farthest, as the run did not begin with the first one.

        Args:
            state: the state; or why it is lost, so that no step back leads there.
        """
        if isinstance(state, CheckpointError):
            self._lost_state = state
        else:
            self._given_state = state

    def __enter__(self) -> Server:
        self.network.__enter__()
        self._entered += 1
        if self.metrics is not None and self._entered == 1:
            try:
                self._shown.enter_context(self.metrics)
            except BaseException:
                self.__exit__(*sys.exc_info())
                raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._shown.close()
        self.network.__exit__(*exc_info)
        if self.store is not None:
            self.store.close()

    def __iter__(self) -> Iterator[Round]:
        return self.rounds()

    @property
    def address(self) -> str:
        """Address that clients connect to, with the real port; empty in a simulation."""
        return self.network.address

    @property
    def confidential(self) -> bool:
        """Whether the records of the run stay with this server; see `is_confidential`."""
        return is_confidential(self.experiment, self.network.untrusted)

    @property
    def weights(self) -> np.ndarray:
        """The global model, float32 (d,)."""
        return self.state.weights

    def belong_to(self, folder: RunFolder) -> None:
        """Take the secret of the run in a folder, and count what it has spent of its privacy."""
        if self.network.untrusted:
            self.secret = folder.secret
        if self.account is not None:
            self.account = self.account.after(folder.facts.get(PRIVACY), folder.forked_after)

    def record_in(self, folder: RunFolder, recorder: Recorder) -> None:
        """Record the run in its folder from now on, and keep what needs a place there.

        Raises:
            LogicError: the folder does not take updates that are to be kept on disk.
        """
        self.belong_to(folder)
        self.folder, self.recorder = folder, recorder
        self.remember(folder.rounds())
        self.network.keep_assets(folder.assets_path)
        if self.store is not None:
            self.store.folder = folder.path
            self.store.open()

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a checkpoint that `Recorder.record` was given."""
        self.state = ServerState.of_tree(checkpoint["server"])
        self.elapsed_s = checkpoint["elapsed_s"]
        self.clock_s = checkpoint["clock_s"]
        self.reason = checkpoint["reason"]
        self.steps_back.restore(checkpoint["steps_back"])
        self._callbacks.warn_unless(checkpoint.get("callbacks", []))
        self.network.restore(checkpoint["clients"])
        if self.monitor is not None:
            self.monitor.goes_on_after(self.state.round)

    def rounds(self) -> Iterator[Round]:
        """Run and yield rounds until the last one, or until a condition of `stop` holds.

        While a round is yielded, `state` is the state after it. If the caller leaves the loop, the
        clients wait for the next round; call `finish` to end the run for them.

        After a round that ends with a `BrokenModel` the server steps back to an earlier state, and
        yields the rounds after it again.

        Raises:
            BrokenModel: the server has stepped back too often, or has no earlier state.
            CallbackError: a callback failed; its round is recorded.
            TooFewUpdates: too few updates were accepted; `state` is the state before the round.
        """
        with self.calling():
            yield from self._rounds()

    def calling(self) -> AbstractContextManager[None]:
        """Return a context manager that calls the callbacks at the run's begin and end."""
        return self._callbacks.during(self)

    def _check_logic(self) -> None:
        """Check that the logic is that of the experiment, which the clients have, too.

        Raises:
            FedmxError: it was replaced.
        """
        if self.experiment is not None and self.logic is not self._logic_given:
            raise FedmxError(
                "the server's logic was replaced, and its clients and records have that of the "
                "experiment; change the experiment instead"
            )

    def _rounds(self) -> Iterator[Round]:
        self._check_logic()
        if not self.reason and self.state.round >= self.last_round:
            self.reason = after_last(self.last_round)
        if not self.reason and self.account is not None:
            self.reason = self.account.reason(self.state.round) or ""
        if self.reason:  # resumed after its last round: the clients may not know it
            self.finish(self.reason)
        initial = self._initial() if not self.reason and self.state.round == 0 else {}
        while not self.reason:
            self.state, population = self.network.open_round(self.state)
            if excluded := self.state.memory.get(EXCLUDED):
                self.state = removed(self.logic, self.state, set[Any](excluded))
            if self.monitor is not None:
                self.monitor.begun(self.state.round + 1)
            began = time.monotonic()
            try:
                with one_blas_thread():
                    self.state, report, journal = self._run_round(population)
            except (BrokenModel, TooFewUpdates) as error:
                self.elapsed_s += time.monotonic() - began
                self.clock_s += error.report.waited_s + error.report.took_s
                if isinstance(error, BrokenModel):
                    if self.account is not None:  # rounds that come again would not be counted
                        raise
                    self._step_back(error)
                elif not self.network.again(error):
                    raise
                continue
            self.steps_back.note(report)
            found = Evaluation()
            if self.logic.evaluation is not None:
                untrusted = self.network.untrusted
                found = of_clients(self.compute.evaluator, report.evaluations, untrusted=untrusted)
                if found.values and len(self.compute.samples):
                    found = found.with_more(self._further(Scores.none()))
            elif report.round % self.evaluate_every == 0 or report.round == self.last_round:
                found = self.evaluation()
            if report.round == 1 and initial:
                found = found.with_initial(initial)
            seconds = time.monotonic() - began
            self.elapsed_s += seconds
            self.clock_s += report.waited_s + report.took_s
            steps = self.steps_back.leading_to(report.round)
            journal.conclude(report, [one.record() for one in steps])
            round = Round(
                report=report,
                evaluation=found,
                seconds=seconds,
                elapsed_s=self.elapsed_s,
                clock_elapsed_s=self.clock_s,
                virtual=self.network.virtual,
                epsilon=self.account.epsilon(report.round) if self.account else None,
                stepped_back=steps,
                model_sha256=model_hash(self.state.weights, self.state.buffers),
                journal=journal,
            )
            asked = self._callbacks.stop(round)
            self.reason = self.stop.reason(round, self.records, self.quantities) or asked or ""
            if not self.reason and self.state.round >= self.last_round:
                self.reason = after_last(self.last_round)
            if not self.reason and self.account is not None:
                self.reason = self.account.reason(self.state.round) or ""
            if self.reason and self.test is not None:
                found = found.with_test(self._on_test(self.test))
                round = replace(round, evaluation=found)
            if self.recorder is not None:
                self.recorder.record(round, self.checkpoint())
            record = round.record()
            if self.monitor is not None:
                self.monitor.concluded(record, self.reason)
            if self.reason:
                self.finish(self.reason)
            self.note(record)
            self._callbacks.on_round(round)
            yield round

    def _run_round(self, population: Mapping[int, int]) -> tuple[ServerState, RoundReport, Journal]:
        """Run the next round; return the state after it, its report and its journal."""
        carrier = self.network
        facilities = replace(
            self.logic.facilities,
            trains=partial(trains, self.compute) if len(self.compute.samples) else None,
            secret=self.secret,
        )
        round = RoundMachine(
            self.state,
            replace(self.logic, facilities=facilities),
            untrusted=carrier.untrusted,
            patience=carrier.patience,
            store=self.store,
        )
        journal = Journal(
            self.state.round + 1,
            population if carrier.untrusted else {},
            carrier.opened_s,
            self.state.memory.get(EXCLUDED, {}),
            carrier.patience,
        )
        with closing(round):
            commands = round.start(population)
            while not round.done:
                if self.monitor is not None:
                    self.monitor.awaits(round.awaited)
                event, at_s = carrier.exchange(commands)
                journal.append(at_s, event, commands)
                commands = round.handle(event, at_s)
                del event  # frees a folded update before the next one arrives
        return *round.result(), journal

    def _step_back(self, error: BrokenModel) -> None:
        """Go back to the last good state, without the client that is suspected first.

        Raises:
            BrokenModel: it has been done too often, or there is no earlier state.
        """
        steps, kept = self.steps_back, self.recorder
        state = last_good(error, self.state, steps, self.logic, kept, self._first_state)
        self.state = replace(state, in_flight={}, versions={})
        self.remember(one for one in self.records if one["round"] <= self.state.round)
        self.network.forget(f"the run steps back to round {self.state.round}")
        if kept is not None:
            kept.step_back(self.state.round, self.checkpoint())

    def finish(self, reason: str) -> None:
        """Tell the clients that the run is over, so that they end as well."""
        self.reason = reason
        self.network.finish(reason)

    def evaluate(self) -> Mapping[str, Any]:
        """Return the loss and each metric of the global model on the server's samples, by key."""
        return self.evaluation().values

    def evaluation(self) -> Evaluation:
        """Return the evaluation of the global model, with that by client if there are rows.

        Without samples on the server it is empty.
        """
        if not len(self.compute.samples):
            return Evaluation()
        scores = self._scores()
        compute = self.compute
        found = evaluate(compute.evaluator, scores, compute.samples.y, self.client_rows)
        return found.with_more(self._further(scores))

    def _initial(self) -> Mapping[str, Any]:
        """Return the values of the initial model; empty: the server evaluates nothing."""
        compute = self.compute
        if self.logic.evaluation is not None or not len(compute.samples):
            return {}
        return evaluate(compute.evaluator, self._scores(), compute.samples.y).values

    def _further(self, scores: Scores) -> list[Evaluation]:
        return [measure(self.state, scores) for measure in self.measures]

    def _on_test(self, test: Compute) -> Mapping[str, Any]:
        """Return the values of the global model on the test split."""
        test.engine.load(self.state.weights, self.state.buffers)
        needed = test.evaluator.needs_outputs
        scores = test.engine.scores(test.samples, self.evaluate_batch, outputs=needed)
        return test.evaluator.values(scores, test.samples.y)

    def _scores(self) -> Scores:
        weights, buffers, batch = self.state.weights, self.state.buffers, self.evaluate_batch
        scores = self.scores(weights, buffers, batch) if self.scores is not None else None
        if scores is None:
            self.compute.engine.load(weights, buffers)
            needed = self.compute.evaluator.needs_outputs
            scores = self.compute.engine.scores(self.compute.samples, batch, outputs=needed)
        return scores

    def checkpoint(self) -> dict[str, Any]:
        """Return everything that `restore` needs, as named arrays and numbers."""
        return {
            "server": self.state.tree(),
            "clients": self.network.tree(),
            "elapsed_s": self.elapsed_s,
            "clock_s": self.clock_s,
            "reason": self.reason,
            "steps_back": self.steps_back.tree(),
            **({"callbacks": deciding} if (deciding := self._callbacks.deciding) else {}),
        }
