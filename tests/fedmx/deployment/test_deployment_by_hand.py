"""Both ends built in Python without an experiment file; clients that learn one; refusals."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Client, Experiment, OwnPart, RemoteClients, Server, SimulatedClients
from fedmx.client.client import ServerRefusedError
from fedmx.deployment.names import identity
from fedmx.protocol.messages import CODEC, Setup
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.data.dataset import Samples
from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Compute
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.logic import (
    ClientContext,
    ClientFailed,
    ClientSide,
    Hook,
    Logic,
    Question,
    Training,
    Update,
)
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.errors import PartFailed
from layers.logic.round.exchange import ReportCosts
from layers.logic.selectors.uniform import Uniform
from layers.network import Backoff, Connector, Listener
from tests.fedmx.scripted import Least, compute, listening, tiny
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates

CLIENTS = 3


@dataclass(frozen=True)
class Count(Hook):
    """Adds what the client remembers to what it sends; raises in round `raises`."""

    raises: int = 0

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            THREADS.add(threading.get_ident())
            if context.round == self.hook.raises and context.client == 1:
                raise KeyError("what the user forgot")
            times = context.memory.get("times", 0) + 1
            context.keep(times=times)
            return replace(update, delta=update.delta * np.float32(1 + times / 8))


THREADS: set[int] = set()


def samples_of(client: int) -> Samples:
    rng = np.random.default_rng(client)
    number = 8 + client
    return Samples(rng.random((number, 4), dtype=np.float32), rng.integers(0, 3, number))


def logic(*hooks: Hook, selector: Selector | None = None) -> Logic:
    training = Training(epochs=2, batch_size=4, learning_rate=0.1)
    layout = compute().engine.layout
    who = selector or Uniform(1.0)
    return Logic(layout, selector=who, hooks=hooks, training=training, seed=11)


@dataclass(frozen=True)
class InTurn(Selector):
    """Two lanes: one of two clients, one of one."""

    def run(self, round: OpenRound) -> Run[None]:
        round.train_lane([0, 2])
        round.train(1)
        yield from round.until_all()


@dataclass(frozen=True)
class Asking(Uniform):
    """Everybody, after two questions."""

    asks = (Question("labels", classes=3), Question("step", learning_rate=0.1))

    def run(self, round: OpenRound) -> Run[None]:
        for question in self.asks:
            yield from round.ask(question, once=True)
        yield from super().run(round)


def deployed(
    certificates: Certificates, last: int, *hooks: Hook, selector: Selector | None = None
) -> Server:
    listener = Listener("127.0.0.1:0", CODEC, tls=certificates.server)
    return Server(
        network=RemoteClients(listener, wait_for=CLIENTS),
        logic=logic(*hooks, selector=selector),
        compute=compute(),
        last_round=last,
    )


def simulated(last: int, *hooks: Hook, selector: Selector | None = None) -> Server:
    numbers = {client: len(samples_of(client)) for client in range(CLIENTS)}
    same = logic(*hooks, selector=selector)
    clients = SimulatedClients(
        SerialExecutor(same, MXNetEngine(tiny, (4,), 3), samples_of), numbers
    )
    return Server(network=clients, logic=same, compute=compute(), last_round=last)


class Running:
    """A client of the real kind in a thread."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.reason = ""
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="client")
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.client as client:
                self.reason = client.run()
        except Exception as error:  # noqa: BLE001, tests look at it
            self.error = error

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def connector(certificates: Certificates, address: str, client: int, **more: Any) -> Connector:
    name = identity(client)
    return Connector(address, name, CODEC, tls=certificates.client(name), **more)


@contextlib.contextmanager
def clients_of(
    server: Server, certificates: Certificates, *hooks: Hook
) -> Iterator[Sequence[Running]]:
    running = [
        Running(
            Client(
                network=connector(certificates, server.address, client),
                logic=logic(*hooks),
                compute=Compute(MXNetEngine(tiny, (4,), 3), samples_of(client)),
            )
        )
        for client in range(CLIENTS)
    ]
    try:
        yield running
    finally:
        server.finish("the test is over")
        for one in running:
            one.end()


