"""What a round asks before and after clients train, and the lanes that its algorithm plans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from layers.logic.checks.returned import guarded
from layers.logic.client_sizes import ClientSizes
from layers.logic.core.declaration import Condition, Need, Part, Trait, refusal
from layers.logic.core.hook import Phase
from layers.logic.core.messages import Slot
from layers.logic.core.round import Answers, OpenRound, PlannedLane
from layers.logic.core.selector import SELECT, SURVEY
from layers.logic.core.state import EXCLUDED, ServerState
from layers.logic.core.survey import ABOUT_MODEL, Question
from layers.logic.errors import ImpossibleRound, LogicError, Rejected
from layers.logic.round.algorithm import Algorithm
from layers.logic.round.lanes import Fold
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.round.port import Port, Steps
from layers.logic.round.validation import check_slots
from layers.logic.seeds import derive
from layers.logic.selectors.draws import replaced

UNANSWERED = "no answer to the question before its task"


def begin_round(state: ServerState, port: Port, logic: Logic, simulated: bool) -> OpenRound:
    """Return the round after `state`, as its algorithm sees it."""
    number = state.round + 1
    excluded = set[Any](state.memory.get(EXCLUDED, ()))
    in_flight = [one for one in state.in_flight if one not in excluded]
    return OpenRound(
        available(state, port, logic),
        number=number,
        memory=state.memory.get(SELECT),
        survey=state.memory.get(SURVEY),
        weights=state.weights,
        buffers=state.buffers,
        models=state.models,
        training=logic.training_of(number),
        deadline_s=logic.deadline_s,
        over_select=logic.over_select,
        total=None if logic.clients is None else logic.clients - len(excluded),
        seed=logic.seed,
        secret=logic.secret.part("select", number),
        simulated=simulated,
        in_flight=in_flight if logic.asynchronous else (),
    )


def ask_first(
    algorithm: Algorithm, round: OpenRound, state: ServerState, port: Port, logic: Logic
) -> Steps[ServerState]:
    """Ask clients what the algorithm wants to know before it waits for updates.

    Returns:
        The state with what the algorithm has changed: its memory, the answers that it keeps, and
        the models that the round starts from.
    """
    while isinstance(asked := algorithm.wait, Answers):
        name = asked.question.name
        if asked.once and all(one.name != name for one in logic.selector.asks):
            raise algorithm.refused(f"asks {name} once, which its property asks does not declare")
        answers = yield from _ask(asked.question, asked.clients, state, port, logic, logic.selector)
        round.sizes = ClientSizes.of(available(state, port, logic))
        if not asked.once:  # some may have left
            there = np.isin(list(answers), round.sizes.ids)
            answers = dict(compress(answers.items(), there.tolist()))
        algorithm.resume(answers)
    memory = dict(state.memory)
    for key, kept in ((SURVEY, round.survey), (SELECT, round.memory)):
        if kept or key in memory:
            memory[key] = kept
    return replace(state, weights=round.weights, models=round.models, memory=memory)


def planned_lanes(
    algorithm: Algorithm, round: OpenRound, logic: Logic, begun: Collection[int] = ()
) -> Sequence[PlannedLane]:
    """Return the lanes that the algorithm has planned since its last wait.

    Args:
        algorithm: the algorithm.
        round: the round.
        logic: the logic of the experiment.
        begun: the clients that have a task, or had one in a round in which each has one.

    Raises:
        PartFailed: it trains clients that are not available or have a task already.
        ImpossibleRound: another part cannot work with its lanes.
    """
    planned, round.planned = round.planned, []
    clients = [client for lane in planned for client in lane.clients]
    if clients and algorithm.wait is None and not logic.asynchronous:
        raise algorithm.refused(
            "ends without waiting for the clients that it trains; end it with yield from "
            "round.until_all()"
        )
    if unknown := sorted(client for client in clients if not round.has(client)):
        raise algorithm.refused(
            f"trains clients {unknown}, which are not available or have no samples; choose from "
            "round.clients"
        )
    counts = Counter([*clients, *begun])
    if twice := sorted({client for client in clients if counts[client] > 1}):
        raise algorithm.refused(f"trains clients {twice} twice; a client has one task at a time")
    passes = max((lane.passes for lane in planned), default=1)
    if passes + logic.asynchronous > (most := logic.selector.tasks_per_round):
        raise algorithm.refused(
            f"gives a client {passes + logic.asynchronous} tasks or more, and clients answer "
            f"{most}; let its property tasks_per_round return the most tasks of one client"
        )
    shared = passes > 1 or any(len(lane.clients) > 1 for lane in planned)
    if shared and (logic.asynchronous or round.in_turn):
        raise algorithm.refused(
            "trains clients one after the other in an asynchronous round, or with uploads in turn; "
            "call train for each client"
        )
    if logic.asynchronous and any(lane.group for lane in planned):
        raise algorithm.refused("has groups in an asynchronous round, which has one model")
    if logic.asynchronous and any(lane.offer for lane in planned):
        raise algorithm.refused(
            "asks for offers in an asynchronous round, whose tasks outlive the offers; call train "
            "without offer"
        )
    if not all(0 <= given_s < math.inf for given_s in (round.before_s, round.after_s)):
        raise algorithm.refused(
            f"sets before_s to {round.before_s} and after_s to {round.after_s}; each must be 0 s "
            "or more and finite"
        )
    found = {
        Condition.SHARED_LANES: shared,
        Condition.OFFERS: any(lane.offer for lane in planned),
    }
    if shared and logic.needs(Need.EACH_CLIENT):
        parts = logic.aggregator, logic.selector
        raise ImpossibleRound(refusal(Need.EACH_CLIENT, Condition.SHARED_LANES, *parts))
    for hook in (one for one in logic.hooks if Trait.MASKED in one.follows):
        for condition in (one for one, holds in found.items() if holds):
            raise ImpossibleRound(refusal(Trait.MASKED, condition, hook, logic.selector))
    if logic.without:
        return replaced(planned, round.clients, logic.without, logic.seed, round.number)
    return planned


def available(state: ServerState, port: Port, logic: Logic) -> Mapping[int, int]:
    """Return the clients that can be asked, with their numbers of samples.

    Clients that are excluded or suspended are left out. A suspension ends early if fewer clients
    than `min_updates` would be left. Clients in `without` keep their place among them, also if they
    never come.
    """
    samples = port.samples
    if any(client not in samples for client in logic.without):
        samples = {**dict.fromkeys(logic.without, 1), **samples}
    excluded = set[Any](state.memory.get(EXCLUDED, ()))
    suspended = port.waiting.suspended(port.now_s)
    if not excluded and not suspended:
        return samples
    sizes = ClientSizes.of(samples)
    ids = np.fromiter(sizes, np.int64, len(sizes))
    left = ids[~np.isin(ids, list(excluded | suspended))]
    if len(left) < max(logic.min_updates, 1):
        left = ids[~np.isin(ids, list(excluded))]
    return sizes.only(left)


def _ask(
    question: Question,
    clients: Sequence[int],
    state: ServerState,
    port: Port,
    logic: Logic,
    part: Part,
) -> Steps[dict[int, Slot]]:
    """Ask clients for a part; return the answers by client, of those that answered.

    A question about the model that has no model itself is about that of `state`.
    """
    if not clients:
        return {}
    full = replace(
        question,
        round=state.round + 1,
        seed=derive(logic.seed, f"survey:{question.name}"),
        training=logic.training_of(state.round + 1),
        model_bytes=state.weights.nbytes + state.buffers.nbytes,
    )
    if question.name in ABOUT_MODEL:
        if logic.local_tensors is not None:
            raise LogicError(
                f"{type(part).__name__} asks clients about the whole model ({question.name}), and "
                "local tensors stay on each client; use a part that does not ask, such as "
                "uniform"
            )
        if not question.weights.size:
            full = replace(full, weights=state.weights, buffers=state.buffers)
    replies = yield from port.ask(full, clients)
    answers = {reply.client: reply.values for reply in replies}
    for hook in logic.hooks:
        answers = {
            client: guarded(
                hook.reported, question.name, values, port.samples_of(client), round=full.round
            )
            for client, values in answers.items()
        }
    return answers


def ask_aggregator(fold: Fold, state: ServerState, port: Port, logic: Logic) -> Steps[None]:
    """Ask the aggregator's question about the model that it has made, if it has one."""
    inquiry = fold.inquiry(state)
    if inquiry is not None:
        fold.on_answers((yield from _ask(*inquiry, state, port, logic, logic.aggregator)))


