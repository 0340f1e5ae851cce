"""Secure sums over mutual TLS: clients are killed in each phase, and servers and clients lie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, FedmxError, RunFolder, recorded, serve
from fedmx.history import pack, replay, rerun
from fedmx.run import gather_facts
from layers.logic.errors import LogicError
from layers.logic.privacy import secure_sum
from layers.logic.privacy.secure_sum import MaskedSum
from layers.logic.secure_sum.peer import Peer
from tests.fedmx.fleet import Fleet
from tests.fedmx.recorded_runs import no_page
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 9
THIRD = (0, 4, 8)
OTHERS = (1, 2, 3, 5, 6, 7)
EVERYBODY = tuple(range(CLIENTS))
KEYS, SHARES, CONFIRMING, OPENING, TASK = 1, 2, 3, 4, 0
"""The steps of a round: the numbers of its questions, and the task."""


def experiment(certificates: Certificates | None = None, **changed: Any) -> Experiment:
    tree = {
        "name": "sums",
        "rounds": 1,
        "clients": CLIENTS,
        "compute": {
            "model": "logistic",
            "data": "digits",
            "normalise": {"scale": 16},
            "train": {"batch_size": 20, "learning_rate": 0.05},
            "engine": "numpy",
        },
        "logic": {"selector": {"name": "uniform", "fraction": 1.0}},
        "privacy": {"name": "secure-sum"},
        **changed,
    }
    if certificates is not None:
        tree["network"] = {
            "address": "127.0.0.1:0",
            "heartbeat_s": 30,
            "tls": certificates.files,
            "rejoin_s": 0.2,
        }
    return Experiment(**tree)


@pytest.fixture
def fleet(certificates: Certificates) -> Iterator[Fleet]:
    with Fleet(CLIENTS, certificates) as fleet:
        yield fleet


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], None]) -> None:
    """Let the server act when it is about to take this step, in its first round."""
    done: list[int] = []
    of, count = MaskedSum.Server, [0]
    ask, send = of.ask, of.send

    def asks(self, phase, clients, context):
        if not done:
            count[0] += 1
            if count[0] == step:
                done.append(step)
                act()
        return ask(self, phase, clients, context)

    def sends(self, task, context):
        if step == TASK and not done:
            done.append(step)
            act()
        return send(self, task, context)

    monkeypatch.setattr(of, "ask", asks)
    monkeypatch.setattr(of, "send", sends)


def run(
    given: Experiment,
    fleet: Fleet,
    folder: Path,
    killed: list[int],
    replacing: threading.Thread | None = None,
) -> tuple[RunFolder, list[tuple[int, ...]]]:
    """Serve and record an experiment; return its folder and the participants of each round."""
    assembly = Assembly(given)
    server = serve(assembly, "run")
    fleet.server = server
    facts = gather_facts(
        seed=given.seed,
        mode="server",
        digest=given.digest(),
        engine=given.compute.engine,
        modules=None,
        **assembly.facts(),
    )
    made = RunFolder.create(folder, given.name, given.to_yaml(), facts, assembly.kept())
    with server, no_page():
        for client in EVERYBODY:
            fleet.start(server, client, folder / f"{client}")
        found = [tuple(one.participants) for one in recorded(server, made)]
        if replacing is not None:
            replacing.join()
        for client in set(EVERYBODY) - set(killed):
            assert fleet.reason(client) == server.reason
    return made, found


@pytest.mark.parametrize(
    ("step", "counted"),
    [
        (KEYS, OTHERS),
        (SHARES, OTHERS),
        (TASK, OTHERS),
        (CONFIRMING, EVERYBODY),
        (OPENING, EVERYBODY),
    ],
)
def test_a_third_is_killed_in_each_phase_and_the_model_is_that_of_the_simulation(
    step, counted, fleet, certificates, tmp_path, monkeypatch
) -> None:
    killed: list[int] = []

    def kill() -> None:
        killed.extend(THIRD)
        for client in THIRD:
            fleet.kill(client)

    at_step(monkeypatch, step, kill)
    made, participants = run(experiment(certificates), fleet, tmp_path, killed)
    assert participants == [counted]
    monkeypatch.undo()
    # What happened again, in a simulation without masks.
    report = replay(made)
    assert report.same
    for one in report.rounds:
        assert one.model_sha256 == one.recorded_model_sha256
        assert one.masked
    with rerun(made) as server:
        (found,) = server
    sent = {one["client"]: one.get("update_blake3", []) for one in made.clients()}
    for client in counted:
        assert sent[client] != list(found.update_blake3[client]), "what was sent was masked"


def test_noise_is_of_the_clients_alone_and_their_sums_have_an_account(
    fleet, certificates, tmp_path
) -> None:
    privacy = {"name": "secure-sum", "clip": 0.5, "noise": 1.0, "delta": 1e-3, "min_clients": 6}
    given = experiment(certificates, privacy=privacy, rounds=2)
    made, participants = run(given, fleet, tmp_path, [])
    assert participants == [EVERYBODY] * 2
    spent = [one["epsilon"] for one in made.rounds()]
    account = Assembly(given).account
    assert account is not None
    assert spent == [account.epsilon(1), account.epsilon(2)]
    # Whoever has the run folder, with the secret of the server, cannot draw the noise again.
    with pytest.raises((FedmxError, LogicError), match="secret of each client") as caught:
        replay(made)
    assert "\n" not in str(caught.value)
    with pytest.raises(FedmxError, match="privacy of the run"):
        pack(made, tmp_path / "run.fedmx", modules=None)


def test_with_too_few_left_the_round_is_run_again_from_the_state_as_it_was(
    fleet, certificates, tmp_path, monkeypatch, caplog
) -> None:
    dead = (0, 1, 2, 3, 4)

    def replace_dead() -> None:
        for client in dead:
            fleet.replace(fleet.server, client, tmp_path / f"{client}")

    def kill() -> None:
        for client in dead:
            fleet.kill(client)
        replacing.start()

    replacing = threading.Thread(target=replace_dead)

    at_step(monkeypatch, OPENING, kill)
    with caplog.at_level("WARNING"):
        made, participants = run(experiment(certificates), fleet, tmp_path, [*dead], replacing)
    assert {5, 6, 7, 8} <= set(participants[0]), "those that are there, and who is back already"
    (line,) = [one.getMessage() for one in caplog.records if "clients can open" in one.getMessage()]
    assert "\n" not in line
    monkeypatch.undo()
    (found,) = replay(made).rounds
    assert found.model_sha256 == found.recorded_model_sha256


def test_a_server_that_swaps_the_keys_of_a_client_is_refused_by_its_neighbours(
    fleet, certificates, tmp_path, monkeypatch
) -> None:
    other = Peer(2, 1, "malicious")

    def swapped(roster):
        return slot_of(replace(roster, public={**roster.public, 2: other.public}))

    slot_of = secure_sum._slot_of
    monkeypatch.setattr(secure_sum, "_slot_of", swapped)
    made, participants = run(experiment(certificates), fleet, tmp_path, [])
    # Those that see other keys than the client itself does not share with it, and go on.
    assert participants == [tuple(one for one in EVERYBODY if one != 2)]
    (lost,) = [one for one in made.clients() if one["client"] == 2]
    assert lost["status"] == "lost"


def test_a_client_with_the_certificate_of_another_number_shares_with_nobody(
    fleet, certificates, tmp_path, monkeypatch
) -> None:
    texts = secure_sum._texts

    def swapped(answers, name, size):
        found = texts(answers, name, size)
        if name == "public":  # as if client 3 had sent what client 2 has signed
            found[3] = found[2]
            answers[3]["proof"] = answers[2]["proof"]
        return found

    monkeypatch.setattr(secure_sum, "_texts", swapped)
    _, participants = run(experiment(certificates), fleet, tmp_path, [])
    assert participants == [tuple(one for one in EVERYBODY if one != 3)]