@pytest.mark.parametrize(
    "selector", [Uniform(0.7), InTurn(), Asking(1.0), Least(2)], ids=lambda one: type(one).__name__
)
def test_ends_built_by_hand_end_in_the_bytes_of_a_simulation(
    certificates: Certificates, selector: Selector
) -> None:
    server = deployed(certificates, 3, Count(), selector=selector)
    with server, clients_of(server, certificates, Count()) as clients:
        rounds = list(server.rounds())
        for one in clients:
            one.end()
    alone = simulated(3, Count(), selector=selector)
    for over_sockets, at_home in zip(rounds, alone, strict=True):
        assert timeless(over_sockets.client_records()) == timeless(at_home.client_records())
        assert over_sockets.accuracy == at_home.accuracy
    assert server.weights.tobytes() == alone.weights.tobytes()
    assert [one.reason for one in clients] == ["all 3 rounds were run"] * CLIENTS


def test_a_loop_that_is_left_can_be_entered_again(certificates: Certificates) -> None:
    server = deployed(certificates, 4, Count())
    with server, clients_of(server, certificates, Count()):
        for round in server.rounds():
            if round.round == 2:
                break
        assert server.state.round == 2
        assert server.evaluate()["accuracy"] == round.accuracy
        assert [round.round for round in server.rounds()] == [3, 4]
    alone = simulated(4, Count())
    list(alone)
    assert server.weights.tobytes() == alone.weights.tobytes()


def test_who_leaves_the_loop_can_let_the_clients_go(certificates: Certificates) -> None:
    server = deployed(certificates, 9)
    with server, clients_of(server, certificates) as clients:
        next(server.rounds())
        server.finish("enough")
        for one in clients:
            one.end()
        assert [one.reason for one in clients] == ["enough"] * CLIENTS


def test_a_hook_that_raises_on_a_client_has_its_traceback(certificates: Certificates) -> None:
    server = deployed(certificates, 3, Count(raises=2))
    with server, clients_of(server, certificates, Count(raises=2)):
        rounds = list(server.rounds())
    assert [round.participants for round in rounds] == [(0, 1, 2), (0, 2), (0, 1, 2)]
    (line,) = [line for line in rounds[1].client_records() if line["client"] == 1]
    assert (line["round"], line["status"]) == (2, "lost")
    assert line["reason"] == "KeyError: 'what the user forgot'"
    assert "in send" in line["traceback"]
    assert "test_deployment_by_hand.py" in line["traceback"]


def test_in_a_simulation_the_exception_of_a_hook_comes_out_in_the_callers_thread() -> None:
    THREADS.clear()
    simulation = simulated(3, Count(raises=2))
    rounds = iter(simulation)
    assert next(rounds).participants == (0, 1, 2)
    with pytest.raises(ClientFailed, match="client 1, round 2: KeyError") as caught:
        next(rounds)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.args == ("what the user forgot",)
    assert threading.get_ident() in THREADS
    assert len(THREADS) == 1
    # Nothing of the round that failed is left: it can be run again.
    assert simulation.state.round == 1
    with pytest.raises(ClientFailed):
        next(iter(simulation))


def test_a_simulation_goes_on_after_a_round_that_failed_as_if_it_had_not() -> None:
    undisturbed = simulated(3, Count())
    list(undisturbed)
    simulation = simulated(3, Count())
    rounds = iter(simulation)
    next(rounds)
    aggregator = simulation.logic.aggregator
    add, failing = type(aggregator).add, [True]

    def fails_once(self: Any, *given: Any) -> Any:
        if failing:
            raise ArithmeticError(failing.pop())
        return add(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(aggregator), "add", fails_once)
        with pytest.raises(PartFailed, match="failed: ArithmeticError"):
            next(rounds)
        second, third = simulation
    assert second.participants == third.participants == (0, 1, 2)
    assert second.report.of("rejected") == ()
    assert simulation.weights.tobytes() == undisturbed.weights.tobytes()


