"""Every loss is its equation, and its gradient that of finite differences, however it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from mxnet.gluon import HybridBlock, nn

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.errors import ComputeError
from layers.compute.losses import LOSSES, OWN_LOSSES, Loss, Sigmoid, Softmax
from layers.compute.losses.labels import Focal, LabelSmoothing, LogitAdjustment
from layers.compute.losses.references import Distillation, FedProto, Moon
from tests.compute.engines.toys import PlainBlock, batchnorm, is_compiled, wide_convolutions
from tests.compute.engines.training import plan, samples

N, INPUTS, HIDDEN, CLASSES = 9, 4, 5, 3
DATA = samples(N, (INPUTS,), CLASSES, seed=3)
RNG = np.random.default_rng(0)
RECEIVED, PREVIOUS, TEACHER = (RNG.normal(0, 0.7, 43) for _ in range(3))
SOFT = RNG.dirichlet(np.ones(CLASSES), N)
PROTOTYPES = np.vstack([RNG.normal(size=(2, HIDDEN)), np.full((1, HIDDEN), np.nan)])


def two_layers() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(HIDDEN, activation="tanh"), nn.Dense(CLASSES))
    return net


def forward(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden values (n, 5) and the outputs (n, 3), in float64."""
    first, second = w[:25], w[25:]
    h = np.tanh(DATA.x @ first[:20].reshape(HIDDEN, INPUTS).T + first[20:])
    return h, h @ second[:15].reshape(CLASSES, HIDDEN).T + second[15:]


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def own(values: np.ndarray) -> np.ndarray:
    return values[np.arange(N), DATA.y]


def cross_entropy(w: np.ndarray) -> np.ndarray:
    return -own(log_softmax(forward(w)[1]))


def smoothed(w: np.ndarray) -> np.ndarray:
    q = np.full((N, CLASSES), 0.2 / CLASSES)
    q[np.arange(N), DATA.y] += 0.8
    return -(q * log_softmax(forward(w)[1])).sum(1)


def focal(w: np.ndarray) -> np.ndarray:
    p = np.exp(-cross_entropy(w))
    return (1 - p) ** 1.5 * -np.log(p)


def adjusted(w: np.ndarray) -> np.ndarray:
    counts = np.bincount(DATA.y, minlength=CLASSES) + 1
    prior = counts / (N + CLASSES)
    return -own(log_softmax(forward(w)[1] + 0.5 * np.log(prior)))