def ask_cohort(
    clients: Sequence[int], state: ServerState, pipeline: ServerPipeline, port: Port, logic: Logic
) -> Steps[dict[int, str]]:
    """Return the clients of the cohort that get no task, each with the reason.

    A hook leaves them out, before or after its questions, or they did not answer these; those that
    are left out before are not asked.
    """
    left_out = pipeline.left_out(clients)
    asked = [client for client in clients if client not in left_out]
    unanswered = yield from ask_hooks("cohort", asked, state, pipeline, port, logic)
    answered = [client for client in asked if client not in unanswered]
    discarded = pipeline.discarded("cohort", answered)
    return {**left_out, **dict.fromkeys(unanswered, UNANSWERED), **discarded}


def ask_hooks(
    phase: Phase,
    clients: Sequence[int],
    state: ServerState,
    pipeline: ServerPipeline,
    port: Port,
    logic: Logic,
) -> Steps[list[int]]:
    """Ask `clients` until no hook asks again; return the clients that did not answer each question.

    If no hook has a question, no client is asked, and the list is empty.
    """
    left, number = list(clients), 0
    asking: list[str] | None = None
    while left and (slots := pipeline.questions(phase, left, asking)):
        number += 1
        question = Question(
            f"hooks {phase}",
            round=state.round + 1,
            training=logic.training_of(state.round + 1),
            slots=dict(slots),
            number=number,
        )
        replies = yield from port.ask(question, left)
        answers: dict[int, dict[str, Slot]] = {}
        for reply in replies:
            with suppress(Rejected):
                check_slots(reply.slots, pipeline, question.slots)
                answers[reply.client] = reply.slots
        left = [client for client in left if client in answers]
        asking = pipeline.on_answers(phase, answers, slots.keys())
    return [client for client in clients if client not in left]
