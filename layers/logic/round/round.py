"""One round, as the data walks it: the server's side and the client's side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from layers.logic.checks.returned import failure
from layers.logic.core.declaration import Need
from layers.logic.core.engine import Data, Engine
from layers.logic.core.messages import (
    ClientLost,
    Offer,
    StateLost,
    Task,
    TimerFired,
    Update,
    in_pass,
    no_update,
)
from layers.logic.core.peers import Peers
from layers.logic.core.report import RoundReport
from layers.logic.core.state import ClientState, ServerState
from layers.logic.core.survey import HOOKS, Answer, Question, answer_survey
from layers.logic.core.trainer import TRAINER
from layers.logic.numeric.vectors import largest, norm
from layers.logic.round.cohort import choose_cohort
from layers.logic.round.collection import Collection
from layers.logic.round.conclusion import conclude
from layers.logic.round.dispatch import Dispatch
from layers.logic.round.fold import Fold
from layers.logic.round.hook_questions import ask_cohort, ask_hooks
from layers.logic.round.logic import Logic
from layers.logic.round.offers import OfferBook
from layers.logic.round.warm_up import warmed_up
from layers.logic.storage import UpdateStore
from layers.logic.watch.watched import seen

NO_ASSETS: Mapping[str, Data] = MappingProxyType({})


def run_round(
    state: ServerState, peers: Peers, logic: Logic, store: UpdateStore | None = None
) -> tuple[ServerState, RoundReport]:
    """Run the round after `state`: choose the cohort, dispatch, collect, fold, conclude.

    Args:
        state: the state after the round before.
        peers: carries tasks to the clients.
        logic: the logic of the experiment.
        store: keeps updates on disk until they are folded, if the aggregator reads them by slices;
            None: they are in memory.

    Returns:
        The next state, and the report of the round.

    Raises:
        TooFewUpdates: fewer updates were accepted than `logic.min_updates`; `state` stays valid.
        BrokenModel: clients cannot train on the model, or the round made one that is not finite or
            too far from it; `state` stays valid.
        LogicError: the plan cannot be carried out.
    """
    state, cohort = choose_cohort(warmed_up(state, logic), peers, logic)
    plan, population = cohort.plan, cohort.population
    pipeline = logic.server_pipeline(state, population.number)
    excluded = ask_cohort(plan.clients, state, pipeline, peers, logic)

    dispatch = Dispatch(state, plan, pipeline, logic, peers.remembers, excluded)
    offers = OfferBook(logic.selector, population, state, simulated=not peers.foreign)
    wait = pipeline.asks("returned")
    training = population.training
    fold = Fold(dispatch.lanes, state, logic.aggregator, pipeline, training, wait, store)
    collection = Collection(plan, dispatch, offers, fold, pipeline, logic, peers)
    collection.note_lost(excluded)
    peers.begin(state.round + 1, plan, dispatch.outstanding, logic.deadline_s)
    peers.send(collection.expect(dispatch.first()))

    with closing(peers.events()) as events:
        for event in events:
            match event:
                case Offer():
                    peers.answer(collection.on_offer(event, peers.elapsed_s))
                case Update():
                    peers.send(collection.on_update(event))
                case ClientLost():
                    peers.send(collection.on_client_lost(event))
                case StateLost():
                    peers.send(collection.on_state_lost(event))
                case TimerFired():
                    peers.answer(collection.on_timer(peers.elapsed_s))
            del event  # frees a folded update before the next one arrives
            peers.answer(collection.decide(peers.elapsed_s))
            if plan.offers:
                peers.set_timer(offers.timer_s(peers.elapsed_s))
            if plan.keeps_stragglers and collection.has_enough:
                break
    peers.answer(collection.close())

    ask_hooks("returned", collection.accepted, state, pipeline, peers, logic)
    return conclude(state, collection, pipeline, peers, logic)


def answer(
    task: Task,
    memory: ClientState,
    engine: Engine,
    data: Data,
    logic: Logic,
    assets: Mapping[str, Data] = NO_ASSETS,
) -> tuple[Update, ClientState]:
    """Return a client's update, and its memory for the case that the update is accepted.

    It depends on its arguments alone, and is the same in a simulation and in a deployed client.

    On a model with which neither losses nor updates are finite, the update says so instead
    (`Update.cannot_train`), and the memory is unchanged.

    Args:
        task: the task from the server.
        memory: the memory of the client's hooks and trainer.
        engine: trains the model; its loaded vector does not matter.
        data: the client's own samples.
        logic: the logic, equal to the server's.
        assets: the assets that every client was given, by name.

    Raises:
        LogicError: a hook declares an asset that is missing.
    """
    pipeline, watcher = logic.client_pipeline(task, memory, assets), logic.watcher
    seen(watcher, "client", "task", task)
    mask = logic.mask
    if mask is not None:
        task = mask.restore(task, memory.memory)
    received = pipeline.receive(task)
    data = pipeline.samples(data)
    training = received.training
    engine.load(received.weights, received.buffers)
    metrics: dict[str, float] = {}
    if training.loss == "received":
        metrics["loss"] = engine.evaluate(data).loss
    if logic.needs(Need.RECEIVED_GRADIENT):
        gradient = engine.gradient(data)
        pipeline.note_gradient(gradient if mask is None else mask.travelling(gradient))
    correct = pipeline.gradient if pipeline.corrects else None
    at = pipeline.context_of(TRAINER)
    report: Any = logic.trainer.train(received, engine, data, correct, at)
    if report is None:
        what = "returned None; it must return the report of the training, as engine.train does"
        raise failure(logic.trainer.train, what, task.round, task.client)
    if training.loss == "running" and report.steps:
        metrics["loss"] = report.loss
    if logic.needs(Need.RMS_LOSS) and report.steps:
        metrics["rms_loss"] = report.rms_loss
    delta = engine.weights - received.weights
    if not math.isfinite(largest(delta)) or not all(map(math.isfinite, metrics.values())):
        return no_update(task, len(data)), memory
    kept: Mapping[str, dict[str, object]] = {}
    if mask is not None:
        delta, kept = mask.keep(delta, engine.weights)
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
    seen(watcher, "client", "training", update)
    update = pipeline.send(update)
    update = replace(update, slots=in_pass(update.slots, task.pass_number))
    if mask is not None:
        update = mask.cut_update(update)
    seen(watcher, "client", "message", update)
    return update, ClientState(task.round, {**pipeline.memory, **kept}, task.pass_number)


def answer_question(
    client: int, question: Question, engine: Engine, data: Data, logic: Logic
) -> Answer:
    """Return a client's answer to a survey, or to a question of the server sides of hooks.

    Args:
        client: number of the client.
        question: the question from the server.
        engine: trains or evaluates, if the answer needs it.
        data: the client's own samples.
        logic: the logic, equal to the server's.
    """
    if question.name in HOOKS:
        return logic.answer_hooks(client, question)
    return answer_survey(client, question, engine, data)


def offer_of(update: Update, upload_s: float = 0.0) -> Offer:
    """Return the offer of an update, for a task with `offer`.

    Its norm is the ||delta omega_k|| of knapsack selection, computed before any hook.

    Args:
        update: the update, with the metric `norm`.
        upload_s: the client's estimate of the seconds of its upload alone; 0: unknown.
    """
    metrics = dict(update.metrics)
    norm_of_update = metrics.pop("norm")
    return Offer(update.round, update.client, update.samples, norm_of_update, upload_s, metrics)
