"""The stratified mean gives each stratum its share of the data, whoever returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from layers.logic import LogicError, OpenRound, Run, Selector, ServerState, run_round
from layers.logic.algorithms.fedaim import Split
from layers.logic.algorithms.fedsso import Clustering, Stratified, Stratum, fedsso
from tests.logic.given_updates import Given
from tests.logic.memory_carrier import MemoryCarrier, a_logic
from tests.logic.quadratic import Quadratic
from tests.logic.vector_files import CLOSE, vectors

W0 = np.array([0.5, -0.25, 1.0], np.float32)


@dataclass(frozen=True)
class InGroups(Selector):
    """Clients 0, 1, ... in these groups."""

    groups: Sequence[str]

    def run(self, round: OpenRound) -> Run[None]:
        for client, group in enumerate(self.groups):
            round.train(client, group=group)
        yield from round.until_all()


@dataclass
class Round:
    """Clients that come back with these models, and the strata that are known."""

    models: Sequence[Sequence[float]]
    samples: Sequence[int]
    groups: Sequence[str]
    strata: Mapping[str, Stratum] = field(default_factory=dict)
    lost: Sequence[int] = ()

    def run(self, aggregator, start: np.ndarray = W0) -> ServerState:
        deltas = {
            (1, client): (np.array(model) - start).astype(np.float32)
            for client, model in enumerate(self.models)
        }
        logic = a_logic(InGroups(self.groups), aggregator=aggregator, hooks=[Given(deltas)])
        memory = {"selector": Clustering(strata=self.strata).memory()}
        state = ServerState(0, start, np.zeros(1, np.float32), memory)
        clients = {
            client: Quadratic(np.eye(3), np.zeros(3), n) for client, n in enumerate(self.samples)
        }
        peers = MemoryCarrier(logic, clients, lost=self.lost)
        return run_round(state, peers, logic)[0]


@pytest.mark.parametrize(
    ("mean", "expected"),
    [("normalised", "normalised"), ("stratified", "stratified"), ("literal", "literal_eq3")],
)
def test_the_three_means_are_those_that_were_worked_out(mean, expected) -> None:
    file = vectors("fedsso_aggregate")
    given = file["inputs"]
    sizes = given["cluster_n"]
    strata = {name: Stratum(3, n) for name, n in sizes.items()}
    rest = Stratum(given["N"] - 3 * len(sizes), given["n_total"] - sum(sizes.values()))
    groups = [str(cluster) for cluster in given["cluster_of"]]
    of = Round(given["client_models"], given["n_k"], groups, {**strata, "noise": rest})
    aggregator = fedsso(mean=mean).aggregator
    np.testing.assert_allclose(of.run(aggregator).weights, file["expected"][expected], **CLOSE)


@pytest.mark.parametrize("mean", ["normalised", "literal"])
def test_with_equal_samples_the_printed_mean_is_the_normalised_one(mean) -> None:
    file = vectors("fedsso_aggregate")
    balanced = file["inputs"]["balanced"]
    strata = {"0": Stratum(file["inputs"]["N"], balanced["n_total"])}
    of = Round(file["inputs"]["client_models"], balanced["n_k"], ["0"] * 4, strata)
    aggregator = fedsso(mean=mean).aggregator
    expected = file["expected"][f"balanced_{mean}"]
    np.testing.assert_allclose(of.run(aggregator).weights, expected, **CLOSE)


MODELS = [[1.0, 0, 0], [3.0, 0, 0], [0, 2.0, 0], [0, 0, 4.0]]


def test_a_stratum_that_did_not_return_leaves_its_share_to_the_others() -> None:
    strata = {name: Stratum(5, n) for name, n in (("a", 300), ("b", 100), ("c", 9))}
    of = Round(MODELS, [10, 30, 10, 10], ["a", "a", "b", "c"], strata, lost=[3])
    expected = 0.75 * np.array([2.5, 0, 0]) + 0.25 * np.array([0, 2.0, 0])
    np.testing.assert_allclose(of.run(Stratified()).weights, expected, **CLOSE)


@pytest.mark.parametrize("mean", ["stratified", "literal"])
def test_without_strata_it_is_the_mean_by_samples(mean) -> None:
    of = Round(MODELS, [10, 30, 10, 50], ["", "", "", ""])
    expected = np.average(MODELS, axis=0, weights=[10, 30, 10, 50])
    np.testing.assert_allclose(of.run(Stratified(mean)).weights, expected, **CLOSE)


def test_a_stratum_that_is_not_known_counts_by_what_it_brought() -> None:
    of = Round(MODELS, [10, 30, 10, 40], ["a", "a", "b", "noise"], {"a": Stratum(3, 50)})
    expected = np.average([[2.5, 0, 0], [0, 2, 0], [0, 0, 4]], axis=0, weights=[50, 10, 40])
    np.testing.assert_allclose(of.run(Stratified()).weights, expected, **CLOSE)


def test_a_round_that_comes_back_to_a_stratum_is_refused() -> None:
    with pytest.raises(LogicError, match="lanes of the stratum 'a' do not stand together"):
        Round(MODELS, [1, 1, 1, 1], ["a", "b", "a", "b"]).run(Stratified())


def test_the_memory_of_a_selector_has_strata_alone_or_none() -> None:
    for memory in ({}, Split((1, 2), np.zeros(2)).memory()):
        assert not Clustering.of(memory).strata
    found = Clustering.of({"strata": {"0": {"clients": 2, "samples": 11}}})
    assert found.strata == {"0": Stratum(2, 11)}
    assert (found.clients.size, found.points.shape) == (0, (0, 2))


def test_a_clustering_comes_back_from_the_memory_that_it_was_kept_in() -> None:
    clients = np.array([3, 8])
    kept = Clustering(clients, clients - 4, clients, np.zeros((2, 2)), {"0": Stratum(2, 11)})
    found = Clustering.of(kept.memory())
    assert found.strata == kept.strata
    for name in ("clients", "labels", "samples", "points"):
        np.testing.assert_array_equal(getattr(found, name), getattr(kept, name))
    for name in ("clients", "labels", "samples", "points"):
        with pytest.raises(LogicError, match="the strata in the selector's memory cannot be read"):
            Clustering.of({**kept.memory(), name: np.zeros(3)})
