"""The engines agree: the same initial values, and one step, gradient and loss within rounding."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from fedmx.components.engines import engine_of
from layers.compute.data.dataset import Samples
from layers.compute.data.targets import Targets
from layers.compute.engines.architectures import ARCHITECTURES, Architecture, Dense
from layers.compute.engines.engine import Engine
from layers.compute.engines.numpy.engine import NumpyEngine, one_thread
from layers.compute.engines.numpy.network import OPERATORS, _max_pooling
from layers.compute.engines.numpy.operators import Node, backward
from layers.compute.engines.one_thread import OneThreadOfProcess
from layers.compute.errors import ComputeError
from layers.compute.losses import LOSSES, OWN_LOSSES, Loss, Softmax
from layers.compute.losses.references import Distillation
from tests.compute.engines.training import plan, samples

MODELS = ("logistic", "2nn", "lenet5", "cnn3")
GREY = (1, 28, 28)
DATA = samples(24, GREY, 10)


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.needs_torch)])
def other(request: pytest.FixtureRequest) -> Any:
    """The class of an engine that is compared with MXNet's."""
    if request.param == "torch":
        pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    return engine_of(request.param)


@pytest.fixture
def mxnet() -> Any:
    """The class of MXNet's engine."""
    return engine_of("mxnet")


def built(engine: Any, name: str = "lenet5", loss: Loss | None = None) -> Engine:
    made: Engine = engine(ARCHITECTURES[name], GREY, 10, seed=3, loss=loss)
    return made


@pytest.mark.parametrize("name", sorted({*ARCHITECTURES} - {"vgg11s"}))
def test_a_name_is_the_same_model_with_the_same_initial_values(
    name: str, mxnet: Any, other: Any
) -> None:
    one, two = built(mxnet, name), built(other, name)
    assert one.layout == two.layout
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.initial(8)[0].tobytes() == two.initial(8)[0].tobytes()
    assert one.outputs(DATA).logits == pytest.approx(two.outputs(DATA).logits, abs=1e-5)


def test_a_model_without_a_seed_has_the_initial_values_of_seed_0(mxnet: Any, other: Any) -> None:
    for engine in (mxnet, other):
        made = engine(ARCHITECTURES["logistic"], GREY, 10)
        assert made.weights.tobytes() == made.initial(0)[0].tobytes()
        assert made.weights.tobytes() != made.initial(1)[0].tobytes()


def test_an_engine_gives_its_weights_by_name_and_takes_numbers(mxnet: Any, other: Any) -> None:
    for engine in (built(mxnet), built(other)):
        assert not engine.takes_tokens
        values = engine.values()
        assert list(values) == [one.name for one in engine.layout]
        assert [one.shape for one in values.values()] == [one.shape for one in engine.layout]
        joined = np.concatenate([one.reshape(-1) for one in values.values()])
        assert joined.tobytes() == engine.weights.tobytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch_size": 0}, "batch_size=0 "),
        ({"batch_size": 8, "start": 4}, "rows 4 to 24 of 24: .* size 8,"),
        ({"batch_size": 8, "start": -8}, "rows -8 to 24 of 24: "),
        ({"batch_size": 8, "start": 8, "stop": 8}, "rows 8 to 8 of 24: "),
        ({"batch_size": 8, "start": 16, "stop": 25}, "rows 16 to 25 of 24: "),
        ({"batch_size": 8, "start": 24}, "rows 24 to 24 of 24: "),
    ],
)
def test_rows_that_cannot_be_evaluated_are_refused(
    given: dict[str, int], said: str, other: Any
) -> None:
    engine = built(other, "logistic")
    with pytest.raises(ComputeError, match=said):
        engine.scores(DATA, **given)
    assert len(engine.scores(DATA, 8, 16, 24).losses) == 8


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_and_a_step_agree(name: str, mxnet: Any, other: Any) -> None:
    one, two = built(mxnet, name), built(other, name)
    assert one.gradient(DATA) == pytest.approx(two.gradient(DATA), abs=2e-6)
    settings = plan(steps=1, momentum=0.9, weight_decay=0.01)
    reports = [engine.train(DATA, settings, 5) for engine in (one, two)]
    assert one.weights == pytest.approx(two.weights, abs=1e-5)
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-5)
    assert one.evaluate(DATA).loss == pytest.approx(two.evaluate(DATA).loss, abs=1e-5)


