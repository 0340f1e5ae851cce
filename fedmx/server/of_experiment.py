"""The server of an experiment, made from its assembly and its clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedmx.assembly.assembly import Assembly
from fedmx.errors import ExperimentError
from fedmx.log import Log
from fedmx.server.callback import Callback
from fedmx.server.carrier import RunCarrier
from fedmx.server.personal import PersonalModels
from fedmx.server.server import Scorer, Server
from fedmx.server.stop import Stop
from layers.logic import Aggregator, ClientState, Hook, LogicError, ServerState
from layers.logic.attacks.samples import BackDoor
from layers.logic.checks.parts import possible_mistakes
from layers.logic.core.attack import attack_in
from layers.logic.core.declaration import Trait
from layers.logic.core.engine import Data
from layers.logic.round.lanes import check_by_slices
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
) -> Server:
    """Return the server of an experiment.

    Args:
        assembly: the parts of the experiment.
        clients: its clients, simulated or remote.
        scores: evaluates models elsewhere, where that is faster; None: the server evaluates.
        callbacks: called after each round; they may end the run.
        memory_of: returns a client's memory after its last accepted update; None: no personal
            model is evaluated.

    Raises:
        CallbackError: a callback is none, or has a misspelt method.
        ExperimentError: updates are to be folded from disk, and the aggregator cannot; or personal
            models are to be evaluated, and their clients have them.
    """
    experiment, start = assembly.experiment, assembly.start
    logic = assembly.logic
    for doubt in possible_mistakes((logic.selector, logic.aggregator, *logic.hooks)):
        log.warning("part_doubtful", "{what}; is this intended?", what=doubt)
    evaluate, stop = experiment.compute.evaluate, experiment.stop
    by_client = evaluate.per_client or evaluate.personal
    if evaluate.personal and clients.foreign:
        raise ExperimentError(
            "compute.evaluate.personal: a deployed server does not have its clients' models; set "
            "it to false, and evaluate them in a simulation"
        )
    personal = None
    if evaluate.personal and memory_of is not None:
        personal = PersonalModels(assembly, memory_of)
    compute = assembly.server_compute()
    return Server(
        network=clients,
        logic=assembly.server_logic,
        compute=compute,
        last_round=experiment.rounds,
        evaluate_every=evaluate.every,
        evaluate_batch=evaluate.batch_size,
        client_rows=assembly.parts[1] if by_client else None,
        personal=personal,
        triggered=_triggered(logic.hooks, compute.samples),
        scores=scores,
        callbacks=callbacks,
        experiment=experiment,
        initial_state=None if start is None else ServerState(0, start.weights, start.buffers),
        store=_store_of(
            experiment.run.fold_memory_mb, assembly.server_logic.aggregator, clients.foreign
        ),
        stop=Stop(**dict(stop)),
    )


def _triggered(hooks: Sequence[Hook], samples: Data) -> Data | None:
    """Return the test samples with the trigger of a back door; None: there is no back door.

    Raises:
        ExperimentError: the samples have no place for it.
    """
    attack = attack_in(hooks)
    if not isinstance(attack, BackDoor):
        return None
    try:
        return attack.test(samples.x, samples.y)
    except LogicError as error:
        raise ExperimentError(f"attack: {error}") from None


def _store_of(
    fold_memory_mb: int | None, aggregator: Aggregator, foreign: bool
) -> UpdateStore | None:
    """Return where updates wait; None: in memory.

    If nothing is set, those of a simulation do, which come in their turn.
    """
    if fold_memory_mb is None:
        if not foreign or Trait.BY_SLICES not in aggregator.provides:
            return None
        return UpdateStore(WAITING_MB * MB, waiting_bytes=WAITING_MB * MB)
    try:
        check_by_slices(aggregator)
    except LogicError as error:
        raise ExperimentError(str(error)) from None
    return UpdateStore(fold_memory_mb * MB)
