"""How many samples a deployed client may announce: what the server allows, and what it knows."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment
from fedmx.assembly.assembly import Assembly
from fedmx.deployment.serve import serve
from fedmx.server.server import Server
from layers.logic.core.messages import MOST_SAMPLES
from layers.logic.round.exchange import ReportCosts
from tests.fedmx.processes import until
from tests.fedmx.scripted import Scripted, after_one_round, fleet, honest, listening, update_of
from tests.network.conftest import Certificates


def experiment(certificates: Certificates, most: int | str | None, **data: Any) -> Experiment:
    network = {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files}
    tree = {
        **{"rounds": 1, "clients": 2, "network": {**network, "max_samples": most}},
        "compute": {"model": "2nn", "train": {"steps": 1}, **data},
    }
    return Experiment.parse(json.dumps(tree), "announced.yaml", modules=None)


BY_PARTITION = {"data": "digits", "normalise": {"scale": 16}, "partition": "quantity"}
BY_CLIENT = {"data": {"name": "blobs", "samples": 7}}


def is_settled(server: Server, client: Scripted) -> bool:
    """Whether a client is ready or was sent away."""
    server.network._sessions.poll()
    return bool(client.over) or client.client in server.network._sessions.membership.ready


def announcing(server: Server, certificates: Certificates, client: int, samples: int) -> str:
    """Return why a client that announces so many samples is sent away; empty: it is not."""
    with fleet(server, certificates, {client: Scripted.until_told}, samples=samples) as clients:
        until(lambda: is_settled(server, clients[client]), lambda: "neither ready nor sent away")
        over = clients[client].over
    until(lambda: is_gone(server, client), lambda: "it is still there")
    return over


def is_gone(server: Server, client: int) -> bool:
    server.network._sessions.poll()
    return client not in server.network._sessions.membership.ready


@pytest.mark.parametrize("data", [BY_PARTITION, BY_CLIENT], ids=["divided", "client by client"])
def test_with_the_partition_as_bound_a_client_announces_what_it_gives_it_at_most(
    data: dict[str, Any], certificates: Certificates
) -> None:
    asked = experiment(certificates, "partition", **data)
    sizes = Assembly(asked).sizes()
    server = serve(asked, "run")
    with server:
        for client, size in sizes.items():
            assert announcing(server, certificates, client, size) == ""
            assert announcing(server, certificates, client, size - 1) == ""
            reason = announcing(server, certificates, client, size + 1)
            assert f"announces {size + 1} samples, and network.max_samples allows {size}" in reason
    rejections = server.network.exchange([ReportCosts()])[0].overhead.rejected_connections
    assert len([said for said in rejections if "network.max_samples" in said]) == len(sizes)


def test_a_number_as_bound_holds_for_clients_with_own_data(certificates: Certificates) -> None:
    server = serve(experiment(certificates, 3000, **BY_PARTITION), "run")
    with server:
        assert announcing(server, certificates, 1, 3000) == ""
        assert "network.max_samples allows 3000" in announcing(server, certificates, 1, 3001)


def test_without_a_bound_any_number_is_taken(certificates: Certificates) -> None:
    server = serve(experiment(certificates, None, **BY_PARTITION), "run")
    with server:
        assert announcing(server, certificates, 1, MOST_SAMPLES) == ""


@pytest.mark.parametrize(("most", "wait_for", "counted"), [(None, 3, (2,)), (10, 2, (0, 1))])
def test_only_without_a_bound_a_client_moves_the_model_alone(
    most: int | None, wait_for: int, counted: tuple[int, ...], certificates: Certificates
) -> None:
    def boasts(client: Scripted) -> None:
        client.say(update_of(client.task(), samples=MOST_SAMPLES))

    server = listening(certificates, wait_for=wait_for, max_samples=most)
    start = server.weights.copy()
    with (
        server,
        fleet(server, certificates, {0: honest, 1: honest}),
        fleet(server, certificates, {2: boasts}, samples=MOST_SAMPLES) as clients,
    ):
        until(lambda: is_settled(server, clients[2]), lambda: "neither ready nor sent away")
        (round,) = server.rounds()
    assert round.participants == (0, 1, 2)[:wait_for]
    np.testing.assert_allclose(server.weights, after_one_round(start, counted), rtol=1e-6)


def test_a_client_that_comes_back_with_another_number_is_taken_with_a_warning(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(experiment(certificates, 3000, **BY_PARTITION), "run")
    with caplog.at_level(logging.WARNING, "fedmx.server"), server:
        assert announcing(server, certificates, 1, 100) == ""
        assert announcing(server, certificates, 1, 120) == ""
        assert server.network._sessions.membership.samples[1] == 120  # type: ignore[attr-defined]
        assert "network.max_samples" in announcing(server, certificates, 1, 3001)
        assert server.network._sessions.membership.samples[1] == 120  # type: ignore[attr-defined]
    assert "client 1 had 100 samples before" in caplog.text