def trained(engine: Any, loss: Loss, parts: int = 1) -> tuple[np.ndarray, float]:
    """The weights after two steps with a loss, and what is reported."""
    made = built(engine, "2nn", loss)
    made.accumulate = parts
    rng = np.random.default_rng(0)
    models = {name: made.initial(number)[0] for number, name in enumerate(loss.references)}
    arrays = {
        "soft_labels": rng.dirichlet(np.ones(10), len(DATA)).astype("f"),
        "prototypes": np.vstack([rng.normal(size=(9, 64)), np.full((1, 64), np.nan)]),
    }
    given = {name: arrays[name] for name in loss.arrays}
    report = made.train(DATA, plan(steps=2), 5, references=models, arrays=given)
    return made.weights.copy(), report.loss


EVERY_LOSS = pytest.mark.parametrize(
    "make",
    [
        *(LOSSES[name] for name in sorted({*LOSSES} - {*OWN_LOSSES})),
        Softmax,
        lambda: Distillation(None),
    ],
)


@EVERY_LOSS
def test_every_loss_trains_alike(make: Callable[[], Loss], mxnet: Any, other: Any) -> None:
    (weights, loss), (others, reported) = trained(mxnet, make()), trained(other, make())
    assert weights == pytest.approx(others, abs=1e-5)
    assert loss == pytest.approx(reported, abs=1e-5)


@EVERY_LOSS
def test_a_step_in_parts_is_the_step(make: Callable[[], Loss], mxnet: Any, other: Any) -> None:
    for engine in (mxnet, other):
        (weights, loss), (others, reported) = trained(engine, make()), trained(engine, make(), 3)
        assert weights == pytest.approx(others, abs=1e-6)
        assert loss == pytest.approx(reported, abs=1e-6)


def test_a_step_in_parts_has_no_graph_of_the_whole_batch(other: Any) -> None:
    engine, sizes = built(other, "2nn"), []
    engine.accumulate, bind = 3, engine._step

    def spied(objective: Any, batch: int, inputs: Any) -> Any:
        sizes.append(batch)
        return bind(objective, batch, inputs)

    engine._step = spied  # type: ignore[method-assign]
    engine.train(DATA, plan(batch_size=10), 5)
    assert sorted(set(sizes)) == [1, 2, 3, 4], "24 samples are 10, 10 and 4"


def test_a_model_of_two_classes_with_one_output_trains_alike(mxnet: Any, other: Any) -> None:
    data = samples(24, (6,), 2)
    ends = []
    for engine in (mxnet, other):
        made = engine(
            lambda: Architecture((Dense(5, relu=True), Dense(1))),
            (6,),
            2,
            seed=1,
            loss=LOSSES["sigmoid"](),
        )
        made.train(data, plan(epochs=2), 5)
        ends.append((made.weights.copy(), made.evaluate(data).loss))
    assert ends[0][0] == pytest.approx(ends[1][0], abs=1e-5)
    assert ends[0][1] == pytest.approx(ends[1][1], abs=1e-5)


def test_a_layer_has_the_name_and_the_outputs_of_the_other_engine(mxnet: Any, other: Any) -> None:
    one, two = built(mxnet), built(other)
    for layer in ("", "1", "5"):
        values = [engine.outputs(DATA, [layer]).layers[layer] for engine in (one, two)]
        assert values[0] == pytest.approx(values[1], abs=1e-5)
    with pytest.raises(ComputeError, match="layer of the model '99'"):
        two.outputs(DATA, ["99"])


