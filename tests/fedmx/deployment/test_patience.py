"""A client that is connected and silent is given up in the end, and an honest one is not."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment, ExperimentError, serve
from layers.logic import Question
from layers.logic.round.patience import FIRST_S, Patience
from tests.fedmx.deployment.test_deployment_surveys import Surveyed, answering
from tests.fedmx.scripted import Scripted, after_one_round, fleet, honest, listening
from tests.network.conftest import Certificates


def silent(client: Scripted) -> None:
    """Answer nothing; the heartbeat of a real client would go on."""
    client.task()
    client.until_told()


def test_a_silent_client_is_given_up_and_the_others_go_on(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    server = listening(certificates, last=2, wait_for=2, patience=Patience(limit_s=4.0), rejoin_s=0)
    model = server.weights.copy()
    with (
        caplog.at_level(logging.INFO, "fedmx.server"),
        server,
        fleet(server, certificates, {0: honest, 1: silent}) as clients,
    ):
        first, second = server.rounds()
        clients[1].wait()
    assert (first.participants, first.report.of("lost")) == ((0,), (1,))
    (why,) = [one.reason for one in first.report.clients if one.client == 1]
    assert "4 s" in why
    assert why in clients[1].over
    assert any("it is given up" in text for text in caplog.messages)
    assert second.participants == (0,)
    expected = after_one_round(after_one_round(model, (0,)), (0,))
    np.testing.assert_array_equal(server.weights, expected)


def test_a_silent_client_does_not_hold_up_a_survey(certificates: Certificates) -> None:
    def asked(client: Scripted) -> None:
        client.expect(Question)
        client.until_told()

    how = {"patience": Patience(limit_s=4.0), "rejoin_s": 0.0, "selector": Surveyed(1.0)}
    server = listening(certificates, wait_for=2, **how)
    with server, fleet(server, certificates, {0: answering, 1: asked}):
        (round,) = server.rounds()
    assert round.participants == (0,)
    assert any(one.startswith("client 1") and "4 s" in one for one in round.rejected_connections)


COMPUTE = {"model": "logistic", "data": "digits", "normalise": {"scale": 16}}
TREE: dict[str, Any] = {"name": "patient", "rounds": 1, "clients": 6, "compute": COMPUTE}
PRIVATE: dict[str, Any] = {
    "privacy": {"name": "central", "clip": 0.5, "delta": 1e-2, "noise": 1.1},
    "logic": {
        "preset": {"name": "fedavg", "weights": "uniform"},
        "selector": {"name": "poisson", "probability": 0.5},
        "min_updates": 0,
    },
}


@pytest.mark.parametrize(
    ("private", "network", "patience"),
    [
        (False, {}, Patience(10.0)),
        (False, {"patience": None}, Patience()),
        (False, {"patience": 3.0}, Patience(3.0)),
        (False, {"patience_s": 7.0}, Patience(10.0, 7.0)),
        (True, {}, Patience(None, FIRST_S)),
        (True, {"patience": None}, Patience()),
        (True, {"patience_s": 7.0}, Patience(10.0, 7.0)),
    ],
)
def test_the_limit_of_a_private_run_does_not_follow_answers_unless_the_experiment_says_so(
    private: bool, network: dict[str, Any], patience: Patience, certificates: Certificates
) -> None:
    given = {**TREE, **(PRIVATE if private else {})}
    given["network"] = {"address": "127.0.0.1:0", "tls": certificates.files, **network}
    assert serve(Experiment.from_dict(given), "run").network.patience == patience


def test_a_private_run_is_refused_a_patience_that_follows_answers() -> None:
    given = {**TREE, **PRIVATE, "network": {"address": "127.0.0.1:0", "patience": 5.0}}
    with pytest.raises(ExperimentError, match="patience_s"):
        serve(Experiment.from_dict(given), "run")
