"""A client with a certificate can end neither a deployed run with what it sends, nor its resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import RunFolder, recorded
from layers.logic import Hook, Task, Update
from layers.logic.core.messages import CANNOT_TRAIN, no_update
from layers.logic.hooks.server_optimisers import FedAvgM
from tests.fedmx.scripted import Scripted, fleet, honest, listening, update_of
from tests.network.conftest import Certificates

ROUNDS = 6
HUGE = 3e38


def attacked(task: Task, **changed: Any) -> Update:
    """An update of huge finite values with alternating signs."""
    signs = np.where(np.arange(task.weights.size) % 2, 1, -1).astype(np.float32)
    return update_of(task, delta=signs * np.float32(HUGE), **changed)


def attacks(*rounds: int, **changed: Any) -> Any:
    """A client that attacks in these rounds, and is honest in the others."""

    def script(client: Scripted) -> None:
        while True:
            task = client.task()
            client.say(attacked(task, **changed) if task.round in rounds else update_of(task))

    return script


def trains_while_it_can(client: Scripted) -> None:
    """An honest client of a model on which nobody can train once its values are huge."""
    while True:
        task = client.task()
        dead = np.abs(task.weights).max() > 1e6
        client.say(no_update(task, client.samples) if dead else update_of(task))


HOOKS: dict[str, tuple[Hook, ...]] = {"fedavg": (), "fedavgm": (FedAvgM(),)}


def server_of(certificates: Certificates, name: str, **settings: Any) -> Any:
    settings = {"wait_for": 4, "clients": 4, "hooks": HOOKS[name], **settings}
    return listening(certificates, last=ROUNDS, **settings)


def a_folder(parent: Path) -> RunFolder:
    return RunFolder.create(parent, "attacked", "rounds: 6\n", {})


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("changed", [{"samples": 1 << 53}, {}], ids=["2^53 samples", "its own"])
def test_what_an_attacker_sends_twice_is_refused_and_the_run_ends_well(
    name: str, changed: dict[str, Any], certificates: Certificates, tmp_path: Path
) -> None:
    server, run = server_of(certificates, name), a_folder(tmp_path)
    scripts = {0: honest, 1: honest, 2: attacks(2, 3, **changed), 3: honest}
    with server, fleet(server, certificates, scripts):
        rounds = list(recorded(server, run))
    assert run.status == "done"
    assert [one.report.of("rejected") for one in rounds] == [(), (2,), (2,), (), (), ()]
    reasons = [line["reason"] for line in run.clients() if line["status"] == "rejected"]
    told = "the client announced 10" if changed else "with logic.max_update 1000"
    assert all(told in reason for reason in reasons)
    assert np.abs(server.weights).max() < 1e3


@pytest.mark.parametrize("name", HOOKS)
def test_without_a_bound_the_run_steps_back_and_ends_well_without_the_attacker(
    name: str, certificates: Certificates, tmp_path: Path
) -> None:
    server, run = server_of(certificates, name, max_update=None), a_folder(tmp_path)
    scripts = dict.fromkeys((0, 1, 3), trains_while_it_can) | {2: attacks(2, 3)}
    with server, fleet(server, certificates, scripts):
        rounds = list(recorded(server, run))
    assert run.status == "done"
    assert run.reason == "all 6 rounds were run; stepped back 1 time, excluded clients 2"
    assert [record["round"] for record in run.rounds()] == list(range(1, ROUNDS + 1))
    (step,) = server.steps_back.steps
    assert (step.round, step.to, step.suspects[0], step.excluded) == (3, 1, 2, (2,))
    assert run.rounds()[1]["stepped_back"] == [step.record()]
    assert rounds[-1].participants == (0, 1, 3)
    assert np.abs(server.weights).max() < 1e3


@pytest.mark.parametrize("name", HOOKS)
def test_a_server_that_is_killed_after_the_attack_resumes_to_the_same_bits(
    name: str, certificates: Certificates, tmp_path: Path
) -> None:
    scripts = dict.fromkeys((0, 1, 3), trains_while_it_can) | {2: attacks(2, 3)}
    whole, run = a_folder(tmp_path / "whole"), a_folder(tmp_path / "killed")
    server = server_of(certificates, name, max_update=None)
    with server, fleet(server, certificates, scripts):
        list(recorded(server, whole))
    for last in (2, 3):  # with the model that is dead, and in the midst of the rounds run again
        server = server_of(certificates, name, max_update=None)
        with server, fleet(server, certificates, scripts):
            for round in recorded(server, run):
                if round.round == last:
                    break
    server = server_of(certificates, name, max_update=None)
    with server, fleet(server, certificates, scripts):
        list(recorded(server, run))
    assert run.model_path.read_bytes() == whole.model_path.read_bytes()
    assert run.rounds()[1]["stepped_back"] == whole.rounds()[1]["stepped_back"]


def test_that_a_client_cannot_train_is_a_code_and_a_reason(certificates: Certificates) -> None:
    server = listening(certificates, wait_for=3)

    def cannot(client: Scripted) -> None:
        client.say(no_update(client.task(), client.samples))
        honest(client)

    with server, fleet(server, certificates, {0: honest, 1: cannot, 2: honest}):
        (round,) = server.rounds()
    (one,) = [one for one in round.report.clients if one.client == 1]
    assert (one.status, one.code) == ("rejected", CANNOT_TRAIN)
    assert one.reason == "it cannot train: its loss or its update is not finite"
    assert round.participants == (0, 2)