def test_the_bits_of_a_training_come_again_and_dropout_draws_from_its_seed(other: Any) -> None:
    engine, ends = built(other, "knapsack-cnn"), []
    for seed in (1, 1, 2):
        engine.load(*engine.initial(3))
        engine.train(DATA, plan(batch_size=len(DATA), steps=2), seed)
        ends.append(engine.weights.tobytes())
        alone = engine.scores(DATA, 8, 8, 16).losses
        assert alone.tobytes() == engine.scores(DATA, 8).losses[8:16].tobytes()
    assert ends[0] == ends[1] != ends[2]


def test_a_correction_changes_the_step_and_no_gradient_changes_the_model(other: Any) -> None:
    engine = built(other, "2nn")
    before = engine.weights.copy()
    batches = engine.batches(DATA, plan(steps=1), 5)
    (batch,) = batches
    assert engine.batch_gradient(batch).any()
    assert engine.weights.tobytes() == before.tobytes()

    def stop(gradient: np.ndarray, weights: np.ndarray) -> None:
        gradient[...] = 0

    engine.step(batch, stop)
    assert engine.weights.tobytes() == before.tobytes()
    engine.step(batch)
    assert engine.weights.tobytes() != before.tobytes()
    assert batches.report().steps == 2


@pytest.mark.parametrize(
    ("layers", "shape", "said"),
    [
        ((Dense(3),), (4,), r"\(2, 3\)"),
        (ARCHITECTURES["lenet5"]().layers, (4,), r"\(4,\)"),
        (ARCHITECTURES["lenet5"]().layers, (1, 5, 5), r"\(1, 5, 5\).* layer 2$"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    layers: Any, shape: tuple[int, ...], said: str, other: Any
) -> None:
    with pytest.raises(ComputeError, match=said):
        other(lambda: Architecture(layers), shape, 10)


# Signs, zero, the bounds of a clip, and values with a large exponential.
X = np.array([[-2, -0.5, 0, 1], [1.5, 2, 30, -30], [0.25, -1, 3, 0.5]], np.float32)
Z = X[::-1, ::-1].copy() + np.float32(0.25)
ABOVE_0 = np.abs(X) + np.float32(0.5)
COLUMN, ROW, ONE = Z[:, :1], Z[:1], Z[:1, :1]
CLASSES, FLAGS = np.array([2, 0, 3], np.float32), np.array([1, 0, 1], np.float32)
# What a loss computes, by name; constants have no gradient.
COMPUTED: dict[str, tuple[Callable[..., Any], list[np.ndarray], list[np.ndarray]]] = {
    "x + z": (lambda F, x, z: x + z, [X, Z], []),
    "x + row": (lambda F, x, z: x + z, [X, ROW], []),
    "2.5 + x": (lambda F, x: 2.5 + x, [X], []),
    "x - z": (lambda F, x, z: x - z, [X, Z], []),
    "x - 2.5": (lambda F, x: x - 2.5, [X], []),
    "2.5 - x": (lambda F, x: 2.5 - x, [X], []),
    "x * z": (lambda F, x, z: x * z, [X, Z], []),
    "column * x": (lambda F, z, x: z * x, [COLUMN, X], []),
    "x * values": (lambda F, x, z: x * z, [X, Z[0]], []),
    "2.5 * x": (lambda F, x: 2.5 * x, [X], []),
    "x / z": (lambda F, x, z: x / z, [X, ABOVE_0], []),
    "row / x": (lambda F, z, x: z / x, [ROW, ABOVE_0], []),
    "x / one": (lambda F, x, z: x / z, [X, ONE], []),
    "x / 2.5": (lambda F, x: x / 2.5, [X], []),
    "2.5 / x": (lambda F, x: 2.5 / x, [ABOVE_0], []),
    "-x": (lambda F, x: -x, [X], []),
    "x ** 1.5": (lambda F, x: x**1.5, [ABOVE_0], []),
    "x twice": (lambda F, x: F.exp(x / 30) * x + x, [X], []),
    "Activation": (lambda F, x: F.Activation(x, act_type="softrelu"), [X], []),
    "Activation relu": (lambda F, x: F.Activation(x, act_type="relu"), [X], []),
    "Activation sigmoid": (lambda F, x: F.Activation(x, act_type="sigmoid"), [X], []),
    "LogisticRegressionOutput": (
        lambda F, x, y: F.LogisticRegressionOutput(x, y, grad_scale=0.5),
        [X[:, 0].copy()],
        [FLAGS],
    ),
    "MakeLoss": (lambda F, x: F.MakeLoss(x, grad_scale=0.5), [X], []),
    "Reshape": (lambda F, x: F.Reshape(x, shape=(-1, 2)), [X], []),
    "SoftmaxOutput": (lambda F, x, y: F.SoftmaxOutput(x, y, grad_scale=0.5), [X], [CLASSES]),
    "abs": (lambda F, x: F.abs(x), [X], []),
    "broadcast_add": (lambda F, x, z: F.broadcast_add(x, z), [COLUMN, ROW], []),
    "broadcast_mul": (lambda F, x, z: F.broadcast_mul(x, z), [X, COLUMN], []),
    "broadcast_sub": (lambda F, x, z: F.broadcast_sub(x, z), [ROW, X], []),
    "clip": (lambda F, x: F.clip(x, -0.5, 1.5), [X], []),
    "exp": (lambda F, x: F.exp(x / 8), [X], []),
    "log": (lambda F, x: F.log(x), [ABOVE_0], []),
    "log_softmax": (lambda F, x: F.log_softmax(x), [X], []),
    "mean": (lambda F, x: F.mean(x, axis=1), [X], []),
    "pick": (lambda F, x, y: F.pick(x, y), [X], [CLASSES]),
    "pick axis": (lambda F, x, y: F.pick(x, y, axis=-1), [X], [CLASSES]),
    "relu": (lambda F, x: F.relu(x), [X], []),
    "reshape": (lambda F, x: F.reshape(x, shape=(6, 2)), [X], []),
    "sigmoid": (lambda F, x: F.sigmoid(x), [X], []),
    "softmax": (lambda F, x: F.softmax(x), [X], []),
    "sqrt": (lambda F, x: F.sqrt(x), [ABOVE_0], []),
    "square": (lambda F, x: F.square(x), [X], []),
    "sum": (lambda F, x: F.sum(x, axis=0), [X], []),
    "take": (lambda F, x, y: F.take(x, y), [X], [np.array([2, 0, 2, 1, 2], np.float32)]),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_an_operator_has_the_values_and_the_gradients_of_mxnets(name: str) -> None:
    compute, variables, constants = COMPUTED[name]
    own = [Node(one, leaf=True) for one in variables]
    value = compute(OPERATORS, *own, *map(Node, constants))
    factors = np.linspace(-1, 2, value.array.size, dtype=np.float32).reshape(value.array.shape)
    backward(value * Node(factors))

    theirs = [mx.nd.array(one) for one in variables]
    for one in theirs:
        one.attach_grad()
    with mx.autograd.record():
        expected = compute(mx.nd, *theirs, *map(mx.nd.array, constants))
        head = expected * mx.nd.array(factors)
    head.backward()

    assert value.array.dtype == np.float32
    np.testing.assert_allclose(value.array, expected.asnumpy(), rtol=1e-5, atol=1e-5)
    for mine, other in zip(own, theirs, strict=True):
        assert mine.gradient.dtype == np.float32
        np.testing.assert_allclose(mine.gradient, other.grad.asnumpy(), rtol=1e-5, atol=1e-5)


def test_every_operator_of_numpy_is_compared() -> None:
    assert {name for name in dir(OPERATORS) if not name.startswith("_")} <= {*COMPUTED}


def test_an_operator_with_other_settings_than_it_has_is_refused() -> None:
    x, y = Node(X, leaf=True), Node(CLASSES)
    with pytest.raises(ComputeError, match="act_type 'tanh'"):
        OPERATORS.Activation(x, act_type="tanh")
    with pytest.raises(ComputeError, match="axis 0"):
        OPERATORS.pick(x, y, axis=0)


def test_numpys_gradient_of_a_maximum_goes_to_the_first_of_equal_values() -> None:
    x = Node(np.array([[[[1, 2], [2, 2]]]], np.float32), leaf=True)
    backward(_max_pooling(x, 2))
    assert x.gradient.tolist() == [[[[0, 1], [0, 0]]]]


def test_numpy_runs_on_one_thread_and_gives_the_others_back() -> None:
    one = one_thread()
    libraries = one._libraries
    before = [library.get_num_threads() for library in libraries]
    with one.kept(), one:
        assert {library.get_num_threads() for library in libraries} == {1}
    assert [library.get_num_threads() for library in libraries] == before


class Failing(OneThreadOfProcess):
    """A context whose first entry fails."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def limit_process(self, before: list[int]) -> None:
        self.calls.append("limit")
        if len(self.calls) == 1:
            raise KeyboardInterrupt

    def restore_process(self, before: list[int]) -> None:
        self.calls.append("restore")


def test_threads_are_given_back_after_an_interrupt() -> None:
    one = Failing()
    with pytest.raises(KeyboardInterrupt), one:
        pass
    assert (one.calls, one.thread.limits.held) == (["limit", "restore"], 0)
    with ThreadPoolExecutor(1) as pool:  # the turn is free
        assert pool.submit(one.turn.acquire, timeout=60).result()
        pool.submit(one.turn.release).result()
    with one:
        assert one.calls[2:] == ["limit"]
    assert one.calls[2:] == ["limit", "restore"]


def test_numpy_has_no_gluon_block_and_names_an_operator_that_it_lacks() -> None:
    with pytest.raises(ComputeError, match="str"):
        NumpyEngine(lambda: "a model", GREY, 10)

    class Own(Loss):
        def losses(self, F: Any, given: Any) -> Any:
            return F.SequenceMask(given.outputs.logits)

    with pytest.raises(ComputeError, match="SequenceMask"):
        built(NumpyEngine, "logistic").train(DATA, plan(), 1, loss=Own())


def of_kind(targets: Targets) -> Samples:
    rng = np.random.default_rng(0)
    x, shape = rng.normal(size=(24, 6)).astype("f"), (24, *targets.shape)
    if targets.kind == "real":
        return Samples(x, rng.normal(size=shape).astype("f"))
    return Samples(x, rng.integers(0, 2, shape))


@pytest.mark.parametrize(
    "loss", [one() for one in OWN_LOSSES.values() if {*one.TARGETS} & {"real", "multi-label"}]
)
def test_other_targets_train_alike(loss: Any, mxnet: Any, other: Any) -> None:
    targets = Targets(loss.TARGETS[0], 3)
    data, ends = of_kind(targets), []
    for engine in (mxnet, other):
        made = engine(
            lambda: Architecture((Dense(5, relu=True), Dense(3))), (6,), targets, seed=1, loss=loss
        )
        before = made.evaluate(data).loss
        expected = loss.loss(made.outputs(data).logits, data.y).mean()
        assert before == pytest.approx(expected, rel=1e-9)
        report = made.train(data, plan(epochs=2, momentum=0.5), 5)
        assert made.evaluate(data).loss < before
        ends.append((made.weights.copy(), report.loss, made.evaluate(data).loss))
    for one, two in zip(*ends, strict=True):
        assert one == pytest.approx(two, abs=1e-5)
