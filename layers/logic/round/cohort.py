"""The choice of the cohort, and the questions to clients before and after it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layers.logic.checks.returned import failure, guarded
from layers.logic.client_sizes import ClientSizes
from layers.logic.core.declaration import Condition, Need, Part, Trait, refusal
from layers.logic.core.hook import Phase
from layers.logic.core.messages import Slot
from layers.logic.core.plan import Plan, Population
from layers.logic.core.selector import SELECT, SURVEY, SelectorContext
from layers.logic.core.state import EXCLUDED, ServerState
from layers.logic.core.survey import ABOUT_MODEL, Question
from layers.logic.errors import ImpossiblePlan, LogicError, Rejected
from layers.logic.round.lanes import Fold
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.round.port import Port, Steps
from layers.logic.round.validation import check_slots
from layers.logic.seeds import derive, generator
from layers.logic.selectors.draws import replaced

UNANSWERED = "no answer to the question before its task"


@dataclass(frozen=True)
class Cohort:
    """The clients of one round.

    Attributes:
        plan: the clients that take part, lane by lane.
        population: the clients from which the plan was made.
    """

    plan: Plan
    population: Population


def choose_cohort(
    state: ServerState, port: Port, logic: Logic
) -> Steps[tuple[ServerState, Cohort]]:
    """Ask clients the selector's questions, and choose the cohort of the round after `state`.

    Returns:
        The state with the answers to the surveys, and the cohort.

    Raises:
        LogicError: the selector's plan cannot be carried out.
    """
    state, population = yield from _survey(state, port, logic)
    population = yield from _inquire(state, population, port, logic)
    round = state.round + 1
    context = _context(state, population, logic, "select")
    plan: Any = guarded(logic.selector.select, context, round=round)
    if not isinstance(plan, Plan):
        must = "it must return a Plan, as Plan(single_lanes(clients))"
        what = f"returned a {type(plan).__name__}; {must}"
        raise failure(logic.selector.select, what, round)
    _check(plan, population, logic, round)
    if logic.without:
        plan = replaced(plan, population.clients, logic.without, logic.seed, round)
    return state, Cohort(plan, population)


def _survey(state: ServerState, port: Port, logic: Logic) -> Steps[tuple[ServerState, Population]]:
    """Ask the clients that have not answered the surveys yet; return the state with the answers."""
    excluded = set[Any](state.memory.get(EXCLUDED, ()))
    population = Population(
        available(state, port, logic),
        training=logic.training_of(state.round + 1),
        deadline_s=logic.deadline_s,
        over_select=logic.over_select,
        in_flight=tuple(one for one in state.in_flight if one not in excluded),
        total=None if logic.clients is None else logic.clients - len(excluded),
        seed=logic.seed,
        secret=logic.secret.part("select", state.round + 1),
    )
    questions = logic.selector.surveys()
    if not questions:
        return state, population
    answers = {name: dict(given) for name, given in state.memory.get(SURVEY, {}).items()}
    answered = False
    for question in questions:
        given = answers.setdefault(question.name, {})
        asked = [client for client in population.clients if client not in given]
        replies = yield from _ask(question, asked, state, port, logic, logic.selector)
        answered = answered or bool(replies)
        given.update(replies)
    state = replace(state, memory={**state.memory, SURVEY: answers})
    if answered:
        state = logic.selector.on_survey(
            state, replace(population, answers=answers), derive(logic.seed, "on_survey")
        )
        answers = state.memory[SURVEY]
    # A client that has left in the meantime cannot be selected.
    return state, replace(population, samples=available(state, port, logic), answers=answers)


def _inquire(
    state: ServerState, population: Population, port: Port, logic: Logic
) -> Steps[Population]:
    """Ask the selector's questions of this round; return the population with the answers."""
    inquiries = logic.selector.inquire(_context(state, population, logic, "inquire"))
    if not inquiries:
        return population
    answers = {question: dict(given) for question, given in population.answers.items()}
    for question, clients in inquiries:
        given = answers.setdefault(question.name, {})
        given.update((yield from _ask(question, clients, state, port, logic, logic.selector)))
    # A client that has left in the meantime cannot be selected, whatever it answered.
    population = replace(population, samples=available(state, port, logic))
    for name in {question.name for question, _ in inquiries}:
        answers[name] = {one: reply for one, reply in answers[name].items() if population.has(one)}
    return replace(population, answers=answers)


def _context(
    state: ServerState, population: Population, logic: Logic, purpose: str
) -> SelectorContext:
    """Return what the selector knows, with a generator for this purpose in this round."""
    round = state.round + 1
    rng = generator(logic.seed, purpose, round)
    return SelectorContext(population, state.memory.get(SELECT, {}), round, rng)


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


def _check(plan: Plan, population: Population, logic: Logic, round: int) -> None:
    """Check that a plan can be carried out.

    Raises:
        ImpossiblePlan: it names clients that are not available, or the aggregator cannot
            use its lanes.
    """
    selector = type(logic.selector).__name__
    unknown = sorted(client for client in plan.clients if not population.has(client))
    if unknown:
        raise ImpossiblePlan(
            f"{selector} selected clients {unknown} in round {round}, which are not available or "
            "have no samples; select from population.clients"
        )
    not_in_flight = sorted(set(plan.late) - set(population.in_flight))
    if not_in_flight:
        raise ImpossiblePlan(
            f"{selector} waits in round {round} for late updates of clients {not_in_flight}, which "
            "have no task of an earlier round; choose from population.in_flight"
        )
    least, most = plan.passes + plan.refills, logic.selector.tasks_per_round
    if least > most:
        raise ImpossiblePlan(
            f"{selector} may give a client {least} tasks or more in round {round}, and clients "
            f"answer {most}; let its property tasks_per_round return the most tasks of one client"
        )
    shared = plan.passes > 1 or any(len(lane) > 1 for lane in plan.lanes)
    if shared and logic.needs(Need.EACH_CLIENT):
        raise ImpossiblePlan(
            refusal(Need.EACH_CLIENT, Condition.SHARED_LANES, logic.aggregator, logic.selector)
        )
    found = {Condition.SHARED_LANES: shared, Condition.OFFERS: plan.offers}
    for hook in (one for one in logic.hooks if Trait.MASKED in one.follows):
        for condition in (one for one, holds in found.items() if holds):
            raise ImpossiblePlan(refusal(Trait.MASKED, condition, hook, logic.selector))


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
