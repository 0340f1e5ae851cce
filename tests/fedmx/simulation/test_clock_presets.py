"""Every preset on devices that are slow, drop out, come and go: its rounds end, and end alike."""

from __future__ import annotations

import pytest

from fedmx import Round, simulate
from tests.fedmx.algorithms import BY_NAME, LOGIC, experiment

CLIENTS = 6
DEADLINE_S = 8.0
FITS_ITSELF = ("fedcs", "offline-kp", "online-kp")  # into the round: none are asked in reserve


def rounds_of(name: str) -> tuple[bytes, list[Round]]:
    fits = name in FITS_ITSELF
    hard = experiment(
        {**LOGIC[f"preset {name}"], "over_select": 1 if fits else 1.3, "min_updates": 0},
        rounds=2,
        clients=CLIENTS,
        clock={
            "deadline_s": DEADLINE_S,
            "devices": {"name": "lognormal", "samples_per_s": 200, "up_bytes_per_s": 2e5},
            "uploads": "serial" if fits else {"name": "parallel", "bytes_per_s": 1e6},
            "availability": {"name": "chance", "share": 0.8, "span_s": 4},
            "dropout": 0.2,
        },
    )
    simulation = simulate(hard)
    with simulation:
        rounds = list(simulation)
    return simulation.weights.tobytes(), rounds


@pytest.mark.parametrize("name", BY_NAME["preset"])
def test_its_rounds_end_by_the_deadline_and_end_alike(name) -> None:
    weights, rounds = rounds_of(name)
    assert [round.round for round in rounds] == [1, 2]
    for round in rounds:
        assert round.virtual
        assert 0 < round.report.took_s <= DEADLINE_S
        for client in round.report.clients:
            assert client.status in ("accepted", "declined", "lost")
            times = client.times
            if client.status == "accepted":
                assert times.ended_s is not None
                assert times.ended_s <= round.report.took_s
    again, repeated = rounds_of(name)
    assert weights == again
    assert [round.report for round in rounds] == [round.report for round in repeated]
