"""Randomised response: what is sent of a client's labels, what is estimated, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from layers.logic import LogicError, Preset, Question
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.astraea import Astraea, Rebalance
from layers.logic.algorithms.fedaim import FedAimSplit
from layers.logic.core.privacy import Mechanism
from layers.logic.core.selector import LABELS, SURVEY
from layers.logic.privacy.local import HideUpdates, Local
from layers.logic.privacy.randomised_response import RandomisedResponse
from layers.logic.round.client import answer_question
from layers.logic.secrets import Secret
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, run_rounds
from tests.logic.privacy.test_central import START
from tests.logic.quadratic import QuadraticEngine, bowl
from tests.logic.vector_files import vectors

LOCAL = Local(clip=0.5, delta=1e-3, noise=2.0, label_epsilon=2.0, labels=4)
SIZE = START.weights.size
LABELS_OF = {0: (0, 0, 0, 1, 1), 1: (2,) * 7, 2: (1, 2)}


def secret(number: int) -> Secret:
    return Secret.of_seed(number, "client", 0)


@pytest.mark.parametrize("place", range(3))
def test_probabilities_and_estimates_are_those_that_were_worked_out(place: int) -> None:
    row = vectors("dp")["randomised_response"][place]
    response = RandomisedResponse(row["categories"], row["epsilon"], 1)
    assert response.kept == pytest.approx(row["p_keep"], abs=1e-9)
    assert response.other == pytest.approx(row["p_each_other"], abs=1e-9)
    assert response.kept / response.other == pytest.approx(np.exp(row["epsilon"]))
    estimate = response.estimate(np.array(row["noisy_counts"]))
    assert estimate == pytest.approx(row["estimate"], abs=1e-9)


@pytest.mark.parametrize(("categories", "epsilon"), [(2, 1.0), (5, 1.0), (5, 4.0)])
def test_each_label_is_sent_with_its_probability(categories: int, epsilon: float) -> None:
    response = RandomisedResponse(categories, epsilon, 20_000)
    histogram = np.zeros(categories, np.int64)
    histogram[1] = 20_000
    sent = response.answer(histogram, secret(1))
    expected = np.full(categories, response.other * 20_000)
    expected[1] = response.kept * 20_000
    assert sent.sum() == 20_000
    assert (np.abs(sent - expected) < 5 * np.sqrt(expected)).all()


def test_the_estimate_over_many_clients_is_the_truth() -> None:
    response = RandomisedResponse(4, 1.0, 1)
    truth = np.array([6, 3, 1, 0], np.int64)
    sent = sum(response.answer(truth, secret(one)) for one in range(8000))
    shares = response.estimate(np.asarray(sent)) / 8000
    # One answer in the estimate has a deviation of about 0.5 / (p - q) at most.
    assert (
        np.abs(shares - truth / 10).max() < 5 * 0.5 / (response.kept - response.other) / 8000**0.5
    )


def test_a_client_tells_so_many_labels_at_most_and_the_same_whenever_it_is_asked() -> None:
    response = RandomisedResponse(3, 2.0, 4)
    few, many = np.array([1, 0, 2], np.int64), np.array([50, 0, 50], np.int64)
    assert response.answer(few, secret(1)).sum() == 3
    answers = [response.answer(many, secret(1)) for _ in range(5)]
    assert all(one.sum() == 4 and (one == answers[0]).all() for one in answers)
    others = [response.answer(many, secret(one)).tolist() for one in range(20)]
    assert len({tuple(one) for one in others}) > 3


def test_the_likely_histogram_has_the_number_of_samples() -> None:
    response = RandomisedResponse(3, 2.0, 4)
    assert response.histogram(np.array([4, 0, 0]), 50).tolist() == [50, 0, 0]
    assert response.histogram(np.array([2, 0, 2]), 50).tolist() == [25, 0, 25]
    for sent in ([3, 1, 0], [2, 1, 1], [0, 1, 3]):
        found = response.histogram(np.array(sent), 50)
        assert abs(found.sum() - 50) <= 1
        assert found.min() >= 0


def preset_of(privacy: Local = LOCAL, **parts: Any) -> Preset:
    given = {"selector": Astraea(gamma=2, classes=3), "aggregator": Mean("uniform"), **parts}
    return privacy.applied(Preset(**given), 3)


def test_selectors_get_likely_histograms_and_clients_send_no_other_answer() -> None:
    preset = preset_of()
    logic = a_logic(
        preset.selector, SIZE, aggregator=preset.aggregator, hooks=preset.hooks, clients=3
    )
    clients = {
        one: bowl([1.0] * SIZE, n=len(labels), labels=labels) for one, labels in LABELS_OF.items()
    }
    peers = MemoryCarrier(logic, clients)
    state, (report,) = run_rounds(1, replace(START, buffers=peers.engine.buffers), peers)
    assert report.of("accepted") == (0, 1, 2)
    hook = next(one for one in logic.hooks if isinstance(one, HideUpdates))
    assert hook.response is not None
    for client, told in state.memory[SURVEY][LABELS].items():
        own = Secret.of_seed(logic.seed, "client", client).part("survey")
        sent = hook.response.answer(np.bincount(LABELS_OF[client], minlength=3), own)
        size = len(LABELS_OF[client])
        assert sent.sum() == min(size, 4)
        assert (told["histogram"] == hook.response.histogram(sent, size)).all()

    def answer(name: str, **asked: Any) -> Any:
        question = Question(name, **asked)
        return answer_question(0, question, QuadraticEngine(SIZE), clients[0], logic)[0].values

    assert answer(LABELS, classes=3).keys() == {"histogram"}
    assert answer(LABELS, classes=4) == answer("emd", classes=3) == {}
    weights = {"weights": START.weights, "buffers": peers.engine.buffers}
    assert answer("step", learning_rate=0.1, **weights) == answer("loss", **weights) == {}


def test_a_client_that_hides_all_answers_nothing_about_its_labels() -> None:
    preset = preset_of(replace(LOCAL, label_epsilon=None), selector=Uniform(1.0))
    logic = a_logic(preset.selector, SIZE, aggregator=preset.aggregator, hooks=preset.hooks)
    client = bowl([1.0] * SIZE, n=3, labels=(0, 1, 1))
    question = Question(LABELS, classes=3)
    assert answer_question(0, question, QuadraticEngine(SIZE), client, logic)[0].values == {}


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"histogram": 3},
        {"histogram": np.array([1, 1])},
        {"histogram": np.array([5, 0, 0])},
        {"histogram": np.array([5, -1, 0])},
        {"histogram": np.array([4.0, 0.0, 0.0])},
    ],
)
def test_what_no_client_of_the_experiment_sends_counts_as_no_answer(sent: Any) -> None:
    (hook,) = preset_of().hooks
    assert hook.reported(LABELS, sent, 50) == {}
    assert hook.reported(LABELS, {"histogram": np.array([4, 0, 0])}, 50).keys() == {"histogram"}


def test_all_labels_of_an_answer_are_counted_once() -> None:
    assert LOCAL.once() == Mechanism(None, 1.0, epsilon=8.0)
    assert replace(LOCAL, label_epsilon=None).once() is None


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"selector": Uniform()}, "Uniform asks for none"),
        ({"selector": PowerOfChoice()}, "PowerOfChoice asks for none, or for more"),
        ({"selector": FedAimSplit(reveal="distance")}, "FedAimSplit"),
        ({"hooks": (Rebalance(),)}, "Rebalance makes the number"),
    ],
)
def test_what_does_not_ask_for_labels_alone_is_refused(parts: dict[str, Any], named: str) -> None:
    with pytest.raises(LogicError, match=named):
        preset_of(**parts)
    assert preset_of(selector=FedAimSplit(classes=3)).hooks


def test_without_an_epsilon_for_labels_a_selector_that_asks_is_refused() -> None:
    with pytest.raises(LogicError, match=r"Astraea may ask.*label_epsilon"):
        preset_of(replace(LOCAL, label_epsilon=None))


def test_an_epsilon_of_a_label_may_be_small_and_a_response_needs_two_labels() -> None:
    for epsilon in (1e-3, 1.0, 30.0):
        (hook,) = preset_of(replace(LOCAL, label_epsilon=epsilon)).hooks
        assert hook.response == RandomisedResponse(3, epsilon, 4)
    for categories in (0, 1):
        with pytest.raises(LogicError, match=f"of {categories} labels"):
            RandomisedResponse(categories, 1.0, 1)
    assert RandomisedResponse(2, 1.0, 1).kept > 0.5
