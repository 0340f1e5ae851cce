"""No single client stalls a run, and no pause of the server ends one."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from fedmx.deployment import membership, remote_clients
from fedmx.deployment.remote_clients import TooFewClients
from layers.logic import TooFewUpdates
from layers.logic.round import patience as limits
from layers.logic.round.patience import Patience
from layers.network import revoke
from tests.fedmx.scripted import (
    Over,
    Scripted,
    after_one_round,
    fleet,
    honest,
    listening,
    update_of,
)
from tests.network.conftest import Authority, Certificates

NAN = float("nan")


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derived limits of a second, so that the tests do not take minutes."""
    monkeypatch.setattr(limits, "LEAST_S", 2.0)
    monkeypatch.setattr(limits, "QUORUM_LEAST_S", 1.0)


def come_back(client: Scripted) -> None:
    """Connect and be ready, also if the server ends the new connection, too."""
    while not (client.told or client.stopping):
        with contextlib.suppress(Over, OSError):
            client.connect()
            client.be_ready()
            return


def silent(client: Scripted) -> None:
    """Take each task, answer none, and come back whenever it is given up."""
    while not client.told:
        try:
            client.task()
            client.until_told()
        except (Over, OSError):
            if client.stopping:
                return
            come_back(client)


def flapping(client: Scripted) -> None:
    """Take each task, cut the connection and return at once."""
    while not client.told:
        with contextlib.suppress(Over, OSError):
            client.task()
            client.hang_up()
        if client.stopping:
            return
        come_back(client)


@pytest.mark.parametrize("attack", [silent, flapping])
def test_a_client_that_comes_back_to_stall_is_suspended_for_longer_and_longer(
    certificates: Certificates, short_limits: None, attack: object
) -> None:
    server = listening(certificates, last=20, wait_for=3, patience=Patience(10.0))
    with server, fleet(server, certificates, {0: honest, 1: honest, 2: attack}):  # type: ignore[dict-item]
        rounds = list(server.rounds())
    stalled = [round.round for round in rounds if 2 in round.report.of("lost")]
    assert stalled[:2] == [1, 2]
    assert len(stalled) == 2
    suspended_s = [round.report.suspended.get(2, 0.0) for round in rounds]
    assert suspended_s[1] > limits.SUSPENDED_TIMES * limits.QUORUM_LEAST_S * 0.9
    assert suspended_s[1:] == sorted(suspended_s[1:], reverse=True)
    assert rounds[2].record()["suspended"] == {"2": suspended_s[2]}
    assert all(round.participants == (0, 1) for round in rounds)


