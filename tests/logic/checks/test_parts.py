"""A mistake in a part is named when the logic is built, with what to write and where."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from layers.logic import (
    AGGREGATORS,
    HOOKS,
    PRESETS,
    SELECTORS,
    Aggregator,
    ClientSide,
    Hook,
    LogicError,
    Selector,
    ServerSide,
)
from layers.logic.aggregators.mean import Mean
from layers.logic.checks.parts import check_part, possible_mistakes
from layers.logic.core.declaration import Trait
from layers.logic.core.trainer import LocalSgd, Trainer
from tests.logic.memory_carrier import a_logic, alone

HERE = re.escape(str(Path(__file__).resolve()))


def hook_of(server: type = ServerSide, client: type = ClientSide) -> Hook:
    class Made(Hook):
        Server = server
        Client = client

    return Made()


class Recieves(ServerSide):
    def recieve(self, update, context):
        return update


class CamelCase(ServerSide):
    def onAccepted(self, update, context):  # noqa: N802
        raise AssertionError("nobody calls it")


class Corrects(ServerSide):
    def gradient(self, gradient, weights, context):
        raise AssertionError("nobody calls it")


class Aggregates(ClientSide):
    def conclude(self, state, context):
        return state


class WithoutContext(ServerSide):
    def receive(self, update):
        return update


class Generates(ClientSide):
    def send(self, update, context):
        yield update


class OnTheHook(Hook):
    def receive(self, update, context):
        return update


class Forgotten(Hook):
    alpha: float = 0.1

    def check(self, logic):
        assert self.alpha


class ByHand(Hook):
    def __init__(self, beta=0.1):
        self.beta = beta


@dataclass
class Changing(Hook):
    gamma: float = 0.1

    def check(self, logic):
        assert self.gamma


class SaysYes(Hook):
    def share_sent(self):
        return 0.1


class NoServer(Hook):
    def server(self):
        ServerSide(self)


class NoHalf(Hook):
    def server(self):
        return self.nothing


class ClassAsHalf(Hook):
    def client(self):
        return ClientSide


class NoSide(Hook):
    class Client:
        pass


class SideOfTheOtherEnd(Hook):
    class Server(ClientSide):
        pass


class SideAsMaker(Hook):
    class client(ClientSide):  # noqa: N801
        pass


class WithoutHook(ClientSide):
    def __init__(self, hook):
        self.sum = 0


class Selects(Selector):
    def select(self, clients, rng):
        return [0]


class Calls(Selector):
    def run(self, round):
        round.train(0)


class Finishes(Mean):
    def finnish(self, total, state):
        return state


class Trains(Trainer):
    def train(self, task, engine, data):
        return engine.train(data, task.training, task.seed)


class Encodes(Hook):
    provide = frozenset()


class Mixed(Hook):
    requires = frozenset({Trait.ROBUST})


class Stranger:
    pass


MISTAKES = {
    "misspelt": (
        hook_of(Recieves),
        "Recieves.recieve is not a hook method; did you mean 'receive'?",
    ),
    "another case": (
        hook_of(CamelCase),
        "CamelCase.onAccepted is not a hook method; did you mean 'on_accepted'?",
    ),
    "of the other half": (
        hook_of(Corrects),
        "Corrects.gradient is a method of a client side, and Corrects is a server side: fedmx "
        "never calls it; move it",
    ),
    "of the server": (
        hook_of(client=Aggregates),
        "Aggregates.conclude is a method of a server side, and Aggregates is a client side",
    ),
    "on the hook": (
        OnTheHook(),
        "OnTheHook.receive is a method of a server side or a client side, and OnTheHook is a hook",
    ),
    "without context": (
        hook_of(WithoutContext),
        "WithoutContext.receive takes (self, update), and is called with (update, context); write "
        "def receive(self, update, context)",
    ),
    "generator": (
        hook_of(client=Generates),
        "Generates.send is a coroutine or a generator, so a call runs nothing",
    ),
    "no dataclass": (
        Forgotten(),
        "Forgotten has the settings alpha, which are not the fields of a frozen dataclass",
    ),
    "own init": (ByHand(), "ByHand has the settings beta, which are not the fields of a frozen"),
    "not frozen": (Changing(), "Changing has the settings gamma, which are not the fields of a"),
    "no property": (
        SaysYes(),
        "SaysYes.share_sent is a method, which counts as true whatever it returns; write "
        "@property above it",
    ),
    "misspelt attribute": (
        Encodes(),
        "Encodes.provide is not a hook attribute; did you mean 'provides'?",
    ),
    "no half": (
        NoServer(),
        "NoServer.server() returned None; it must return an object of a class derived from",
    ),
    "a half that cannot be made": (
        NoHalf(),
        "NoHalf.server() failed: AttributeError: 'NoHalf' object has no attribute 'nothing'",
    ),
    "no side": (
        NoSide(),
        "NoSide.Client must be a class derived from fedmx.ClientSide; write class "
        "Client(ClientSide): ... in NoSide",
    ),
    "an object as a side": (
        hook_of(Recieves(Hook())),
        "Made.Server must be a class derived from fedmx.ServerSide; write class "
        "Server(ServerSide): ... in Made",
    ),
    "a side of the other end": (
        SideOfTheOtherEnd(),
        "SideOfTheOtherEnd.Server must be a class derived from fedmx.ServerSide",
    ),
    "a side in place of its maker": (
        SideAsMaker(),
        "SideAsMaker.client is the method that makes the side, and not the side; write class "
        "Client(ClientSide): ... in SideAsMaker",
    ),
    "without its hook": (
        hook_of(client=WithoutHook),
        "WithoutHook does not know its hook; begin its __init__(self, hook) with "
        "super().__init__(hook)",
    ),
    "class as half": (ClassAsHalf(), "ClassAsHalf.client() returned the class ClientSide; it must"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_hook_is_named_with_its_file_and_line(name: str) -> None:
    hook, said = MISTAKES[name]
    with pytest.raises(LogicError, match=rf"{re.escape(said)}.* \({HERE}:\d+\)$"):
        a_logic(alone(0), hooks=[hook])


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"selector": Selects()},
            "Selects.select takes (self, clients, rng), and is called with (round)",
        ),
        ({"selector": Calls()}, "Calls.run waits for nothing; write yield from"),
        (
            {"aggregator": Finishes()},
            "Finishes.finnish is not an aggregator method; did you mean 'finish'?",
        ),
        ({"hooks": [Mixed()]}, "Mixed.requires must be a set of fedmx.Need"),
        (
            {"trainer": Trains()},
            "Trains.train takes (self, task, engine, data), and is called with",
        ),
        ({"trainer": "sgd"}, "'sgd' is not a trainer"),
        (
            {"hooks": [Stranger()]},
            "an object of Stranger is not a hook; it must be an instance of a class derived from",
        ),
        ({"hooks": [Stranger]}, "is not a hook; it must be an instance of a class derived from"),
        ({"hooks": [Mixed]}, "Mixed is not a hook but a class; make an object of it: Mixed()"),
    ],
)
def test_a_mistake_in_another_part_is_named(parts, said: str) -> None:
    with pytest.raises(LogicError, match=re.escape(said)):
        a_logic(parts.pop("selector", alone(0)), **parts)


@dataclass(frozen=True)
class Strict(Hook):
    """Refuses its settings when a side is made."""

    share: float = 2.0

    def server(self) -> ServerSide:
        raise LogicError(f"share must be at most 1, not {self.share}")


def test_a_hook_that_refuses_its_own_settings_says_it_in_its_own_words() -> None:
    with pytest.raises(LogicError, match=r"^share must be at most 1, not 2\.0$"):
        a_logic(alone(0), hooks=[Strict()])


class Passing(Hook):
    class Server(ServerSide):
        """Its own methods have other names, and it calls them."""

        def receive(self, update, context):
            return self.received(update)

        def received(self, update):
            return update

        def unused_helper(self):
            return 1


@dataclass(frozen=True)
class Settled(Mean):
    """A setting of the framework's own class, and one with a default of its own."""

    least_updates: int = 0
    log: list = field(default_factory=list)

    def add(self, total, contribution):
        self.log.append(contribution.lane)
        return super().add(total, contribution)

    def weight(self, contribution):
        return 1.0


def test_a_helper_with_a_public_name_is_doubted_and_not_refused() -> None:
    hook = Passing()
    check_part(hook)
    doubts = list(possible_mistakes([hook, Settled(), alone(0)]))
    assert [one.split()[0] for one in doubts] == [
        "Passing.Server.received",
        "Passing.Server.unused_helper",
    ]
    check_part(Settled())


def test_every_part_of_fedmx_has_its_halves_and_nothing_to_doubt() -> None:
    parts: list = [LocalSgd()]
    for table in (HOOKS, SELECTORS, AGGREGATORS):
        for make in table.values():
            try:
                parts.append(make())
            except TypeError:  # a setting without a default
                continue
    for preset in PRESETS.values():
        try:
            made = preset()
        except (TypeError, LogicError):  # as above
            continue
        parts += [made.selector, made.aggregator, *made.hooks]
    assert len(parts) > 40
    for part in parts:
        check_part(part)
    assert list(possible_mistakes(parts)) == []
    assert any(isinstance(part, Aggregator) for part in parts)
