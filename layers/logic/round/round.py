"""One round, as the data walks it: the server's half and the client's half."""

from __future__ import annotations

from layers.logic.core.engine import Data, Engine
from layers.logic.core.messages import ClientLost, Offer, StateLost, Task, Update
from layers.logic.core.peers import Peers
from layers.logic.core.report import RoundReport
from layers.logic.core.state import ClientState, ServerState
from layers.logic.numeric.norm import norm
from layers.logic.round.course import Course
from layers.logic.round.logic import Logic


def run_round(state: ServerState, peers: Peers, logic: Logic) -> tuple[ServerState, RoundReport]:
    """Run the round after `state`: choose, send, collect, fold, conclude.

    Raises:
        TooFewUpdates: fewer updates counted than `logic.min_updates`; `state` is still good.
    """
    course = Course(state, logic, peers)
    peers.send(course.open())
    for event in peers.events():
        match event:
            case Offer():
                peers.answer(course.on_offers(event))
            case Update():
                peers.send(course.receive(event))
            case ClientLost():
                peers.send(course.miss(event))
            case StateLost():
                peers.send(course.renew(event))
        del event  # a folded update must not live on while the next one arrives
        peers.answer(course.decide())
    peers.answer(course.close())
    return course.conclude()


def answer(
    task: Task,
    memory: ClientState,
    engine: Engine,
    data: Data,
    logic: Logic,
    shared: Data | None = None,
) -> tuple[Update, ClientState]:
    """Return a client's update, and its memory if the update counts.

    A function of its arguments alone; the same one in a simulation and in a deployed client.

    Args:
        task: what came from the server.
        memory: what the client's hooks kept.
        engine: trains; what it had loaded does not matter.
        data: the client's own samples.
        logic: the same as the server's.
        shared: samples that every client was given, where a hook asked for them.
    """
    chain = logic.client_pipeline(task, memory)
    received = chain.receive(task)
    data = chain.samples(data, shared)
    training = received.training
    engine.load(received.weights, received.buffers)
    metrics: dict[str, float] = {}
    if training.loss == "received":
        metrics["loss"] = engine.evaluate(data).loss
    if logic.received_gradient:
        chain.note_gradient(engine.gradient(data))
    report = engine.train(data, training, task.seed, chain.gradient if chain.corrects else None)
    if training.loss == "running" and report.steps:
        metrics["loss"] = report.loss
    if logic.selector.rms_loss and report.steps:
        metrics["rms_loss"] = report.rms_loss
    delta = engine.weights - received.weights
    if task.offer:
        metrics["norm"] = norm(delta)
    update = Update(
        round=task.round,
        client=task.client,
        samples=len(data),
        steps=report.steps,
        delta=delta,
        buffers=engine.buffers.copy(),
        metrics=metrics,
    )
    update = chain.send(update)
    return update, ClientState(task.round, chain.memory)


def offer_of(update: Update, upload_s: float = 0.0) -> Offer:
    """Return the offer of an update that a task with `offer` asked for.

    Its norm is the ||delta omega_k|| of knapsack selection, taken before any hook encoded it.
    """
    metrics = dict(update.metrics)
    norm_of_update = metrics.pop("norm")
    return Offer(update.round, update.client, update.samples, norm_of_update, upload_s, metrics)
