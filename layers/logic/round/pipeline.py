"""The hooks of one end in order: the other end undoes their work in reverse order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from layers.logic.checks.returned import checked, checked_gradient, checked_samples, guarded
from layers.logic.core.engine import Data
from layers.logic.core.hook import (
    ClientContext,
    ClientSide,
    Facilities,
    Moment,
    ServerContext,
    ServerSide,
)
from layers.logic.core.messages import Layout, Slot, Task, Training, Update
from layers.logic.core.selector import SURVEY
from layers.logic.core.state import Memory, ServerState, reopened
from layers.logic.core.survey import HOOKS, Answer, Question
from layers.logic.core.trainer import TRAINER
from layers.logic.errors import LogicError
from layers.logic.seeds import derive
from layers.logic.watch.watched import seen, watched, watched_half
from layers.logic.watch.watcher import Watcher


class ServerPipeline:
    """The server sides with their memory, for one round."""

    def __init__(
        self,
        halves: Mapping[str, ServerSide],
        state: ServerState,
        training: Training,
        layout: Layout,
        seed: int,
        clients: int,
        facilities: Facilities,
        max_update: float | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self._halves = halves
        self._watcher = watcher
        self._state = state
        self._clients = clients
        self._facilities = facilities
        self._max_update = max_update
        self._training = training
        # How each client was told to train: a late update comes of an earlier round's task.
        self._trainings = {one: task.training for one, task in state.in_flight.items()}
        self._layout = layout
        self._seed = seed
        self._shared_seed = derive(seed, "server", state.round + 1)
        self._memory: dict[str, Memory] = {
            key: reopened(state.memory.get(key, {})) for key in halves
        }
        self.numbers: dict[str, float] = {}  # for the round's record; filled by `conclude`

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the flat vector."""
        return self._layout

    @property
    def memory(self) -> Mapping[str, Memory]:
        """The memory of the halves, by hook; empty for a hook without memory."""
        return self._memory

    def training_of(self, client: int | None) -> Training:
        """Return how a client trains for its last task; without one, as this round says."""
        if client is None:
            return self._training
        return self._trainings.get(client, self._training)

    def warm_up(self) -> ServerState:
        """Return the state before round 1, after every half's `warm_up`."""
        state = self._state
        for key, half in self._halves.items():
            at = self._context(key, None, writable=False)
            state = checked(half.warm_up, state, at, server=True)
        return state

    def left_out(self, clients: Sequence[int]) -> dict[int, str]:
        """Return the clients of the cohort that any half leaves out, with the first reason."""
        left_out: dict[int, str] = {}
        for key, half in self._halves.items():
            at = self._context(key, None, writable=False)
            reasons = guarded(half.leave_out, clients, at, round=at.round)
            left_out = {**reasons, **left_out}
        return left_out

    def send(self, task: Task) -> Task:
        """Return the task as it is sent."""
        seen(self._watcher, "server", "start", task)
        self._trainings[task.client] = task.training
        for key, half in self._halves.items():
            context = self._context(key, task.client, False, pass_number=task.pass_number)
            send = watched(self._watcher, "server", key, half.send)
            task = checked(send, task, context, server=True)
            if context.slot:
                task = replace(task, slots={**task.slots, key: context.slot})
        self._trainings[task.client] = task.training
        return task

    def receive(self, update: Update) -> Update:
        """Return the update as the client's first hook received it, decoded by all halves."""
        for key in reversed(list(self._halves)):
            slot, number = update.slots.get(key), update.pass_number
            context = self._context(key, update.client, False, slot, number)
            receive = watched(self._watcher, "server", key, self._halves[key].receive)
            update = checked(receive, update, context, server=True)
        seen(self._watcher, "server", "decoded", update)
        return update

    def most_samples(self, client: int, samples: int) -> int:
        """Return the most samples that a client with `samples` of its own can train on."""
        for key, half in self._halves.items():
            if type(half).most_samples is not ServerSide.most_samples:
                samples = half.most_samples(samples, self._context(key, client, False))
        return samples

    def asks(self, moment: Moment) -> bool:
        """Whether any half may have a question at this moment."""
        return any(moment in half.asks for half in self._halves.values())

    def questions(self, moment: Moment, clients: Sequence[int]) -> dict[str, Slot]:
        """Return the questions of the halves to `clients` at this moment, by hook."""
        at = {key: self._context(key, None, writable=False) for key in self._halves}
        asked = {
            key: guarded(half.ask, moment, clients, at[key], round=at[key].round)
            for key, half in self._halves.items()
            if moment in half.asks
        }
        return {key: slot for key, slot in asked.items() if slot is not None}

    def on_answers(self, moment: Moment, answers: Mapping[int, Mapping[str, Slot]]) -> None:
        """Give the answers to every half that may ask at this moment, by client."""
        for key, half in self._halves.items():
            if moment in half.asks:
                mine = {one: given[key] for one, given in sorted(answers.items()) if key in given}
                at = self._context(key, None, writable=False)
                guarded(half.on_answers, moment, mine, at, round=at.round)

    @property
    def notes_accepted(self) -> bool:
        """Whether any half processes accepted updates."""
        return any(
            type(half).on_accepted is not ServerSide.on_accepted for half in self._halves.values()
        )

    def on_accepted(self, update: Update) -> None:
        """Let every half process an accepted update."""
        for key, half in self._halves.items():
            slot, number = update.slots.get(key), update.pass_number
            context = self._context(key, update.client, True, slot, number)
            note = watched(self._watcher, "server", key, half.on_accepted)
            guarded(note, update, context, round=context.round, client=update.client)

    def conclude(self, state: ServerState) -> ServerState:
        """Return the state after every half's `conclude`."""
        for key, half in self._halves.items():
            context = self._context(key, None, writable=True)
            conclude = watched(self._watcher, "server", key, half.conclude)
            state = checked(conclude, state, context, server=True)
            self.numbers.update(context.numbers)
        return state

    def _context(
        self,
        key: str,
        client: int | None,
        writable: bool,
        slot: Slot | None = None,
        pass_number: int = 1,
    ) -> ServerContext:
        memory, again = self._memory[key], () if pass_number == 1 else (pass_number,)
        return ServerContext(
            round=self._state.round + 1,
            client=client,
            seed=derive(
                self._seed,
                f"server:{key}",
                self._state.round + 1,
                -1 if client is None else client,
                *again,
            ),
            training=self.training_of(client),
            layout=self._layout,
            memory=memory if writable else MappingProxyType(memory),
            slot=dict(slot or {}),
            start=self._state.weights,
            clients=self._clients,
            shared_seed=self._shared_seed,
            auxiliary=self._facilities.auxiliary,
            train_on_asset=self._facilities.train_on_asset,
            asset_sizes=self._facilities.asset_sizes,
            max_update=self._max_update,
            answers=self._state.memory.get(SURVEY, {}),
        )


