"""Many clients at once on PyTorch: the weights of each are those of its own training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from layers.compute.data.dataset import Samples
from layers.compute.engines.architectures import ARCHITECTURES
from layers.compute.engines.batches import Training
from layers.compute.losses.labels import Focal, LogitAdjustment
from layers.compute.losses.references import Distillation
from layers.compute.optimisers import OPTIMISERS
from layers.compute.optimisers.sgd import Sgd
from layers.logic.core.gradient_term import GradientTerm
from tests.compute.engines.training import plan, samples

pytestmark = pytest.mark.needs_torch

IMAGES, VALUES = (1, 28, 28), (6,)
SIZES = (25, 7, 40, 8, 33)  # with the last, smaller mini-batches in different steps
PLAN = plan(epochs=2, batch_size=10, momentum=0.9, weight_decay=0.01)


@pytest.fixture
def toys() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    from tests.compute.engines import torch_toys

    return torch_toys


def engine(build: Any, shape: tuple[int, ...], **more: Any) -> Any:
    from layers.compute.engines.torch.engine import TorchEngine

    return TorchEngine(build, shape, 3, seed=4, **more)


def two_nn() -> Any:
    return ARCHITECTURES["2nn"](3)


def data_of(shape: tuple[int, ...]) -> list[Samples]:
    if shape == (7,):  # tokens
        rng = np.random.default_rng(0)
        return [Samples(rng.integers(0, 50, (n, 7)), rng.integers(0, 3, n)) for n in SIZES]
    return [samples(n, shape, 3, seed=n) for n in SIZES]


class Trained:
    """The same trainings, one after the other and at once.

    Args:
        made: the engine.
        data: the samples of the clients.
        how: the plan of all clients, or of each.
        terms: the terms of each client's gradients.
    """

    def __init__(
        self,
        made: Any,
        data: list[Samples],
        how: Any = PLAN,
        terms: Any = lambda start, client: (),
        most: int = 3,
    ) -> None:
        from layers.compute.engines.torch.cohort import Cohort

        self.said: list[str] = []
        self.cohort = Cohort(made, most, self.said.append)
        start, buffers = made.initial(7)
        references = {one: made.initial(8) for one in made.loss.references}
        plans = how if isinstance(how, list) else [how] * len(data)
        self.alone, self.alone_reports, trainings = [], [], []
        for client, (own, one) in enumerate(zip(data, plans, strict=True)):

            def correct(gradient: np.ndarray, weights: np.ndarray, given: Any) -> None:
                for term in filter(None, given):
                    term.add(gradient, weights)

            given = terms(start, client)
            made.load(start, buffers)
            report = made.train(
                own,
                one,
                client,
                lambda gradient, weights, given=given: correct(gradient, weights, given),
                references=references,
            )
            self.alone.append(made.weights.copy())
            self.alone_reports.append(report)
            made.load(start, buffers)
            batches = made.batches(own, one, client, references=references)
            trainings.append(Training(start, batches, terms(start, client)))
        self.trainings = trainings

    def check(self) -> None:
        """Check that both end in the same weights and reports."""
        assert self.cohort.refusal(self.trainings[0]) == ""
        together = self.cohort.train(self.trainings)
        for number, (one, other) in enumerate(zip(self.alone, together, strict=True)):
            assert other == pytest.approx(one, abs=1e-5), number
        for one, training in zip(self.alone_reports, self.trainings, strict=True):
            report = training.batches.report()
            assert (report.steps, report.samples) == (one.steps, one.samples)
            assert (report.loss, report.rms_loss) == pytest.approx(
                (one.loss, one.rms_loss), 1e-4, nan_ok=True
            )


@pytest.mark.parametrize("name", ["2nn", "logistic", "lenet5", "cnn3"])
def test_a_named_model_trains_as_alone(name: str, toys: Any) -> None:
    Trained(engine(lambda: ARCHITECTURES[name](3), IMAGES), data_of(IMAGES)).check()


@pytest.mark.parametrize("name", ["Adapted", "Tied", "Words", "Grouped", "Attending", "Recurrent"])
def test_a_module_trains_as_alone(name: str, toys: Any) -> None:
    tokens = dict.fromkeys(("Words", "Attending", "Recurrent"), (7,))
    shape = {**tokens, "Grouped": (1, 8, 8)}.get(name, VALUES)
    Trained(engine(getattr(toys, name), shape), data_of(shape)).check()


@pytest.mark.parametrize("loss", [Distillation(), Focal(), LogitAdjustment(tau=0.5)])
def test_a_loss_reads_what_each_client_has(loss: Any, toys: Any) -> None:
    Trained(engine(two_nn, IMAGES, loss=loss), data_of(IMAGES)).check()


# Where a gradient is nearly zero, adaptive steps depend on its last bits; epsilon bounds that.
EPSILON = {name: {"epsilon": 1e-3} for name in ("adam", "adamw", "adagrad", "rmsprop")}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_optimiser_steps_as_alone(name: str, momentum: float, toys: Any) -> None:
    made = engine(two_nn, IMAGES)
    made.optimiser = OPTIMISERS[name](**EPSILON.get(name, {}))
    how = plan(epochs=2, batch_size=10, learning_rate=0.01, momentum=momentum, weight_decay=0.01)
    Trained(made, data_of(IMAGES), how).check()


def test_clients_with_other_plans_train_beside_each_other(toys: Any) -> None:
    plans = [
        plan(epochs=1, batch_size=10),
        plan(epochs=1, batch_size=0, learning_rate=0.05),
        plan(steps=0),
        plan(steps=9, batch_size=4),
        plan(epochs=1, batch_size=10),
    ]
    Trained(engine(two_nn, IMAGES), data_of(IMAGES), plans).check()


def test_terms_are_added_to_the_gradients_of_each_client(toys: Any) -> None:
    def terms(start: np.ndarray, client: int) -> list[GradientTerm | None]:
        shift = np.full_like(start, 1e-3 * client)
        return [
            GradientTerm(start + np.float32(0.01 * client), pull=0.3),
            None if client == 1 else GradientTerm(start, shift, later=0.1),
        ]

    Trained(engine(two_nn, IMAGES), data_of(IMAGES), terms=terms).check()


def test_under_bf16_it_trains_as_alone(toys: Any) -> None:
    trained = Trained(
        engine(two_nn, IMAGES, precision="bf16"), data_of(IMAGES), plan(steps=3, learning_rate=0.01)
    )
    assert trained.cohort.refusal(trained.trainings[0]) == ""
    for one, other in zip(trained.alone, trained.cohort.train(trained.trainings), strict=True):
        assert other == pytest.approx(one, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "said"),
    [("Normed", "BatchNorm"), ("Dropping", "dropout"), ("Comparing", "other samples"),
     ("Branching", "data-dependent control flow")],
)  # fmt: skip
def test_a_model_that_cannot_train_at_once_says_why(name: str, said: str, toys: Any) -> None:
    shape = (1, 8, 8) if name == "Normed" else VALUES
    trained = Trained(engine(getattr(toys, name), shape), data_of(shape))
    assert said in trained.cohort.refusal(trained.trainings[0])


@dataclass(frozen=True)
class ByNumpy(Sgd):
    """An optimiser that knows numpy's arrays alone."""

    def change(self, gradient: Any, state: Any, step: Any) -> None:
        np.multiply(gradient, np.float32(step.rate), out=gradient)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"optimiser": ByNumpy()}, "failed"), ({"optimiser": Sgd(state="keep")}, "sgd"),
     ({"accumulate": 2}, "accumulate")],
)  # fmt: skip
def test_what_the_engine_does_besides_says_why(
    changed: dict[str, Any], said: str, toys: Any
) -> None:
    made = engine(two_nn, IMAGES)
    for name, value in changed.items():
        setattr(made, name, value)
    trained = Trained(made, data_of(IMAGES))
    assert said in trained.cohort.refusal(trained.trainings[0])


@dataclass(frozen=True)
class Wasteful(Sgd):
    """An optimiser whose memory is enough for three clients."""

    def change(self, gradient: Any, state: Any, step: Any) -> None:
        import torch

        if gradient.ndim == 2 and len(gradient) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        super().change(gradient, state, step)


def test_out_of_memory_halves_the_clients_and_goes_on(toys: Any) -> None:
    made = engine(two_nn, IMAGES)
    made.optimiser = Wasteful()
    trained = Trained(made, data_of(IMAGES), most=5)
    trained.check()
    assert ["5 clients" in line and ": 2 " in line for line in trained.said] == [True]


def test_the_number_of_clients_follows_from_the_free_memory(
    toys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layers.compute.engines.torch import cohort

    free = 4 * 108_931 * 10 * 2  # ten vectors of two clients, and nothing for their samples
    monkeypatch.setattr(cohort, "free_bytes", lambda device: free)
    trained = Trained(engine(two_nn, IMAGES), data_of(IMAGES), most=5)
    trained.check()
    assert ["1 clients at once" in line for line in trained.said] == [True]
