"""What a simulation will cost: one client's task, update and step are made, and multiplied."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.client.participant import Participant
from fedmx.errors import ExperimentError
from fedmx.protocol.loopback import carried
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.data.dataset import Samples
from layers.compute.errors import ComputeError
from layers.logic import ClientLedger, Task, TimerFired, Training
from layers.logic.core.round import Changed
from layers.logic.core.state import ServerState, frozen
from layers.logic.round.exchange import SendTask
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.round.round import RoundMachine
from layers.logic.seeds import derive

_ENOUGH_S = 0.2  # of measurement, after the first step, which compiles the model


@dataclass(frozen=True)
class Estimate:
    """The size and the cost of a simulation, as far as one client tells.

    Attributes:
        samples: each client's number of samples, int64 (N,).
        cohort: number of tasks in round 1; None: the selector first asks the clients. In rounds
            that do not wait, the number of updates that end one.
        concurrency: number of clients that train at the same time, if rounds do not wait; otherwise
            None.
        steps: mean over the clients of the local steps in a round.
        task_bytes: bytes of one task on the wire.
        update_bytes: bytes of one update on the wire; with codecs it differs from client to client.
        step_s: seconds of one local step.
        evaluation_s: seconds of one evaluation of the global model.
        evaluations: how often it is evaluated.
        memory_bytes: bytes of the client's memory of its hooks.
        process_bytes: the most memory of this process so far, with data, model and one client.
        rounds: number of rounds.
    """

    samples: np.ndarray
    cohort: int | None
    concurrency: int | None
    steps: float
    task_bytes: int
    update_bytes: int
    step_s: float
    evaluation_s: float
    evaluations: int
    memory_bytes: int
    process_bytes: int
    rounds: int

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole run on one core; None without a cohort."""
        if self.cohort is None:
            return None
        training_s = self.rounds * self.cohort * self.steps * self.step_s
        return training_s + self.evaluations * self.evaluation_s


def estimate(assembly: Assembly) -> Estimate:
    """Return the cost of a simulation, from one local step of one client of round 1.

    Raises:
        ExperimentError: a part of the experiment cannot be made.
        LogicError: the client's part of a hook fails.
    """
    experiment, logic, engine = assembly.experiment, assembly.server_logic, assembly.engine
    start = assembly.start
    weights, buffers = (
        engine.initial(logic.seed) if start is None else (start.weights, start.buffers)
    )
    state = ServerState(0, frozen(weights), frozen(buffers))
    sizes = assembly.sizes()
    numbers = np.array([sizes[client] for client in sizes], np.int64)
    client = int(list(sizes)[int(np.abs(numbers - np.median(numbers)).argmin())])
    training = logic.training_of(1)

    _try_smallest_batch(assembly, numbers, training)
    pipeline = ServerPipeline(logic, state, logic.clients or 0)
    seed = derive(logic.seed, "train", 1, client)
    one_step = dataclasses.replace(training, steps=1)
    task = pipeline.send(Task(1, client, seed, one_step, state.weights, state.buffers))
    received, task_bytes = carried(task)
    participant = SerialExecutor.of(assembly).participant(client, ClientLedger())
    update, update_bytes = carried(participant.train(received))
    if not update.cannot_train:
        pipeline.receive(update)

    every = experiment.compute.evaluate.every
    batch = training.batch_size or max(int(numbers.max(initial=1)), 1)
    batches = np.ceil(numbers / batch) if training.batch_size else np.ones(len(numbers))
    steps = training.steps if training.steps is not None else training.epochs * batches.mean()
    cohort, concurrency = _cohort(assembly, state)
    samples, test = participant.compute.samples, assembly.evaluated_samples
    some = dataclasses.replace(training, steps=min(10, max(1, round(steps))))
    return Estimate(
        samples=numbers,
        cohort=cohort,
        concurrency=concurrency,
        steps=float(steps),
        task_bytes=task_bytes,
        update_bytes=update_bytes,
        step_s=_timed(lambda: engine.train(samples, some, seed, loss=engine.loss_alone))
        / (some.steps or 1),
        evaluation_s=_timed(lambda: engine.evaluate(test)),
        evaluations=-(-experiment.rounds // every),
        memory_bytes=_memory_bytes(participant),
        process_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
        rounds=experiment.rounds,
    )


def _try_smallest_batch(assembly: Assembly, numbers: np.ndarray, training: Training) -> None:
    """Take a step on the smallest mini-batch of any client.

    Raises:
        ExperimentError: the model cannot train on so few samples.
    """
    engine, sizes = assembly.engine, np.maximum(numbers, 1)
    batch = np.minimum(training.batch_size or sizes, sizes)
    last = (sizes - 1) % batch + 1
    last += np.where((last < engine.least_batch) & (sizes > batch), batch, 0)  # it is joined
    smallest = np.minimum(batch, last)
    client = list(assembly.sizes())[int(smallest.argmin())]
    number, samples = int(smallest.min()), assembly.samples_of(client)
    few = Samples(samples.x[:number], samples.y[:number])
    one_step = dataclasses.replace(training, steps=1, batch_size=0)
    try:
        engine.train(few, one_step, 0, loss=engine.loss_alone)
    except ComputeError as error:
        raise ExperimentError(
            f"client {client}, {len(samples)} samples: {error}; raise compute.train.batch_size, or "
            "leave the client out (without)"
        ) from error


def _cohort(assembly: Assembly, state: ServerState) -> tuple[int | None, int | None]:
    """Return `Estimate.cohort` and `Estimate.concurrency`.

    Raises:
        LogicError: what the algorithm plans cannot be carried out.
    """
    machine = RoundMachine(state, assembly.server_logic)
    machine.start(assembly.population())
    if machine.planned is None:  # the answers of clients decide
        return None, None
    if isinstance(wait := machine.wait, Changed):
        sent = machine.handle(TimerFired("refill"), 0.0)
        return wait.accepted, sum(isinstance(one, SendTask) for one in sent)
    return sum(len(lane.clients) * lane.passes for lane in machine.planned), None


def _timed(work: Callable[[], object]) -> float:
    """Return the seconds of a call, which is repeated if it is short; the first is not counted."""
    work()
    times: list[float] = []
    while not times or (sum(times) < _ENOUGH_S and len(times) < 20):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _memory_bytes(participant: Participant) -> int:
    """Return the bytes of the arrays that a client's hooks keep from round to round."""
    pending = participant.ledger.pending
    memory = {} if pending is None else pending.memory
    return sum(
        value.nbytes
        for kept in memory.values()
        for value in kept.values()
        if isinstance(value, np.ndarray)
    )
