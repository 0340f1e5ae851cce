"""The client side of a round: a function of its arguments alone, simulated or deployed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from layers.logic.checks.returned import failure, guarded
from layers.logic.core.declaration import Need
from layers.logic.core.engine import Data, Engine
from layers.logic.core.hook import ClientContext, Process
from layers.logic.core.local_tensors import LOCAL_TENSORS
from layers.logic.core.messages import Offer, Task, Update, no_update
from layers.logic.core.state import NO_ROUND, ClientState, Memory, RoundMemory
from layers.logic.core.survey import EVALUATE, HOOKS, Answer, Question, answer_survey
from layers.logic.core.trainer import TRAINER, Job
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import largest, norm
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ClientPipeline, Trace, answer_hooks
from layers.logic.secrets import Secret

NO_ASSETS: Mapping[str, Data] = MappingProxyType({})


def answer(
    task: Task,
    memory: ClientState,
    engine: Engine,
    data: Data,
    logic: Logic,
    assets: Mapping[str, Data] = NO_ASSETS,
    trace: Trace | None = None,
    round_memory: Memory | None = None,
    secret: Secret | None = None,
    process: Process | None = None,
) -> tuple[Update, ClientState]:
    """Return a client's update, and its memory for the case that the update is accepted.

    The arguments are those of `prepared`. It depends on these alone, and is the same in a
    simulation and in a deployed client. Trainer and hooks may change `round_memory`.
    """
    more = assets, trace, round_memory, secret, process
    job, finish = prepared(task, memory, engine, data, logic, *more)
    return finish(logic.trainer.train(job))


Finish: TypeAlias = "Callable[[Any], tuple[Update, ClientState]]"
"""Takes the report of the trainer; returns what `answer` does."""


def prepared(
    task: Task,
    memory: ClientState,
    engine: Engine,
    data: Data,
    logic: Logic,
    assets: Mapping[str, Data] = NO_ASSETS,
    trace: Trace | None = None,
    round_memory: Memory | None = None,
    secret: Secret | None = None,
    process: Process | None = None,
) -> tuple[Job, Finish]:
    """Return the work of the trainer on a task, and what makes the update of it.

    The engine has loaded the received model; to finish, it must hold the trained one. On a model
    with which neither losses nor updates are finite, the update says so instead
    (`Update.cannot_train`), and the memory is unchanged.

    Args:
        task: the task from the server.
        memory: the memory of the client's hooks and trainer.
        engine: trains the model; its loaded vector does not matter.
        data: the client's own samples.
        logic: the logic, equal to the server's.
        assets: the assets that every client was given, by name.
        trace: takes the task and the update after each step; None: nothing does.
        round_memory: what trainer and hooks share within the round; None: nothing yet.
        secret: the client's secret; None: it follows the seed, as in a simulation.
        process: the client's process; None: it is simulated.

    Raises:
        LogicError: a hook declares an asset that is missing.
    """
    pipeline = ClientPipeline(logic, task, memory, assets, trace, round_memory, secret, process)
    if trace is not None:
        trace.append("client", "task", task)
    local = logic.local_tensors
    if local is not None:
        task = local.restore(task, memory.memory, logic.initial)
    received = pipeline.receive(task)
    data = pipeline.samples(data)
    training = received.training
    engine.load(received.weights, received.buffers)
    metrics: dict[str, float] = {}
    if training.loss == "received":
        metrics["loss"] = engine.evaluate(data).loss
    if logic.needs(Need.RECEIVED_GRADIENT):
        gradient = engine.gradient(data)
        pipeline.note_gradient(gradient if local is None else local.travelling(gradient))
    correct = pipeline.gradient if pipeline.corrects else None
    at = _trainer_context(pipeline, logic)
    job = Job(received, engine, data, correct, at, pipeline.terms)

    def finish(report: Any) -> tuple[Update, ClientState]:
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
        buffers = engine.buffers.copy()
        if local is not None:
            delta = local.travelling(delta)
            buffers = local.travelling_buffers(buffers, received.buffers)
            kept = local.kept(engine.weights, engine.buffers)
        if task.offer:
            metrics["norm"] = norm(delta)
        update = Update(
            round=task.round,
            client=task.client,
            samples=len(data),
            steps=report.steps,
            delta=delta,
            buffers=buffers,
            metrics=metrics,
        )
        if trace is not None:
            trace.append("client", "training", update)
        update = pipeline.send(update)
        update = replace(update, pass_number=task.pass_number)
        if local is not None:
            update = local.cut_update(update)
        if trace is not None:
            trace.append("client", "message", update)
        return update, ClientState(task.round, {**pipeline.memory, **kept}, task.pass_number)

    return job, finish


def personal_model(
    task: Task,
    memory: ClientState,
    engine: Engine,
    data: Data,
    logic: Logic,
    assets: Mapping[str, Data] = NO_ASSETS,
) -> None:
    """Load the model that a client uses itself into the engine (`Trainer.personal`).

    The other arguments are those of `answer`.

    Args:
        task: a task with the whole global model, which no hook has encoded.
        memory: the client's memory after its last accepted update.
        engine: takes the model.
    """
    local, known = logic.local_tensors, logic.initial is not None or LOCAL_TENSORS in memory.memory
    if local is not None and known:
        task = local.restore(local.cut_task(task), memory.memory, logic.initial)
    pipeline = ClientPipeline(logic, task, memory, assets)
    context = _trainer_context(pipeline, logic)
    context.start, context.training = task.weights, task.training
    job = Job(task, engine, data, None, context)
    guarded(logic.trainer.personal, job, round=task.round, client=task.client)


def _trainer_context(pipeline: ClientPipeline, logic: Logic) -> ClientContext:
    context = pipeline.context_of(TRAINER)
    if logic.initial is not None:
        context.initial = logic.initial[0]
    return context


def answer_question(
    client: int,
    question: Question,
    engine: Engine,
    data: Data,
    logic: Logic,
    within: RoundMemory = NO_ROUND,
    secret: Secret | None = None,
    sums: Callable[[np.ndarray, np.ndarray], Mapping[str, np.ndarray]] | None = None,
    process: Process | None = None,
) -> tuple[Answer, RoundMemory]:
    """Return a client's answer to a survey, or to a question of the server sides of hooks.

    It comes with the memory within the round after it.

    Args:
        client: number of the client.
        question: the question from the server.
        engine: trains or evaluates, if the answer needs it.
        data: the client's own samples.
        logic: the logic, equal to the server's.
        within: the memory within the last round, as the client's ledger has it.
        secret: the client's secret; None: it follows the seed, as in a simulation.
        sums: returns the sums of the results of weights and buffers on the client's samples for
            evaluation; None: it has none.
        process: the client's process; None: it is simulated.

    Raises:
        LogicError: the question is to evaluate, and clients of this experiment do not.
    """
    if question.name not in HOOKS:
        if question.name == EVALUATE:
            if logic.evaluation is None or sums is None:
                raise LogicError("clients do not evaluate in this experiment")
            found = sums(question.weights, question.buffers)
            answer = Answer(client, EVALUATE, {**found}, question.round)
        else:
            answer = answer_survey(client, question, engine, data)
        own = (secret or Secret.of_seed(logic.seed, "client", client)).part("survey")
        for hook in logic.hooks:
            values = hook.answered(question.name, question.classes, answer.values, own)
            answer = replace(answer, values=values)
        return answer, within
    round_memory = within.at(question.round, question.step)
    answer = answer_hooks(client, question, logic, round_memory, secret, process)
    return answer, within.passed(question.round, question.step, round_memory)


def offer_of(update: Update, upload_s: float) -> Offer:
    """Return the offer of an update, for a task with `offer`.

    Its norm is the ||delta omega_k|| of knapsack selection, computed before any hook.

    Args:
        update: the update, with the metric `norm`.
        upload_s: the client's estimate of the seconds of its upload alone; 0: unknown.
    """
    metrics = dict(update.metrics)
    norm_of_update = metrics.pop("norm")
    return Offer(update.round, update.client, update.samples, norm_of_update, upload_s, metrics)
