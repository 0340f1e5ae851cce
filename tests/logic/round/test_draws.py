"""Random draws differ for every hook, end, round, client and purpose, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from layers.logic import ClientSide, Context, Hook, ServerSide
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import bowls

CLIENTS = bowls(3)


@dataclass(frozen=True)
class Drawing(Hook):
    """Write down what each context draws."""

    drawn: dict = field(default_factory=dict, compare=False)

    class Server(ServerSide):
        def send(self, task, context):
            self.hook.note("server", context, context.client)
            return task

        def conclude(self, state, context):
            self.hook.note("server", context, "conclude")
            return state

    class Client(ClientSide):
        def send(self, update, context):
            self.hook.note("client", context, context.client)
            return update

    def note(self, end: str, context: Context, who: object) -> None:
        first, second, other = (
            tuple(context.rng(purpose).integers(0, 2**63, 2).tolist())
            for purpose in ("x", "x", "y")
        )
        assert first == second, "one purpose, the same draws"
        key = (end, id(self), context.round, who)
        self.drawn[(*key, "x")], self.drawn[(*key, "y")] = first, other


def draws(seed: int, order: tuple[int, ...] = ()) -> list[dict]:
    hooks = [Drawing(), Drawing()]
    logic = a_logic(alone(0, 1, 2), hooks=hooks, seed=seed)
    run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS, order))
    by_place = {id(hook): place for place, hook in enumerate(hooks)}
    return [
        {(end, by_place[hook], *rest): value for (end, hook, *rest), value in drawn.items()}
        for drawn in (hook.drawn for hook in hooks)
    ]


def test_hooks_ends_rounds_clients_and_purposes_draw_differently() -> None:
    one, other = draws(seed=1)
    every = [*one.values(), *other.values()]
    assert len(every) == 2 * 2 * 2 * (2 * 3 + 1)  # hooks, rounds, purposes, ends x clients + end
    assert len(set(every)) == len(every)


def test_draws_depend_on_the_seed_and_not_on_the_order_of_arrival() -> None:
    assert draws(seed=1) == draws(seed=1, order=(2, 0, 1))
    assert not set(draws(seed=1)[0].values()) & set(draws(seed=2)[0].values())
