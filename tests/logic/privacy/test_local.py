"""Local privacy: what leaves a client has its noise, and nothing else leaves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from layers.logic import AGGREGATORS, HOOKS, LogicError, Preset, Update
from layers.logic.aggregators.mean import Mean
from layers.logic.core.privacy import Mechanism
from layers.logic.privacy.local import Local
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import a_logic, run_rounds
from tests.logic.privacy.test_central import CLIENTS, SIZE, START, peers_of
from tests.logic.quadratic import bowl

LOCAL = Local(clip=0.5, delta=1e-3, noise=2.0)


def preset_of(privacy: Local = LOCAL, **parts: Any) -> Preset:
    given = {"selector": Uniform(1.0), "aggregator": Mean(), **parts}
    return privacy.applied(Preset(**given), CLIENTS)


def sent(privacy: Local, rounds: int = 1) -> list[Update]:
    """What arrives of clients whose updates are far longer than the clip."""
    preset = preset_of(privacy)
    logic = a_logic(
        preset.selector, SIZE, aggregator=preset.aggregator, hooks=preset.hooks, clients=CLIENTS
    )
    arrived: list[Update] = []

    def note(update: Update) -> list[Update]:
        arrived.append(update)
        return [update]

    clients = {one: bowl([50.0] * SIZE) for one in range(CLIENTS)}
    run_rounds(rounds, START, peers_of(logic, clients, forge=note))
    return arrived


def test_each_update_is_clipped_and_has_noise_of_its_own_and_no_metric_is_sent() -> None:
    quiet = [one.delta for one in sent(Local(clip=0.5, delta=1e-3, noise=0.01))]
    assert [np.linalg.norm(one) for one in quiet] == pytest.approx([0.5] * CLIENTS, rel=0.05)
    updates = sent(LOCAL, rounds=2)
    noise = [one.delta - quiet[0] for one in updates]
    assert [one.std() for one in noise] == pytest.approx([2.0 * 0.5] * 2 * CLIENTS, rel=0.25)
    correlations = np.corrcoef(noise) - np.eye(2 * CLIENTS)
    assert np.abs(correlations).max() < 0.35
    assert all(not one.metrics for one in updates)


def test_what_a_round_costs_is_that_of_two_clips() -> None:
    assert LOCAL.mechanism(preset_of()) == Mechanism(1.0, 1.0)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"hooks": (HOOKS["scaffold"](),)}, "Scaffold sends more"),
        ({"hooks": (HOOKS["selective-sgd"](),)}, "SelectiveSgd"),
        ({"selector": PowerOfChoice()}, "PowerOfChoice"),
        ({"aggregator": AGGREGATORS["q-fedavg"]()}, "QFedAvg uses the clients' losses"),
    ],
)
def test_what_would_leave_a_client_in_the_clear_is_refused(
    parts: dict[str, Any], named: str
) -> None:
    with pytest.raises(LogicError, match=named):
        preset_of(**parts)


@pytest.mark.parametrize("hook", ["fedprox", "stc", "fedadam"])
def test_any_rule_and_codec_may_work_on_hidden_updates(hook: str) -> None:
    preset_of(aggregator=AGGREGATORS["median"](), hooks=(HOOKS[hook](),))
