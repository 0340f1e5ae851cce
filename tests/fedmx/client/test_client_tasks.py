"""What a deployed client does with one message after the other, without a network."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from fedmx.cli.deploy import take_part
from fedmx.client.client import Client
from fedmx.client.participant import ClientMemory, Participant
from fedmx.errors import FedmxError
from fedmx.protocol.messages import CannotTakePart, Failed, Ready, Setup
from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Compute
from layers.logic import (
    Answer,
    ClientLedger,
    ClientState,
    Offer,
    Question,
    Task,
    Training,
    Update,
    Verdict,
)
from layers.network import Connected, Received
from tests.logic.memory_carrier import a_logic, alone
from tests.logic.quadratic import QuadraticEngine, bowl


class NoNetwork:
    """A connector to which nothing comes, and that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def next_event(self, timeout_s: float | None = None) -> None:
        return None

    def send(self, message: Any) -> None:
        self.sent.append(message)


def a_client() -> tuple[Any, NoNetwork]:
    network: Any = NoNetwork()
    logic = a_logic(alone(4))
    compute: Any = Compute(QuadraticEngine(3), bowl([1.0, 2, 3]))
    client: Any = Client(network, logic, compute)
    client._participant = Participant(4, logic, compute, ClientLedger())
    return client, network


def a_task(client: int = 4, round: int = 2, offer: bool = False, model: bool = True) -> Task:
    weights = np.zeros(3, np.float32)
    task = Task(round, client, 0, Training(), weights, np.zeros(1, np.float32), offer=offer)
    return task if model else task.without_vectors()


def kinds(network: NoNetwork) -> list[type]:
    return [type(message) for message in network.sent]


@pytest.mark.parametrize("given", ["", "logic", "compute"])
def test_a_client_without_its_logic_or_its_compute_must_be_able_to_learn_both(given: str) -> None:
    known, _ = a_client()
    parts: Any = {name: getattr(known, name) for name in given.split()}
    with pytest.raises(FedmxError, match="logic and compute"):
        Client(known.network, **parts)
    learned = Client(known.network, **parts, learn=lambda setup: (known.logic, known.compute))
    learned._handle_message(Setup("run", "", "", 4, (3,), Targets("classes", 2)))
    assert (learned.logic, learned.compute) == (known.logic, known.compute)
    assert known.network.sent == [Ready("run", 4, 10, ())]


def test_a_task_for_another_client_ends_this_one() -> None:
    client, network = a_client()
    with pytest.raises(FedmxError, match="a task for client 5 came to client 4"):
        client._handle_message(a_task(client=5))
    assert network.sent == []


def test_messages_before_the_setup_are_ignored() -> None:
    client, network = a_client()
    client._participant = None
    assert client._handle_message(a_task()) is None
    assert network.sent == []


def test_an_offer_goes_up_first_and_the_update_when_it_is_granted() -> None:
    client, network = a_client()
    assert client._handle_message(a_task(offer=True)).round == 2
    assert kinds(network) == [Offer]
    client._handle_message(Verdict(1, 4, granted=True))
    client._handle_message(Verdict(2, 4, granted=False))
    assert kinds(network) == [Offer]
    client._handle_message(Verdict(2, 4, granted=True))
    assert kinds(network) == [Offer, Update]


def test_an_answer_that_leaves_the_memory_of_hooks_as_it_was_is_not_saved() -> None:
    client, network = a_client()
    kept: list[ClientLedger] = []
    client._participant.keep = kept.append
    client._handle_message(Question("labels", classes=3, round=2))
    assert kinds(network) == [Answer]
    assert kept == []
    client._handle_message(a_task())
    assert [ledger.pending.round for ledger in kept] == [2]


def test_a_grant_before_any_training_sends_nothing() -> None:
    client, network = a_client()
    client._handle_message(Verdict(2, 4, granted=True))
    assert network.sent == []


def test_a_task_of_an_earlier_round_is_answered_with_the_update_that_is_there() -> None:
    client, network = a_client()
    client._handle_message(a_task())
    client._handle_message(a_task(model=False))
    assert kinds(network) == [Update, Update]
    client._handle_message(a_task(round=1, model=False))
    assert kinds(network) == [Update, Update, Failed]
    assert network.sent[-1].reason == "started again after round 1, whose update is lost"


def test_the_same_task_again_is_not_trained_again() -> None:
    client, _ = a_client()
    first = client._handle_message(a_task())
    assert client._handle_message(a_task()) is first
    assert client._handle_message(a_task(round=3)) is not first


@pytest.mark.parametrize(
    ("verdict", "declined"),
    [
        (Verdict(2, 4, granted=False), True),
        (Verdict(2, 4, granted=True), False),
        (Verdict(1, 4, granted=False), False),
        (Verdict(1, 4, granted=True), False),
    ],
)
def test_an_update_that_was_declined_during_training_is_not_sent(verdict, declined) -> None:
    client, network = a_client()
    waiting = [Received("server", verdict, 10)]
    network.next_event = lambda timeout_s=None: waiting.pop() if waiting else None
    client._handle_message(a_task())
    assert kinds(network) == ([] if declined else [Update])


