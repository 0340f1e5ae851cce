"""The server of an experiment, made from its assembly and its clients."""

from __future__ import annotations

from fedmx.assembly.assembly import Assembly
from fedmx.errors import ExperimentError
from fedmx.server.clients import Clients
from fedmx.server.server import Scorer, Server
from fedmx.server.stop import Stop
from layers.logic import Aggregator, LogicError, ServerState
from layers.logic.round.fold import check_by_slices
from layers.logic.storage.update_store import UpdateStore

MB = 1_000_000


def server_of(assembly: Assembly, clients: Clients, scores: Scorer | None = None) -> Server:
    """Return the server of an experiment.

    Args:
        assembly: the parts of the experiment.
        clients: its clients, simulated or remote.
        scores: evaluates models elsewhere, where that is faster; None: the server evaluates.

    Raises:
        ExperimentError: updates are to be folded from disk, and the aggregator cannot.
    """
    experiment, start = assembly.experiment, assembly.start
    evaluate, stop = experiment.compute.evaluate, experiment.stop
    return Server(
        network=clients,
        logic=assembly.server_logic,
        compute=assembly.server_compute(),
        last_round=experiment.rounds,
        evaluate_every=evaluate.every,
        evaluate_batch=evaluate.batch_size,
        client_rows=assembly.parts[1] if evaluate.per_client else None,
        scores=scores,
        initial_state=None if start is None else ServerState(0, start.weights, start.buffers),
        store=_store_of(experiment.run.fold_memory_mb, assembly.server_logic.aggregator),
        stop=Stop(stop.accuracy, stop.loss, stop.seconds, stop.client_accuracy, stop.clock_s),
    )


def _store_of(fold_memory_mb: int | None, aggregator: Aggregator) -> UpdateStore | None:
    if fold_memory_mb is None:
        return None
    try:
        check_by_slices(aggregator)
    except LogicError as error:
        raise ExperimentError(str(error)) from None
    return UpdateStore(fold_memory_mb * MB)