# --- clients that learn what the run is ---------------------------------------------------------

LEARNED = """
rounds: 1
clients: 1
compute: {model: 2nn, data: digits, train: {steps: 1}}
"""


def offered(
    certificates: Certificates, text: str, run: str = "run", digest: str = "", **source: Any
) -> RemoteClients:
    """A listener that tells its clients of an experiment."""
    experiment = Experiment.parse(text, **source)
    digest = digest or experiment.digest()
    setup = Setup(run, experiment.to_yaml(), digest, 0, (1, 8, 8), Targets("classes", 10))
    return RemoteClients(Listener("127.0.0.1:0", CODEC, tls=certificates.server), setup, clients=1)


def refusal(
    clients: RemoteClients, certificates: Certificates, memory: Path, own: OwnPart
) -> tuple[str, str]:
    """Return why a client cannot take part, as it and its server say."""
    with clients:
        network = connector(certificates, clients.address, 0)
        running = Running(Client(network, learn=own.learn, memory=memory))
        while running._thread.is_alive():
            clients._sessions.next_event(0.1)
        clients._sessions.poll()
    assert running.error is not None
    (told,) = clients.exchange([ReportCosts()])[0].overhead.rejected_connections
    return str(running.error), told


def test_a_client_refuses_what_it_does_not_have_or_allow(
    certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "mine_only.py").write_text(
        "from dataclasses import dataclass\nfrom layers.logic import Hook\n"
        "@dataclass(frozen=True)\nclass Mine(Hook):\n    pass\n"
    )
    text = LEARNED + 'logic: {hooks: ["mine_only:Mine"]}\n'
    clients = offered(certificates, text, folder=tmp_path, modules=["mine_only"])
    here, told = refusal(clients, certificates, tmp_path, OwnPart(modules=()))
    assert "mine_only" in here
    assert "which is not allowed here" in here
    assert "\n" not in here
    assert told == f"client 0: cannot take part: {here}"


def test_a_client_refuses_an_experiment_that_reads_differently_here(
    certificates: Certificates, tmp_path: Path
) -> None:
    clients = offered(certificates, LEARNED, digest="another")
    here, told = refusal(clients, certificates, tmp_path, OwnPart())
    assert "experiment differently than the server" in here
    assert here in told


def test_a_run_is_not_named_like_a_path_into_a_clients_files(
    certificates: Certificates, tmp_path: Path
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    clients = offered(certificates, LEARNED, run="../../evil")
    here, _ = refusal(clients, certificates, memory, OwnPart())
    assert "'../../evil', which is no run's name" in here
    assert [path.name for path in tmp_path.rglob("*")] == ["memory"]


def test_a_client_gives_up_when_it_was_told_to(certificates: Certificates) -> None:
    server = listening(certificates)
    with server:
        address = server.address
    network = connector(certificates, address, 0, give_up_s=0.05, backoff=Backoff(0.01))
    with (
        pytest.raises(ServerRefusedError, match=address),
        Client(network, logic(), compute()) as one,
    ):
        one.run()


def test_a_client_learns_anew_if_another_run_has_the_address(certificates: Certificates) -> None:
    learned: list[str] = []

    def learn(setup: Setup) -> tuple[Logic, Compute]:
        learned.append(setup.run)
        return logic(), Compute(MXNetEngine(tiny, (4,), 3), samples_of(0))

    first = listening(certificates, last=9, wait_for=1)
    with first:
        address = first.address
        quick = Backoff(0.01, longest_s=0.05)
        running = Running(Client(connector(certificates, address, 0, backoff=quick), learn=learn))
        next(first.rounds())
    again = RemoteClients(Listener(address, CODEC, tls=certificates.server))
    second = Server(again, first.logic, compute())
    with second:
        (round,) = second.rounds()
        running.end()
    assert round.participants == (0,)
    assert len(set(learned)) == 2
    assert running.reason == "the one round was run"