def test_a_later_pass_of_a_round_is_another_task_and_its_update_says_so() -> None:
    client, network = a_client()
    first = client._handle_message(a_task())
    again = replace(a_task(), last_accepted_round=2, pass_number=2)
    second = client._handle_message(again)
    assert (first.pass_number, second.pass_number) == (1, 2)
    assert client._handle_message(again) is second, "asked again after it has come back"
    assert network.sent == [first, second, second]
    assert client._participant.ledger.passed.pass_number == 1


class Flooding(NoNetwork):
    """A connector whose server goes on sending tasks and questions, and never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def next_event(self, timeout_s: float | None = None) -> Any:
        if self.given >= 10_000:
            return None
        self.given += 1
        if self.given % 100 == 0:
            return Received("server", Verdict(self.given, 4, granted=False), 1)
        message = Question("loss") if self.given % 2 else a_task(round=self.given)
        return Received("server", message, 1)


def test_of_what_a_server_sends_without_waiting_a_client_keeps_little() -> None:
    client, _ = a_client()
    client.network = network = Flooding()
    while network.given < 10_000:
        client._poll()
        waiting = [type(event.message) for event in client._events]
        assert waiting.count(Task) <= 1
        assert waiting.count(Question) <= 1
        assert waiting.count(Verdict) > 1, "a later task does not replace them"
        assert len(waiting) <= 64
        client._events.popleft()


def test_a_task_that_arrives_after_a_later_one_is_not_carried_out() -> None:
    client, network = a_client()
    waiting = deque(
        [
            Received("server", a_task(round=3), 10, number=7),
            Received("server", a_task(round=2), 10, number=6),  # it was large, and sent before
            Connected("server", True),
            Received("server", a_task(round=2), 10, number=1),  # the server has stepped back
        ]
    )
    network.next_event = lambda timeout_s=None: waiting.popleft() if waiting else None
    seen = [client._next_event(0.0) for _ in range(3)]
    assert [getattr(getattr(one, "message", None), "round", None) for one in seen] == [3, None, 2]
    assert client._next_event(0.0) is None


@pytest.mark.parametrize("in_folder", [True, False])
def test_a_client_keeps_its_memory_for_its_run_and_writes_it_if_it_has_a_folder_and_any(
    in_folder: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "memory" if in_folder else None
    memory = ClientMemory(folder, "run", 4)
    empty = ClientLedger()
    memory.keep(empty)
    assert memory.load() is empty
    assert list(tmp_path.iterdir()) == []
    ledger = ClientLedger(pending=ClientState(3, {"hook": {"count": 2}}))
    memory.keep(ledger)
    assert memory.load() is ledger
    found = ClientMemory(folder, "run", 4).load()
    assert found.tree() == (ledger if in_folder else empty).tree()
    assert ClientMemory(folder, "run", 5).load().tree() == empty.tree()
    memory.discard()
    assert memory.load().tree() == empty.tree()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("failed", "updates", "code"), [(2, 0, 5), (0, 0, 0), (2, 1, 0)])
def test_a_client_that_only_failed_ends_with_a_code_of_its_own(
    failed: int, updates: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    client, network = a_client()
    network.traffic = lambda: SimpleNamespace(sent_bytes=1, received_bytes=1)
    client.failed = failed
    made = [Update(1, 4, 3, 2, np.zeros(3, np.float32), np.zeros(1, np.float32))] * updates
    client.updates = lambda: iter(made)
    try:
        take_part(client)
        ended = 0
    except typer.Exit as exit:
        ended = exit.exit_code
    assert ended == code
    assert ("no update" in capsys.readouterr().err) == (code == 5)


@pytest.mark.parametrize("text", ["/home/me/x.npz: is none", "no '/home/m e/x.npz'", "~me/a/x.npz"])
def test_no_folder_of_this_machine_is_in_a_reason_that_is_sent(text: str) -> None:
    client, network = a_client()

    def fail(*given: Any) -> Any:
        raise FedmxError(text)

    client._participant.train = fail
    client._handle_message(a_task())
    client._participant, client._setup = None, None
    client.learn, client._learns = fail, True
    with pytest.raises(FedmxError, match=r"x\.npz"):
        client._handle_message(Setup("run", "", "", 4, (3,), Targets("classes", 2)))
    assert kinds(network) == [Failed, CannotTakePart]
    failed, cannot = network.sent
    assert "x.npz" in failed.reason
    assert "x.npz" in cannot.reason
    folders = (str(Path(__file__).parent), "/home", "~me")
    told = (failed.reason, failed.traceback, cannot.reason)
    assert not [one for one in folders for text in told if one in text]