def distilled(q_of: Callable[[], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    def losses(w: np.ndarray) -> np.ndarray:
        q = q_of()
        kl = (q * (np.log(q) - log_softmax(forward(w)[1] / 2))).sum(1)
        return 0.7 * cross_entropy(w) + 0.3 * 4 * kl

    return losses


def cos(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def moon(
    w: np.ndarray, received: np.ndarray = RECEIVED, previous: np.ndarray = PREVIOUS
) -> np.ndarray:
    z, near, far = (forward(one)[0] for one in (w, received, previous))
    a, b = np.exp(cos(z, near) / 0.5), np.exp(cos(z, far) / 0.5)
    return cross_entropy(w) + 2.0 * -np.log(a / (a + b))


def fedproto(w: np.ndarray) -> np.ndarray:
    away = ((forward(w)[0] - PROTOTYPES[DATA.y]) ** 2).mean(1)
    return cross_entropy(w) + 0.6 * np.where(DATA.y == 2, 0, away)


@dataclass(frozen=True)
class Case:
    loss: Loss
    equation: Callable[[np.ndarray], np.ndarray]
    references: tuple[tuple[str, np.ndarray], ...] = ()
    arrays: tuple[tuple[str, np.ndarray], ...] = ()


TEACHERS_Q = lambda: np.exp(log_softmax(forward(TEACHER)[1] / 2))  # noqa: E731
CASES = {
    "softmax": Case(Softmax(), cross_entropy),
    "label-smoothing": Case(LabelSmoothing(0.2), smoothed),
    "focal": Case(Focal(1.5), focal),
    "logit-adjustment": Case(LogitAdjustment(0.5), adjusted),
    "distillation": Case(
        Distillation("teacher", 0.3, 2.0), distilled(TEACHERS_Q), (("teacher", TEACHER),)
    ),
    "soft labels": Case(
        Distillation(None, 0.3, 2.0), distilled(lambda: SOFT), arrays=(("soft_labels", SOFT),)
    ),
    "moon": Case(Moon(2.0), moon, (("received", RECEIVED), ("previous", PREVIOUS))),
    "moon, a layer by name": Case(
        Moon(2.0, layer="0"), moon, (("received", RECEIVED), ("previous", PREVIOUS))
    ),
    "fedproto": Case(FedProto(0.6), fedproto, arrays=(("prototypes", PROTOTYPES),)),
}


def batches_of(engine: MXNetEngine, case: Case, plan: Any, seed: int) -> Any:
    given = {"references": dict(case.references), "arrays": dict(case.arrays)}
    return engine.batches(DATA, plan, seed, **given)


def engine_of(case: Case, compiled: bool) -> MXNetEngine:
    build = two_layers if compiled else lambda: PlainBlock(two_layers)
    loss = case.loss
    if not compiled and getattr(loss, "layer", "") == "0":
        loss = Moon(2.0, layer="inner.0")
    engine = MXNetEngine(build, (INPUTS,), CLASSES, seed=2, loss=loss)
    assert is_compiled(engine) == compiled
    return engine


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_its_equation_and_its_gradient_the_difference(name: str, compiled: bool) -> None:
    case = CASES[name]
    engine = engine_of(case, compiled)
    w = engine.weights.astype(np.float64)
    batches = batches_of(engine, case, plan(batch_size=0), 1)
    (batch,) = batches
    gradient = engine.batch_gradient(batch).copy()
    steps = 1e-5 * np.eye(w.size)
    slopes = [(case.equation(w + e).mean() - case.equation(w - e).mean()) / 2e-5 for e in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=2e-4, atol=2e-6)
    engine.step(batch)
    losses = case.equation(w)
    assert batches.report().loss == pytest.approx(losses.mean(), rel=1e-5)
    assert batches.report().rms_loss == pytest.approx(np.sqrt((losses**2).mean()), rel=1e-5)


def test_every_loss_of_the_catalogue_has_a_case() -> None:
    tested = {case.loss for case in CASES.values()}
    assert {type(loss) for loss in tested} | {*OWN_LOSSES.values()} == set(LOSSES.values())
    assert all(name == kind.name for name, kind in LOSSES.items())


@pytest.mark.parametrize("loss", [None, Focal(2.0)])
def test_the_sigmoid_has_the_same_gradient_as_its_equation(loss: Loss | None) -> None:
    def one_output() -> Any:
        net = nn.HybridSequential()
        net.loss = "sigmoid"
        net.add(nn.Dense(1))
        return net

    engine = MXNetEngine(one_output, (INPUTS,), 2, loss=loss)
    data = Samples(DATA.x, DATA.y % 2)

    def mean(w: np.ndarray) -> float:
        z = DATA.x @ w[:4] + w[4]
        c = np.log1p(np.exp(z)) - data.y * z
        return float((c if loss is None else (1 - np.exp(-c)) ** 2 * c).mean())

    w = engine.weights.astype(np.float64)
    slopes = [(mean(w + e) - mean(w - e)) / 2e-5 for e in 1e-5 * np.eye(5)]
    np.testing.assert_allclose(engine.gradient(data), slopes, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(
    "name", ["distillation", "soft labels", "moon", "fedproto", "logit-adjustment"]
)
def test_mini_batches_get_the_rows_of_their_own_samples(name: str) -> None:
    case = CASES[name]
    engine = engine_of(case, compiled=True)
    losses = case.equation(engine.weights.astype(np.float64))
    for steps in (None, 2):  # with two steps, references compute only the rows of these
        batches = batches_of(engine, case, plan(batch_size=4, steps=steps, learning_rate=0.0), 7)
        for batch in batches:
            engine.step(batch)
        expected = [losses[batch.rows].mean() for batch in batches]
        assert batches.report().loss == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("build", [wide_convolutions, batchnorm, build_model("lenet5")])
def test_convolutions_with_a_layer_for_the_loss_train_like_a_plain_block(build: Any) -> None:
    shape = (1, 28, 28)
    data = samples(12, shape, 10)
    engines = [MXNetEngine(one, shape, 10, seed=1) for one in (build, lambda: PlainBlock(build))]
    weights, _ = engines[0].initial(2)
    given = {"references": {"received": weights, "previous": -weights}}
    gradients = []
    for engine in engines:
        (batch,) = engine.batches(data, plan(batch_size=0), 1, loss=Moon(5.0), **given)
        gradients.append(engine.batch_gradient(batch).copy())
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)


def test_two_losses_take_turns_on_one_engine() -> None:
    case = CASES["moon"]
    engine = engine_of(case, compiled=True)
    plain = engine_of(CASES["softmax"], compiled=True)
    (moon_batch,) = engine.batches(DATA, plan(batch_size=0), 1, references=dict(case.references))
    (own_batch,) = engine.batches(DATA, plan(batch_size=0), 1, loss=Softmax())
    (plain_batch,) = plain.batches(DATA, plan(batch_size=0), 1)
    first = engine.batch_gradient(moon_batch).tobytes()
    assert engine.batch_gradient(own_batch).tobytes() == plain.batch_gradient(plain_batch).tobytes()
    assert engine.batch_gradient(moon_batch).tobytes() == first


def test_the_graphs_of_the_last_three_losses_are_kept() -> None:
    engine = engine_of(CASES["softmax"], compiled=True)
    for gamma in (0, 1, 2, 0, 3):
        loss = Focal(float(gamma))
        (batch,) = engine.batches(DATA, plan(batch_size=0), 1, loss=loss)
        alone = engine_of(Case(loss, focal), compiled=True).gradient(DATA)
        np.testing.assert_allclose(engine.batch_gradient(batch), alone, rtol=1e-5, atol=1e-7)
    assert [loss for loss, *_ in engine._objectives] == [Focal(2.0), Focal(0.0), Focal(3.0)]


def test_a_loss_that_a_trainer_must_serve_is_not_one_alone() -> None:
    for loss in (Focal(), LogitAdjustment()):
        assert engine_of(Case(loss, focal), compiled=True).loss_alone == loss
    for loss in (Moon(), Distillation(), Distillation(None), FedProto()):
        assert engine_of(Case(loss, focal), compiled=True).loss_alone == Softmax()


def test_a_loss_that_cannot_be_compared_is_refused() -> None:
    @dataclass
    class Changing(Loss):
        factor: float = 2.0

        def losses(self, F: Any, given: Any) -> Any:
            return self.factor * given.cross_entropy(F)

    engine = engine_of(CASES["softmax"], compiled=True)
    with pytest.raises(ComputeError, match=r"loss Changing .*frozen=True"):
        engine.batches(DATA, plan(), 1, loss=Changing())


def test_the_defaults_are_those_of_the_descriptions() -> None:
    assert {name: vars(kind()) for name, kind in LOSSES.items()} == {
        "softmax": {},
        "sigmoid": {},
        "bce": {},
        "token-softmax": {},
        "mse": {},
        "mae": {},
        "huber": {"delta": 1.0},
        "poisson": {},
        "label-smoothing": {"epsilon": 0.1},
        "focal": {"gamma": 2.0},
        "logit-adjustment": {"tau": 1.0, "smoothing": 1.0},
        "distillation": {"reference": "received", "weight": 0.5, "temperature": 1.0},
        "moon": {"mu": 1.0, "temperature": 0.5, "layer": ""},
        "fedproto": {"lam": 1.0, "layer": ""},
    }


def test_evaluation_takes_the_first_largest_output_or_a_positive_one() -> None:
    z, y = np.array([[1, 3, 3], [2, 2, 0], [-2, -1, -3]], np.float32), np.array([1, 2, 1])
    assert Softmax().predict(z).tolist() == [1, 0, 1]
    np.testing.assert_allclose(
        Softmax().loss(z, y), np.log(np.exp(z).sum(1)) - z[np.arange(3), y], rtol=1e-6
    )
    z, y = np.array([[-1], [0], [1e-6], [0.5], [800]], np.float32), np.array([1, 1, 0, 0, 0])
    assert Sigmoid().predict(z).tolist() == [0, 0, 1, 1, 1]
    expected = [np.log1p(np.e), np.log(2), np.log(2), np.log1p(np.exp(0.5)), 800]
    np.testing.assert_allclose(Sigmoid().loss(z, y), expected, rtol=1e-6)
    p = np.array([[0.75], [0.75]], np.float32)
    assert Sigmoid().likelihood(p, np.array([1, 0])).tolist() == [0.75, 0.25]


def test_evaluation_is_by_the_models_own_loss() -> None:
    case = CASES["label-smoothing"]
    smooth, plain = engine_of(case, compiled=True), engine_of(CASES["softmax"], compiled=True)
    assert smooth.evaluate(DATA) == plain.evaluate(DATA)


@dataclass(frozen=True)
class HiddenSize(Loss):
    """Half the squared norm of the hidden values: the last layer does not enter it."""

    @property
    def layers(self) -> tuple[str, ...]:
        return ("",)

    def losses(self, F: Any, given: Any) -> Any:
        return 0.5 * F.sum(F.square(given.outputs.layers[""]), axis=1)


@pytest.mark.parametrize("compiled", [True, False])
def test_parameters_that_a_loss_does_not_read_have_no_gradient(compiled: bool) -> None:
    engine = engine_of(Case(Softmax(), cross_entropy), compiled)
    (usual,) = engine.batches(DATA, plan(batch_size=0), 1)
    (hidden,) = engine.batches(DATA, plan(batch_size=0), 1, loss=HiddenSize())
    assert np.abs(engine.batch_gradient(usual)[25:]).max() > 0
    gradient = engine.batch_gradient(hidden)
    assert np.abs(gradient[:25]).max() > 0
    assert not gradient[25:].any()


MODELS = {"references": {"received": RECEIVED, "previous": PREVIOUS}}


@pytest.mark.parametrize(
    ("loss", "given", "words"),
    [
        (Moon(), {}, ("moon", "received")),
        (Moon(), {"references": {"received": RECEIVED}}, ("moon", "previous")),
        (FedProto(), {}, ("fedproto", "prototypes")),
        (Distillation(None), {"arrays": {"soft_labels": SOFT[:4]}}, ("distillation", "4 rows")),
        (FedProto(), {"arrays": {"prototypes": SOFT}}, ("fedproto", "prototypes")),
        (Moon(layer="4.7"), MODELS, ("4.7",)),
        (Sigmoid(), {}, ("sigmoid", "softmax")),
    ],
)
def test_what_a_loss_lacks_is_said_in_one_line(
    loss: Loss, given: dict[str, Any], words: tuple[str, ...]
) -> None:
    engine = MXNetEngine(two_layers, (INPUTS,), CLASSES)
    with pytest.raises(ComputeError) as caught:
        engine.batches(DATA, plan(), 1, loss=loss, **given)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


class Spare(HybridBlock):
    """A layer, and one that the model does not use."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.used = nn.Dense(CLASSES)
            self.spare = nn.Dense(HIDDEN, in_units=INPUTS)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.used(x)


def test_a_layer_that_the_model_does_not_use_is_refused() -> None:
    engine = MXNetEngine(Spare, (INPUTS,), CLASSES)
    with pytest.raises(ComputeError, match="layer that the loss reads is not used"):
        engine.outputs(DATA, ["spare"])


def test_a_loss_is_refused_with_a_model_that_it_does_not_fit() -> None:
    def one_output() -> Any:
        net = nn.Dense(1)
        net.loss = "sigmoid"
        return net

    with pytest.raises(ComputeError, match=r"label-smoothing.*sigmoid"):
        MXNetEngine(one_output, (INPUTS,), 2, loss=LabelSmoothing())
    with pytest.raises(ComputeError, match="no_such"):
        MXNetEngine(two_layers, (INPUTS,), CLASSES, loss=Moon(layer="no_such"))


def test_an_absent_class_is_left_out_without_smoothing() -> None:
    y = np.where(DATA.y == 2, 0, DATA.y)
    engine = MXNetEngine(two_layers, (INPUTS,), CLASSES, loss=LogitAdjustment(smoothing=0))
    gradient = engine.gradient(Samples(DATA.x, y))
    assert np.isfinite(gradient).all()
    assert not gradient[35:40].any()  # the weights of the third output
    assert gradient[42] == 0
