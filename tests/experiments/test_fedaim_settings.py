"""FedAIM's partition of the text, and its readings, are what the pages of the papers say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layers.compute.data.partitions.biased import DISTANCES
from layers.logic import Training, run_round
from layers.logic.algorithms.fedaim import FedAim, FedAimSplit
from tests.logic.label_counts import EVEN, ONE_CLASS, counted
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, same_bits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [False, True])
def test_all_clients_have_300_images_of_one_or_two_classes_and_20_of_50_are_extremely_biased(
    shared: bool, seed: int
) -> None:
    from few_classes import FewClasses

    labels = np.random.default_rng(9).permutation(np.repeat(np.arange(10), 6000))
    parts = FewClasses(shared).split(labels, None, 50, np.random.default_rng(seed))
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert set(np.unique(counts)) == {0, 300}
    assert set((counts > 0).sum(1)) == {1, 2}
    assert sum(DISTANCES["emd"](one > 0) > 3 - 1e-9 for one in counts) == 20
    assert (len(np.unique(np.concatenate(parts))) < counts.sum()) == shared


@pytest.mark.parametrize("server", ["nebs", "ebs"])
def test_the_model_of_one_server_is_evaluated_and_the_training_is_fedaims(server) -> None:
    from fedaim_readings import OneServer

    clients = counted([EVEN, ONE_CLASS[0], EVEN, ONE_CLASS[9], ONE_CLASS[1], ONE_CLASS[8], EVEN])
    training = Training(steps=2, learning_rate=0.1)
    runs = []
    received = {"divergence": 0.0, "loss_of": "received"}
    for aggregator in (FedAim(**received), OneServer(**received, server=server)):
        logic = a_logic(
            FedAimSplit(mediators=2), 3, aggregator=aggregator, training=training, seed=5
        )
        peers, state, models = MemoryCarrier(logic, clients), a_state(logic, np.ones(3)), []
        # In the second round the loss has risen, so that there is no exchange.
        for loss in (1.0, 2.0, 2.0, 4.0):
            peers.forge = lambda update, loss=loss: [replace(update, metrics={"loss": loss})]
            state, _ = run_round(state, peers, logic)
            kept = state.memory["aggregator"]
            apart, *_ = state.models.get(server, (None,))
            models.append((kept.get("central", state.weights), apart, state.weights))
        runs.append(models)
    exchanged = [True, False, True, False]
    for (central, apart, _), (also, _, shown), both in zip(*runs, exchanged, strict=True):
        assert same_bits(central, also)
        assert same_bits(shown, central if both else apart)
        assert both == (apart is None)