class ClientPipeline:
    """The client sides with their memory, for one task."""

    def __init__(
        self,
        halves: Mapping[str, ClientSide],
        memory: Mapping[str, Memory],
        task: Task,
        layout: Layout,
        assets: Mapping[str, Mapping[str, Data]],
        seed: int,
        watcher: Watcher | None = None,
    ) -> None:
        self._halves = halves
        self._watcher = watcher
        self._memory: dict[str, Memory] = {
            key: reopened(memory.get(key, {})) for key in (*halves, TRAINER)
        }
        self._contexts = {
            key: ClientContext(
                round=task.round,
                client=task.client,
                seed=derive(task.seed, f"client:{key}"),
                run_seed=derive(seed, f"client:{key}", task.client),
                training=task.training,
                layout=layout,
                memory=self._memory[key],
                slot=dict(task.slots.get(key, {})),
                assets=assets.get(key, {}),
            )
            for key in self._memory
        }
        # Only halves that work on gradients take time at every local step.
        self._correcting = [
            (watched_half(watcher, key, half), self._contexts[key])
            for key, half in halves.items()
            if type(half).gradient is not ClientSide.gradient
        ]
        self._first_step = True

    @property
    def memory(self) -> Mapping[str, Memory]:
        """The memory of the halves, by hook, without hooks that have none."""
        return {key: kept for key, kept in self._memory.items() if kept}

    def context_of(self, key: str) -> ClientContext:
        """Return the context of a hook's half, or of the trainer."""
        return self._contexts[key]

    @property
    def corrects(self) -> bool:
        """Whether any half works on gradients."""
        return bool(self._correcting)

    def receive(self, task: Task) -> Task:
        """Return the task as the server's first hook received it, decoded by all halves."""
        for key in reversed(list(self._halves)):
            receive = watched(self._watcher, "client", key, self._halves[key].receive)
            task = checked(receive, task, self._contexts[key])
        for context in self._contexts.values():
            context.start = task.weights
            context.training = task.training
        return task

    def samples(self, data: Data) -> Data:
        """Return the samples to train on."""
        for key, half in self._halves.items():
            half = watched_half(self._watcher, key, half)
            data = checked_samples(half, data, self._contexts[key])
        return data

    def note_gradient(self, gradient: np.ndarray) -> None:
        """Give every half the received model's gradient."""
        for context in self._contexts.values():
            context.gradient = gradient

    def gradient(self, gradient: np.ndarray, weights: np.ndarray) -> None:
        """Let the halves that work on gradients change one step's gradient in place."""
        for half, context in self._correcting:
            if self._first_step:
                checked_gradient(half, gradient, weights, context)
            else:
                half.gradient(gradient, weights, context)
        self._first_step = False

    def send(self, update: Update) -> Update:
        """Return the update as it is sent."""
        for key, half in self._halves.items():
            context = self._contexts[key]
            context.slot = {}
            update = checked(watched(self._watcher, "client", key, half.send), update, context)
            if context.slot:
                update = replace(update, slots={**update.slots, key: context.slot})
        return update


def answer_hooks(
    question: Question,
    client: int,
    halves: Mapping[str, ClientSide],
    layout: Layout,
    seed: int,
) -> Answer:
    """Return the answer of the client sides to the server sides' question, without memory.

    Raises:
        LogicError: the question is for a hook that this client does not have.
    """
    moment = HOOKS[question.name]
    slots: dict[str, Slot] = {}
    for key, slot in question.slots.items():
        if key not in halves:
            raise LogicError(f"the server asks the hook {key}, which this client does not have")
        context = ClientContext(
            round=question.round,
            client=client,
            seed=derive(seed, f"client:{key}:{moment}", question.round, client),
            training=question.training,
            layout=layout,
            memory=MappingProxyType({}),
        )
        slots[key] = halves[key].answer(moment, slot, context)
    return Answer(client, question.name, {}, question.round, slots)