def test_a_suspended_client_that_answers_again_is_as_any_other(
    certificates: Certificates, short_limits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SUSPENDED_TIMES", 0.1)
    over = threading.Event()

    def twice_silent(client: Scripted) -> None:
        for _ in range(2):
            try:
                client.task()
                client.until_told()
            except (Over, OSError):
                come_back(client)
        honest(client)

    def patient(client: Scripted) -> None:
        while True:
            task = client.task()
            client.say(update_of(task))
            if task.round > 2 and not over.wait(0.05):
                continue

    server = listening(certificates, last=400, wait_for=2, patience=Patience(10.0))
    with server, fleet(server, certificates, {0: patient, 1: twice_silent}):
        back = next(round for round in server.rounds() if round.participants == (0, 1))
        assert back.round > 2
        assert not back.report.suspended
        over.set()


def test_a_suspension_ends_when_the_round_would_have_too_few_clients(
    certificates: Certificates, short_limits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def thrice(client: Scripted) -> None:
        while not (client.stopping or client.told):
            try:
                task = client.task()
                attempts.append(task.round)
                if len(attempts) > 3:  # on a busy machine it may be given up once more
                    client.say(update_of(task))
                else:
                    client.until_told()
            except (Over, OSError):
                if not client.told:
                    come_back(client)

    monkeypatch.setattr(remote_clients, "FIRST_PAUSE_S", 0.1)
    server = listening(certificates, last=2, wait_for=1, patience=Patience(limit_s=1.0))
    with server, fleet(server, certificates, {0: thrice}):
        rounds = list(server.rounds())
    assert [round.participants for round in rounds] == [(0,), (0,)]
    assert attempts[:4] == [1, 1, 1, 1]


def broken(client: Scripted) -> None:
    task = client.task()
    client.say(update_of(task, delta=task.weights * NAN))


def broken_once(client: Scripted) -> None:
    broken(client)
    honest(client)


def test_a_round_with_too_few_updates_is_run_again_and_says_so(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    server = listening(certificates, wait_for=1)
    model = server.weights.copy()
    with server, fleet(server, certificates, {0: broken_once}) as clients:
        (first,) = server.rounds()
    assert first.participants == (0,)
    assert (server.weights == after_one_round(model, (0,))).all()
    assert [task.round for task in clients[0].tasks] == [1, 1]
    assert any("0 of the 1" in text and "again" in text for text in caplog.messages)


def test_the_status_names_the_missing_clients_while_a_round_waits_to_be_run_again(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = threading.Event()

    def broken_and_honest(client: Scripted) -> None:
        broken(client)
        broke.set()
        honest(client)

    monkeypatch.setattr(remote_clients, "FIRST_PAUSE_S", 60.0)  # only a client that joins ends it
    server = listening(certificates, wait_for=1, number=2)
    with server, fleet(server, certificates, {0: broken_and_honest}):
        running = threading.Thread(target=lambda: list(server.rounds()))
        running.start()
        assert broke.wait(60)
        ends = time.monotonic() + 60
        while server.network.now().waiting_for != "clients" and time.monotonic() < ends:  # type: ignore[attr-defined]
            time.sleep(0.01)
        now = server.network.now()  # type: ignore[attr-defined]
        with fleet(server, certificates, {1: honest}):
            running.join(60)
            assert not running.is_alive()
    assert (now.waiting_for, now.waited_for) == ("clients", (1,))


def test_an_operator_can_limit_how_long_a_run_waits_for_updates(certificates: Certificates) -> None:
    def always_broken(client: Scripted) -> None:
        while True:
            broken(client)

    server = listening(certificates, wait_for=1, wait_limit_s=1.5)
    with server, fleet(server, certificates, {0: always_broken}) as clients:
        with pytest.raises(TooFewUpdates):
            list(server.rounds())
        assert len(clients[0].tasks) >= 2


def test_an_operator_can_limit_how_long_a_run_waits_for_clients(certificates: Certificates) -> None:
    def leaves(client: Scripted) -> None:
        client.say(update_of(client.task()))
        client.task()
        client.hang_up()

    server = listening(certificates, last=3, wait_for=1, rejoin_s=0.2, wait_limit_s=0.5)
    with (
        server,
        fleet(server, certificates, {0: leaves}),
        pytest.raises((TooFewClients, TooFewUpdates)),
    ):
        list(server.rounds())
    assert server.state.round == 1


def test_a_run_goes_on_when_its_only_ready_client_is_revoked_while_another_joins(
    tmp_path: object,
) -> None:
    authority = Authority(tmp_path)  # type: ignore[arg-type]
    authority.client("client-1")
    busy, revoked = threading.Event(), threading.Event()

    def holds(client: Scripted) -> None:
        client.task()
        busy.set()
        client.until_told()

    def joins(client: Scripted) -> None:
        assert revoked.wait(60)
        honest(client)

    server = listening(authority, wait_for=1)
    with server, fleet(server, authority, {0: holds}) as first:
        rounds: list[object] = []
        running = threading.Thread(target=lambda: rounds.extend(server.rounds()))
        running.start()
        assert busy.wait(60)
        revoke(authority.folder, [authority.folder / "client-0.pem"])
        first[0].wait()
        revoked.set()
        with fleet(server, authority, {1: joins}):
            running.join(60)
            assert not running.is_alive()
    (round,) = rounds
    assert round.participants == (1,)  # type: ignore[attr-defined]


def test_no_client_is_given_up_for_a_jump_of_the_clock_or_a_pause_of_the_server(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = [0.0]
    jumping = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0])
    monkeypatch.setattr(membership, "time", jumping)

    def sees_a_jump(client: Scripted) -> None:
        task = client.task()
        time.sleep(0.7)  # the server's loop runs before and after
        ahead_s[0] += 3600.0
        time.sleep(0.7)
        client.say(update_of(task))
        honest(client)

    def cut_during_a_jump(client: Scripted) -> None:
        client.task()
        client.hang_up()
        time.sleep(0.9)
        client.connect()
        client.be_ready()
        honest(client)

    server = listening(certificates, wait_for=2, rejoin_s=30.0, patience=Patience(limit_s=30.0))
    with server, fleet(server, certificates, {0: sees_a_jump, 1: cut_during_a_jump}):
        (first,) = server.rounds()
    assert first.participants == (0, 1)
