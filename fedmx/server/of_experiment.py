"""The server of an experiment, made from its assembly and its clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.doubts import doubts
from fedmx.components.text import unknown
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.log import Log
from fedmx.monitoring.monitor import Monitor
from fedmx.quantities import Quantity, metrics_of
from fedmx.server.callback import Callback
from fedmx.server.carrier import RunCarrier
from fedmx.server.evaluation import Evaluation, Measure
from fedmx.server.personal import PersonalModels
from fedmx.server.server import Scorer, Server
from fedmx.server.stop import Stop
from layers.compute.engines.evaluation import ACCURACY
from layers.compute.scores import Scores
from layers.logic import Aggregator, ClientState, LogicError, ServerState
from layers.logic.checks.parts import possible_mistakes
from layers.logic.core.attack import attack_in
from layers.logic.core.declaration import Condition, Need, Trait, refusal
from layers.logic.round.lanes import check_by_slices
from layers.logic.secrets import Secret
from layers.logic.storage import UpdateStore

log = Log("fedmx.server")

MB = 1_000_000
WAITING_MB = 64  # of updates that wait in memory, if nothing is set; the others wait on disk


def server_of(
    assembly: Assembly,
    clients: RunCarrier,
    scores: Scorer | None = None,
    callbacks: Sequence[Callback] = (),
    memory_of: Callable[[int, ServerState], ClientState] | None = None,
    *,
    monitor: Monitor | None = None,
    metrics: AbstractContextManager[object] | None = None,
    operated: Callable[[Path], AbstractContextManager[object]] | None = None,
) -> Server:
    """Return the server of an experiment.

    Args:
        assembly: the parts of the experiment.
        clients: its clients, simulated or remote.
        scores: evaluates models elsewhere, where that is faster; None: the server evaluates.
        callbacks: called after each round; they may end the run.
        memory_of: returns a client's memory after its last accepted update; None: no personal
            model is evaluated.
        monitor, metrics, operated: see the attributes of `Server`.

    Raises:
        CallbackError: a callback is none, or has a misspelt method.
        ExperimentError: updates are to be folded from disk, and the aggregator cannot; or samples
            or models of deployed clients are to be evaluated, which they alone have.
    """
    experiment, start = assembly.experiment, assembly.start
    logic = assembly.logic
    parts = (logic.selector, logic.aggregator, *logic.hooks, logic.trainer)
    doubtful = (*possible_mistakes(parts), *doubts(assembly, simulated=not clients.untrusted))
    for doubt in () if assembly.survey else doubtful:
        log.warning("part_doubtful", "{what}; is this intended?", what=doubt)
    _check_patience(assembly, clients)
    evaluate, stop = experiment.compute.evaluate, experiment.stop
    by_client = evaluate.per_client or evaluate.personal
    if by_client and clients.untrusted:
        measured = {
            "stop.client_accuracy": stop.client_accuracy is not None,
            "compute.evaluate.per_client": evaluate.per_client,
            "compute.evaluate.personal": evaluate.personal,
        }
        raise ExperimentError(
            f"{', '.join(key for key, is_set in measured.items() if is_set)}: a deployed server "
            "does not have its clients' samples and models, only those of its own partition; leave "
            "it out, and measure it in a simulation"
        )
    measures: list[Measure] = [*_of_attack(assembly), partial(_of_groups, assembly)]
    if evaluate.personal and memory_of is not None:
        measures.append(PersonalModels(assembly, memory_of).measure)
    quantities = metrics_of(assembly.metrics, assembly.data.targets)
    _check_stop(experiment, quantities)
    if monitor is not None:
        monitor.metrics = quantities
    return Server(
        network=clients,
        logic=assembly.server_logic,
        compute=assembly.server_compute(),
        last_round=experiment.rounds,
        evaluate_every=evaluate.every,
        evaluate_batch=evaluate.batch_size,
        client_rows=assembly.parts[1] if by_client else None,
        measures=measures,
        test=assembly.last_test(),
        scores=scores,
        callbacks=callbacks,
        experiment=experiment,
        secret=Secret.fresh() if clients.untrusted else None,
        account=assembly.account,
        initial_state=None if start is None else ServerState(0, start.weights, start.buffers),
        store=_store_of(
            experiment.run.fold_memory_mb, assembly.server_logic.aggregator, clients.untrusted
        ),
        stop=Stop(**dict(stop)),
        monitor=monitor,
        metrics=metrics,
        operated=operated,
    )


def _check_stop(experiment: Experiment, quantities: Sequence[Quantity]) -> None:
    """Check that the run measures what is to end it.

    Raises:
        ExperimentError: it does not.
    """
    known = [one.name for one in quantities if one.unit != "text" and one.key != ACCURACY]
    for name in experiment.stop.metric or {}:
        if name not in known:
            text = unknown("metric", name, known)
            raise ExperimentError(experiment.compute.data.source.problem(("stop", "metric"), text))


def _check_patience(assembly: Assembly, clients: RunCarrier) -> None:
    """Check that whether a client of a private run is given up depends on itself alone.

    Raises:
        ExperimentError: it depends on the answer times of the others.
    """
    patience = clients.patience
    relative = patience is not None and patience.times is not None and patience.limit_s is None
    if assembly.logic.needs(Need.BOUNDED) and relative:
        rule = Need.BOUNDED, Condition.RELATIVE_PATIENCE
        raise ExperimentError(f"privacy: {refusal(*rule, '', '')}")


def _of_groups(assembly: Assembly, state: ServerState, scores: Scores) -> Evaluation:
    """Return the accuracy of each group's model on the test split; nothing without such models."""
    found = {}
    for group, model in state.models.items():
        assembly.engine.load(*model)
        found[group] = assembly.engine.evaluate(assembly.evaluated_samples).accuracy
    if not found:
        return Evaluation()
    mean = float(np.mean(list(found.values())))
    return Evaluation(measured={"group_accuracy": found, "group_accuracy_mean": mean})


def _of_attack(assembly: Assembly) -> list[Measure]:
    """Return what measures the success of an attack; nothing without one.

    Raises:
        ExperimentError: the attack cannot work on the samples.
    """
    attack, samples = attack_in(assembly.logic.hooks), assembly.evaluated_samples
    try:
        measured = {} if attack is None else attack.measured(samples.x, samples.y)
    except LogicError as error:
        raise ExperimentError(f"attack: {error}") from None

    def success(state: ServerState, scores: Scores) -> Evaluation:
        assembly.engine.load(state.weights, state.buffers)
        found = {key: assembly.engine.evaluate(one).accuracy for key, one in measured.items()}
        return Evaluation(measured=found)

    return [success] if measured else []


def _store_of(
    fold_memory_mb: int | None, aggregator: Aggregator, untrusted: bool
) -> UpdateStore | None:
    """Return where updates wait; None: in memory.

    If nothing is set, those of a simulation do, which come in their turn.
    """
    if fold_memory_mb is None:
        if not untrusted or Trait.BY_SLICES not in aggregator.provides:
            return None
        return UpdateStore(WAITING_MB * MB, waiting_bytes=WAITING_MB * MB)
    try:
        check_by_slices(aggregator)
    except LogicError as error:
        raise ExperimentError(str(error)) from None
    return UpdateStore(fold_memory_mb * MB)
