"""All that is drawn depends on the run's seed, and on the client where it is the client's."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic import ClientState, OpenRound, Question, Task, Training, answer
from layers.logic.algorithms.astraea import Astraea, Rebalance
from layers.logic.algorithms.fedaim import FedAimSplit
from layers.logic.algorithms.fedshare import FedShare
from layers.logic.algorithms.fedsso import FedSSO
from layers.logic.core.messages import EMPTY
from layers.logic.core.survey import answer_survey
from layers.logic.round.round import run_round
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone
from tests.logic.points import Points, PointsEngine
from tests.logic.quadratic import bowl
from tests.logic.toys import planned

SEEDS = range(6)
ZERO = np.zeros(2, np.float32)


def trained_on(hook, seed: int, client: int = 0, round: int = 1, slots=None) -> bytes:
    """Return the samples that a client of a run with this seed trains on."""
    selector = Astraea(gamma=1, classes=3) if isinstance(hook, Rebalance) else alone(client)
    logic = a_logic(selector, 2, hooks=[hook], seed=seed)
    engine = PointsEngine(2)
    engine.buffers = EMPTY.copy()
    task = Task(round, client, 7, Training(steps=1), ZERO, EMPTY, slots=slots or {})
    own = Points.of([0, 1, 2] * 20)
    answer(task, ClientState(), engine, own, logic, {"shared": Points.of(range(10))})
    return engine.trained[0].x.tobytes()


@pytest.mark.parametrize(
    ("hook", "slots"),
    [
        (FedShare(part=0.3), {}),
        (Rebalance(), {"0:Rebalance": {"ratios": np.array([1.5, 0.5, 1.0])}}),
    ],
    ids=["fedshare", "rebalance"],
)
def test_what_a_hook_draws_for_a_whole_run_depends_on_seed_and_client_alone(hook, slots) -> None:
    by_seed = {trained_on(hook, seed, slots=slots) for seed in SEEDS}
    by_client = {trained_on(hook, 1, client, slots=slots) for client in range(6)}
    by_round = {trained_on(hook, 1, round=round, slots=slots) for round in range(1, 6)}
    assert len(by_seed) > 1
    assert len(by_client) > 1
    assert len(by_round) == 1


def losses(seed: int, round: int = 1) -> list[float]:
    """Return what five clients with the same samples answer, each from a part of them."""
    data = Points.of([*range(40)])
    question = Question("loss", samples=3, round=round, seed=seed, weights=ZERO, buffers=EMPTY)
    engine = PointsEngine(2)
    engine.buffers = EMPTY.copy()
    return [answer_survey(one, question, engine, data).values["loss"] for one in range(5)]


def test_the_samples_of_a_survey_depend_on_seed_round_and_client() -> None:
    assert losses(1) == losses(1)
    assert len(set(losses(1))) > 1, "each client draws its own"
    assert losses(1) != losses(2)
    assert losses(1) != losses(1, round=2)


def test_the_one_step_of_a_survey_draws_from_the_seed_too() -> None:
    clients = {0: bowl(np.ones(3), noise=1.0), 1: bowl(np.ones(3), noise=1.0)}

    def steps(seed: int) -> list[bytes]:
        logic = a_logic(FedSSO(learning_rate=1.0), seed=seed)
        peers = MemoryCarrier(logic, clients)
        told: dict[int, bytes] = {}
        peers.forge_answer = lambda one: (
            told.update({one.client: one.values["weights"].tobytes()}) or [one]
        )
        run_round(a_state(logic), peers, logic)
        return [told[0], told[1]]

    assert steps(1) == steps(1)
    assert steps(1)[0] != steps(1)[1]
    assert steps(1) != steps(2)


def test_sketches_of_one_run_can_be_compared_and_those_of_another_seed_differ() -> None:
    data = {client: bowl(np.arange(50.0)) for client in range(2)}

    def sketches(seed: int) -> list[bytes]:
        logic = a_logic(FedSSO(learning_rate=1.0, sketch=8), size=50, seed=seed)
        peers = MemoryCarrier(logic, data)
        told: dict[int, bytes] = {}
        peers.forge_answer = lambda one: (
            told.update({one.client: one.values["sketch"].tobytes()}) or [one]
        )
        run_round(a_state(logic), peers, logic)
        return [told[0], told[1]]

    first, second = sketches(1), sketches(2)
    assert first[0] == first[1], "equal vectors have equal sketches"
    assert first != second


def test_mediators_at_random_are_others_with_another_seed() -> None:
    selector = FedAimSplit(mediators=3, classes=3, threshold=0.1, schedule="random")
    histograms = {k: {"histogram": np.array([9, 0, 0])} for k in range(12)}

    def lines(seed: int) -> tuple[tuple[int, ...], ...]:
        round = OpenRound(dict.fromkeys(range(12), 9), seed=seed)
        planned(selector, round, {"labels": histograms})
        return tuple(lane.clients for lane in round.planned)

    assert lines(1) == lines(1)
    assert len({lines(seed) for seed in SEEDS}) > 1
