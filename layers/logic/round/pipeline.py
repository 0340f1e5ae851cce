"""The hooks of one end in order: the other end undoes their work in reverse order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from layers.logic.checks.returned import (
    checked,
    checked_gradient,
    checked_samples,
    failure,
    guarded,
)
from layers.logic.core.aggregator import AGGREGATE
from layers.logic.core.asset import assets_of
from layers.logic.core.engine import Data
from layers.logic.core.gradient_term import GradientTerm
from layers.logic.core.hook import (
    ClientContext,
    ClientSide,
    Phase,
    Process,
    ServerContext,
    ServerSide,
)
from layers.logic.core.messages import Slot, Task, Training, Update
from layers.logic.core.selector import SURVEY
from layers.logic.core.state import ClientState, Memory, ServerState, reopened
from layers.logic.core.survey import HOOKS, Answer, Question
from layers.logic.core.trainer import TRAINER
from layers.logic.errors import LogicError
from layers.logic.round.hook_order import keyed
from layers.logic.round.logic import Logic
from layers.logic.secrets import Secret
from layers.logic.seeds import derive

End: TypeAlias = Literal["server", "client"]


class Trace(Protocol):
    """Takes a task and an update after each step on their way, to debug or compare.

    Between the hooks the steps are: ``start``, the task before the server's first hook; ``task``,
    as the client received it; ``training``, the update before the client's first hook; ``message``,
    the update as it is sent; ``decoded``, as the server's last hook returned it.
    """

    def append(
        self, end: End, step: str, message: Task | Update, memory: Mapping[str, Any] | None = None
    ) -> None:
        """Take a task or an update.

        Args:
            end: the end at which the step is.
            step: the step, or the hook's class and method, as in ``Stc.send``.
            message: the task or update after it; it must not be changed or kept without a copy.
            memory: the memory of the hook's side; None: the step is between the hooks.
        """


class ServerPipeline:
    """The server sides with their memory, for the round after `state`.

    Attributes:
        most_slot_bytes: of one update or answer.
        memory: the memory of the sides, by hook; empty for a hook without memory.
        numbers: for the round's record; `conclude` fills it.
    """

    def __init__(
        self,
        logic: Logic,
        state: ServerState,
        clients: int,
        trace: Trace | None = None,
        samples: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._logic, self._state, self._clients, self._trace = logic, state, clients, trace
        self._samples = samples
        self._sides = {key: hook.server() for key, hook in keyed(logic.hooks).items()}
        self._round = state.round + 1
        self._secret = logic.secret.part("round", self._round)
        self._shared_seed = derive(logic.seed, "server", self._round)
        self._training = logic.training_of(self._round)
        # How each client was told to train: a late update comes of an earlier round's task.
        self._trainings = {one: task.training for one, task in state.in_flight.items()}
        values = state.weights.size + state.buffers.size
        self.most_slot_bytes = logic.most_slot_bytes(values, clients)
        self.memory: dict[str, Memory] = {
            key: reopened(state.memory.get(key, {})) for key in self._sides
        }
        self.numbers: dict[str, float] = {}

    def training_of(self, client: int | None) -> Training:
        """Return how a client trains for its last task; without one, as this round says."""
        if client is None:
            return self._training
        return self._trainings.get(client, self._training)

    def aggregator_context(self) -> ServerContext:
        """Return the context of the aggregator, whose memory it cannot change."""
        return self._context(AGGREGATE)

    def warm_up(self) -> ServerState:
        """Return the state before round 1, after every side's `warm_up`."""
        state = self._state
        for key, side in self._sides.items():
            state = checked(side.warm_up, state, self._context(key), server=True)
        return state

    def left_out(self, clients: Sequence[int]) -> dict[int, str]:
        """Return the clients of the cohort that any side leaves out, with the first reason."""
        left_out: dict[int, str] = {}
        for key, side in self._sides.items():
            reasons = guarded(side.leave_out, clients, self._context(key), round=self._round)
            left_out = {**reasons, **left_out}
        return left_out

    def send(self, task: Task) -> Task:
        """Return the task as it is sent."""
        if self._trace is not None:
            self._trace.append("server", "start", task)
        self._trainings[task.client] = task.training
        for key, side in self._sides.items():
            context = self._context(key, task.client, pass_number=task.pass_number)
            task = checked(side.send, task, context, server=True)
            if context.slot:
                task = replace(task, slots={**task.slots, key: context.slot})
            if self._trace is not None and type(side).send is not ServerSide.send:
                self._trace.append("server", step_of(key, "send"), task, context.memory)
        self._trainings[task.client] = task.training
        return task

    def receive(self, update: Update) -> Update:
        """Return the update as the client's first hook received it, decoded by all sides."""
        for key in reversed(list(self._sides)):
            slot, number = update.slots.get(key), update.pass_number
            context = self._context(key, update.client, slot, number)
            side = self._sides[key]
            update = checked(side.receive, update, context, server=True)
            if self._trace is not None and type(side).receive is not ServerSide.receive:
                self._trace.append("server", step_of(key, "receive"), update, context.memory)
        if self._trace is not None:
            self._trace.append("server", "decoded", update)
        return update

    def most_samples(self, client: int, samples: int) -> int:
        """Return the most samples that a client with `samples` of its own can train on."""
        for key, side in self._sides.items():
            if type(side).most_samples is not ServerSide.most_samples:
                samples = side.most_samples(samples, self._context(key, client))
        return samples

    def asks(self, phase: Phase) -> bool:
        """Whether any side may have a question in this phase."""
        return any(phase in side.asks for side in self._sides.values())

    def questions(
        self, phase: Phase, clients: Sequence[int], asking: Collection[str] | None = None
    ) -> dict[str, Slot]:
        """Return the questions of the sides to `clients` in this phase, by hook.

        Args:
            phase: the phase.
            clients: the clients to ask.
            asking: the hooks that ask again; None: this is the first question.
        """
        asked = {
            key: guarded(side.ask, phase, clients, self._context(key), round=self._round)
            for key, side in self._sides.items()
            if phase in side.asks and (asking is None or key in asking)
        }
        return {key: slot for key, slot in asked.items() if slot is not None}

    def on_answers(
        self, phase: Phase, answers: Mapping[int, Mapping[str, Slot]], asked: Collection[str]
    ) -> list[str]:
        """Give the answers to every side that has asked, by client; return those that ask again."""
        again = []
        for key, side in self._sides.items():
            if key in asked:
                mine = {one: given[key] for one, given in sorted(answers.items()) if key in given}
                at = self._context(key)
                if guarded(side.on_answers, phase, mine, at, round=self._round):
                    again.append(key)
        return again

    def discarded(self, phase: Phase, clients: Sequence[int]) -> dict[int, str]:
        """Return the clients that any side discards after its answers, with the first reason."""
        discarded: dict[int, str] = {}
        for key, side in self._sides.items():
            if phase in side.asks:
                at = self._context(key)
                reasons = guarded(side.discard, phase, clients, at, round=self._round)
                discarded = {**reasons, **discarded}
        return {client: why for client, why in discarded.items() if client in clients}

    @property
    def masked(self) -> bool:
        """Whether only the sum of the updates can be read, which a side reveals."""
        return any(type(side).reveal is not ServerSide.reveal for side in self._sides.values())

    def reveal(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean update (d,) and buffers (b,) of a round whose updates are masked.

        Raises:
            PartFailed: the hook failed, or returned vectors of another type or length.
        """
        (key, side), *_ = (
            (key, side)
            for key, side in self._sides.items()
            if type(side).reveal is not ServerSide.reveal
        )
        at, state = self._context(key), self._state
        delta, buffers = guarded(side.reveal, state, at, round=self._round)
        for vector, like in ((delta, state.weights), (buffers, state.buffers)):
            if (vector.shape, vector.dtype) != (like.shape, like.dtype):
                what = (
                    f"returned {vector.dtype} of shape {vector.shape}; it must be {like.dtype} of "
                    f"shape {like.shape}"
                )
                raise failure(side.reveal, what, self._round)
        for key, other in self._sides.items():
            if sums := side.sums.get(type(other.hook).__name__):
                at = self._context(key, writable=True)
                guarded(other.on_sums, sums, at, round=self._round)
        return delta, buffers

    @property
    def notes_accepted(self) -> bool:
        """Whether any side processes accepted updates."""
        return any(
            type(side).on_accepted is not ServerSide.on_accepted for side in self._sides.values()
        )

    def on_accepted(self, update: Update) -> None:
        """Let every side process an accepted update."""
        for key, side in self._sides.items():
            slot, number = update.slots.get(key), update.pass_number
            context = self._context(key, update.client, slot, number, writable=True)
            guarded(side.on_accepted, update, context, round=self._round, client=update.client)

    def conclude(self, state: ServerState) -> ServerState:
        """Return the state after every side's `conclude`."""
        for key, side in self._sides.items():
            context = self._context(key, writable=True)
            state = checked(side.conclude, state, context, server=True)
            self.numbers.update(context.numbers)
        return state

    def on_removed(self, clients: Collection[int]) -> None:
        """Let every side take out of its memory what these clients have put in."""
        for key, side in self._sides.items():
            context = self._context(key, writable=True)
            guarded(side.on_removed, clients, context, round=self._round)

    def _context(
        self,
        key: str,
        client: int | None = None,
        slot: Slot | None = None,
        pass_number: int = 1,
        *,
        writable: bool = False,
    ) -> ServerContext:
        logic, state = self._logic, self._state
        memory = self.memory[key] if key in self.memory else state.memory.get(key, {})
        one = -1 if client is None else client
        again = () if pass_number == 1 else (pass_number,)
        return ServerContext(
            round=self._round,
            client=client,
            seed=derive(logic.seed, f"server:{key}", self._round, one, *again),
            training=self.training_of(client),
            layout=logic.layout,
            memory=memory if writable else MappingProxyType(memory),
            slot=dict(slot or {}),
            start=state.weights,
            clients=self._clients,
            own_secret=self._secret.part(key, one, *again),
            base=None if client is None else state.base_of(client),
            shared_seed=self._shared_seed,
            auxiliary=logic.facilities.auxiliary,
            train_on_asset=logic.facilities.train_on_asset,
            outputs_on_asset=logic.facilities.outputs_on_asset,
            asset_sizes=logic.facilities.asset_sizes,
            max_update=logic.max_update,
            answers=state.memory.get(SURVEY, {}),
            aggregate=state.memory.get(AGGREGATE, {}),
            samples=self._samples,
            masked=self.masked,
        )


class ClientPipeline:
    """The client sides with their memory, for one task; the arguments are those of `answer`."""

    def __init__(
        self,
        logic: Logic,
        task: Task,
        state: ClientState,
        assets: Mapping[str, Data],
        trace: Trace | None = None,
        round_memory: Memory | None = None,
        secret: Secret | None = None,
        process: Process | None = None,
    ) -> None:
        hooks = keyed(logic.hooks)
        self._sides = sides = {key: hook.client() for key, hook in hooks.items()}
        self._trace = trace
        self._memory: dict[str, Memory] = {
            key: reopened(state.memory.get(key, {})) for key in (*sides, TRAINER)
        }
        given = {key: assets_of(hook, assets) for key, hook in hooks.items()}
        own = secret or Secret.of_seed(logic.seed, "client", task.client)
        local = logic.local_tensors
        stays = np.zeros(0, bool) if local is None else ~local.travels
        shared = {} if round_memory is None else round_memory
        self._contexts = {
            key: ClientContext(
                round=task.round,
                client=task.client,
                seed=derive(task.seed, f"client:{key}"),
                run_seed=derive(logic.seed, f"client:{key}", task.client),
                training=task.training,
                layout=logic.layout,
                memory=self._memory[key],
                slot=dict(task.slots.get(key, {})),
                assets=given.get(key, {}),
                clients=logic.clients or 0,
                own=stays,
                round_memory=shared,
                own_secret=own.part(key, task.round, task.pass_number),
                process=process,
            )
            for key in self._memory
        }
        # Only sides that work on gradients take time at every local step.
        self._correcting = [
            (side, self._contexts[key])
            for key, side in sides.items()
            if type(side).gradient is not ClientSide.gradient
            or type(side).term is not ClientSide.term
        ]
        self._first_step = True

    @property
    def memory(self) -> Mapping[str, Memory]:
        """The memory of the sides, by hook, without hooks that have none."""
        return {key: kept for key, kept in self._memory.items() if kept}

    def context_of(self, key: str) -> ClientContext:
        """Return the context of a hook's side, or of the trainer."""
        return self._contexts[key]

    @property
    def corrects(self) -> bool:
        """Whether any side works on gradients."""
        return bool(self._correcting)

    @property
    def terms(self) -> list[GradientTerm | None] | None:
        """The terms of these sides; None: one of them changes gradients in another way."""
        if any(type(side).gradient is not ClientSide.gradient for side, _ in self._correcting):
            return None
        return [context.term for _, context in self._correcting]

    def receive(self, task: Task) -> Task:
        """Return the task as the server's first hook received it, decoded by all sides."""
        for key in reversed(list(self._sides)):
            side, context = self._sides[key], self._contexts[key]
            task = checked(side.receive, task, context)
            if self._trace is not None and type(side).receive is not ClientSide.receive:
                self._trace.append("client", step_of(key, "receive"), task, context.memory)
        for context in self._contexts.values():
            context.start = task.weights
            context.training = task.training
        for side, context in self._correcting:
            context.term = side.term(context)
        return task

    def samples(self, data: Data) -> Data:
        """Return the samples to train on."""
        for key, side in self._sides.items():
            data = checked_samples(side, data, self._contexts[key])
        return data

    def note_gradient(self, gradient: np.ndarray) -> None:
        """Give every side the received model's gradient."""
        for context in self._contexts.values():
            context.gradient = gradient

    def gradient(self, gradient: np.ndarray, weights: np.ndarray) -> None:
        """Let the sides that work on gradients change one step's gradient in place."""
        for side, context in self._correcting:
            if self._first_step:
                checked_gradient(side, gradient, weights, context)
            else:
                side.gradient(gradient, weights, context)
        self._first_step = False

    def send(self, update: Update) -> Update:
        """Return the update as it is sent."""
        for key, side in self._sides.items():
            context = self._contexts[key]
            context.slot = {}
            update = checked(side.send, update, context)
            if context.slot:
                update = replace(update, slots={**update.slots, key: context.slot})
            if self._trace is not None and type(side).send is not ClientSide.send:
                self._trace.append("client", step_of(key, "send"), update, context.memory)
        return update


def answer_hooks(
    client: int,
    question: Question,
    logic: Logic,
    round_memory: Memory,
    secret: Secret | None = None,
    process: Process | None = None,
) -> Answer:
    """Return the answer of the client sides to the server sides' question.

    It may change `round_memory`; the sides have no other memory here.

    Raises:
        LogicError: the question is for a hook that this client does not have.
    """
    phase, hooks = HOOKS[question.name], keyed(logic.hooks)
    own = secret or Secret.of_seed(logic.seed, "client", client)
    slots: dict[str, Slot] = {}
    for key, slot in question.slots.items():
        if key not in hooks:
            raise LogicError(f"the server asks the hook {key}, which this client does not have")
        context = ClientContext(
            round=question.round,
            client=client,
            seed=derive(logic.seed, f"client:{key}:{phase}", question.round, client),
            training=question.training,
            layout=logic.layout,
            memory=MappingProxyType({}),
            clients=logic.clients or 0,
            round_memory=round_memory,
            own_secret=own.part(key, question.round, phase),
            process=process,
        )
        slots[key] = hooks[key].client().answer(phase, slot, context)
    return Answer(client, question.name, {}, question.round, slots, question.number)


def step_of(key: str, method: str) -> str:
    """Return the name of a hook's step, without the place of the hook, as in ``Stc.send``."""
    return f"{key.partition(':')[2]}.{method}"


def removed(logic: Logic, state: ServerState, clients: Collection[int]) -> ServerState:
    """Return the state without what these clients have put into the memories of the hooks."""
    pipeline = ServerPipeline(logic, state, logic.clients or 0)
    pipeline.on_removed(clients)
    memory = {**state.memory, **pipeline.memory}
    return replace(state, memory={key: kept for key, kept in memory.items() if kept})
