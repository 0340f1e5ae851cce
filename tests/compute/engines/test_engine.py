"""The engine: local SGD by its formulas, on one flat vector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet.gluon import nn

from layers.compute.data.dataset import Samples
from layers.compute.data.targets import Targets
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.training import shuffled, steps_of
from layers.compute.errors import ComputeError
from layers.compute.losses import Sigmoid
from tests.compute.engines.toys import (
    PlainBlock,
    Untraceable,
    batchnorm,
    dropout,
    is_compiled,
    linear,
)
from tests.compute.engines.training import plan, samples


def softmax_gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean gradient and loss of a linear softmax classifier in float64, from its formula."""
    weight, bias = w[:12].reshape(3, 4), w[12:]
    z = x @ weight.T + bias
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    return np.concatenate([(p.T @ x).ravel(), p.sum(0)]), float(loss)


def sgd(w: np.ndarray, data: Samples, p: SimpleNamespace, seed: int) -> tuple[np.ndarray, float]:
    """Local SGD in float64, in the engine's order of samples."""
    w, v, losses = w.astype(np.float64), np.zeros(len(w)), []
    batch = min(p.batch_size or len(data.y), len(data.y))
    steps = p.epochs * -(-len(data.y) // batch) if p.steps is None else p.steps
    for rows in shuffled(len(data.y), batch, steps, seed):
        g, loss = softmax_gradient(w, data.x[rows].astype(np.float64), data.y[rows])
        losses.append(loss)
        v = p.momentum * v + g + p.weight_decay * w
        w = w - p.learning_rate * v
    return w, float(np.mean(losses))


@pytest.fixture(scope="module")
def toy() -> MXNetEngine:
    return MXNetEngine(linear, (4,), 3, seed=5)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 23),
    batch_size=st.integers(0, 30),
    epochs=st.integers(1, 3),
    steps=st.sampled_from([None, 1, 7]),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.01]),
    seed=st.integers(0, 2**63 - 1),
)
def test_training_is_local_sgd(toy: MXNetEngine, n: int, seed: int, **given: Any) -> None:
    data, p = samples(n, (4,), 3, seed % 1000), plan(**given)
    weights, buffers = toy.initial(seed)
    toy.load(weights, buffers)
    report = toy.train(data, p, seed)
    expected, loss = sgd(weights, data, p, seed)
    np.testing.assert_allclose(toy.weights, expected, rtol=2e-4, atol=2e-5)
    assert (report.loss, report.samples) == (pytest.approx(loss, rel=1e-3), n)


@given(n=st.integers(1, 50), batch=st.integers(1, 50), seed=st.integers(0, 2**64))
def test_every_epoch_uses_every_sample_once_in_a_new_order(n: int, batch: int, seed: int) -> None:
    batch = min(batch, n)
    each = -(-n // batch)
    rows = list(shuffled(n, batch, 2 * each, seed))
    assert [len(r) for r in rows[:each]] == [batch] * (n // batch) + [n % batch] * (n % batch > 0)
    first, second = np.concatenate(rows[:each]), np.concatenate(rows[each:])
    assert sorted(first) == sorted(second) == list(range(n))
    if n > 20:
        assert first.tolist() != second.tolist()


@given(n=st.integers(1, 60), batch=st.integers(2, 20), seed=st.integers(0, 2**64))
def test_a_model_that_needs_two_samples_never_gets_one_if_there_are_two(
    n: int, batch: int, seed: int
) -> None:
    batch = min(batch, n)
    epoch = plan(batch_size=batch, epochs=1)
    rows = list(shuffled(n, batch, steps_of(epoch, n, 2), seed, 2))
    assert sorted(np.concatenate(rows)) == list(range(n))
    assert min(map(len, rows)) >= min(n, 2)
    joined = n % batch == 1 and n > batch
    assert len(rows) == steps_of(epoch, n) - joined
    if not joined:
        assert list(map(list, rows)) == list(map(list, shuffled(n, batch, len(rows), seed)))


def test_steps_override_epochs_and_wrap_around(toy: MXNetEngine) -> None:
    report = toy.train(samples(25, (4,), 3), plan(steps=7, epochs=100), 1)
    assert (report.steps, report.samples) == (7, 25)


def test_rms_loss_is_over_single_samples(toy: MXNetEngine) -> None:
    data = samples(5, (4,), 3)
    weights, buffers = toy.initial(1)
    toy.load(weights, buffers)
    losses = np.array([softmax_gradient(weights, data.x[i : i + 1], data.y[i : i + 1])[1]
                       for i in range(5)])  # fmt: skip
    report = toy.train(data, plan(batch_size=5, **{"steps": 3, "learning_rate": 0.0}), 1)
    assert report.rms_loss == pytest.approx(np.sqrt(np.mean(losses**2)), rel=1e-5)
    assert report.loss < report.rms_loss
    # Mini-batches of 3 and of 2 have equal weight, as in the mean loss.
    report = toy.train(data, plan(batch_size=3, steps=2, learning_rate=0.0), 1)
    halves = [np.mean(losses[rows] ** 2) for rows in shuffled(5, 3, 2, 1)]
    assert report.rms_loss == pytest.approx(np.sqrt(np.mean(halves)), rel=1e-5)


def test_a_plan_without_steps_does_not_change_the_model(toy: MXNetEngine) -> None:
    before = toy.weights.tobytes()
    report = toy.train(samples(25, (4,), 3), plan(steps=0), 1)
    assert (report.steps, report.samples) == (0, 25)
    assert np.isnan(report.loss)
    assert toy.weights.tobytes() == before


def test_a_hook_that_does_nothing_changes_no_bit() -> None:
    data, hooked = samples(35, (1, 28, 28), 10), []
    engine = MXNetEngine(dropout, (1, 28, 28), 10)
    settings = plan(momentum=0.9, weight_decay=1e-3, epochs=2)
    for hook in (None, lambda g, w: hooked.append(g.sum())):
        engine.load(*engine.initial(1))
        engine.train(data, settings, 4, hook)
        hooked.append(engine.weights.tobytes())
    assert hooked[0] == hooked[-1]
    assert len(hooked) == 2 + 8


def test_a_hook_sees_mean_gradient_and_weights_before_decay_and_momentum(toy: MXNetEngine) -> None:
    data, seen = samples(8, (4,), 3), []
    toy.load(*toy.initial(2))
    start = toy.weights.copy()

    def hook(g: np.ndarray, w: np.ndarray) -> None:
        seen.append((g.copy(), w.copy()))
        assert not w.flags.writeable

    toy.train(data, plan(batch_size=0, momentum=0.9, weight_decay=0.5, epochs=2), 1, hook)
    np.testing.assert_array_equal(seen[0][1], start)
    for g, w in seen:
        expected, _ = softmax_gradient(w.astype(np.float64), data.x.astype(np.float64), data.y)
        np.testing.assert_allclose(g, expected, rtol=1e-4, atol=1e-6)


def test_a_hook_changes_the_step(toy: MXNetEngine) -> None:
    toy.load(*toy.initial(2))
    start = toy.weights.copy()

    def hook(g: np.ndarray, w: np.ndarray) -> None:
        g[...] = w

    toy.train(samples(8, (4,), 3), plan(batch_size=0, learning_rate=0.5), 1, hook)
    np.testing.assert_array_equal(toy.weights, start - np.float32(0.5) * start)


def test_the_gradient_is_the_mean_over_all_samples_and_changes_nothing(toy: MXNetEngine) -> None:
    data = samples(600, (4,), 3)
    toy.load(*toy.initial(3))
    before = toy.weights.copy()
    expected, _ = softmax_gradient(before.astype(np.float64), data.x.astype(np.float64), data.y)
    np.testing.assert_allclose(toy.gradient(data), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(toy.weights, before)


def test_the_gradient_does_not_change_running_statistics() -> None:
    engine, data = MXNetEngine(batchnorm, (1, 8, 8), 10), samples(12, (1, 8, 8), 10)
    before = engine.weights.tobytes(), engine.buffers.tobytes()
    gradient = engine.gradient(data)
    assert np.abs(gradient).max() > 0
    assert (engine.weights.tobytes(), engine.buffers.tobytes()) == before
    assert engine.gradient(data).tobytes() == gradient.tobytes()


@pytest.mark.parametrize("n", [1, 5, 500, 501, 1003])
def test_evaluation_counts_every_sample_once(toy: MXNetEngine, n: int) -> None:
    data = samples(n, (4,), 3)
    toy.load(*toy.initial(3))
    z = data.x @ toy.weights[:12].reshape(3, 4).T + toy.weights[12:]
    _, loss = softmax_gradient(toy.weights.astype(np.float64), data.x.astype(np.float64), data.y)
    metrics = toy.evaluate(data)
    assert (metrics.samples, metrics.accuracy) == (n, (z.argmax(1) == data.y).mean())
    assert metrics.loss == pytest.approx(loss, rel=1e-5)


def test_dropout_is_used_only_in_training_and_follows_the_seed() -> None:
    engine, data = MXNetEngine(dropout, (1, 28, 28), 10), samples(40, (1, 28, 28), 10)
    ends = []
    for seed in (1, 1, 2):
        mx.random.seed(len(ends))
        engine.load(*engine.initial(1))
        metrics = [engine.evaluate(data) for _ in range(2)]
        assert metrics[0] == metrics[1]
        engine.train(data, plan(batch_size=0), seed)
        ends.append(engine.weights.tobytes())
    assert ends[0] == ends[1]
    # With all samples in one batch, only dropout depends on the seed.
    assert ends[0] != ends[2]


@pytest.mark.parametrize("build", [linear, batchnorm])
def test_a_plain_block_trains_like_the_compiled_one(build: Any) -> None:
    shape, classes = ((4,), 3) if build is linear else ((1, 8, 8), 10)
    data = samples(32, shape, classes)
    compiled = MXNetEngine(build, shape, classes, seed=1)
    plain = MXNetEngine(lambda: PlainBlock(build), shape, classes, seed=1)
    assert (is_compiled(compiled), is_compiled(plain)) == (True, False)
    assert [t[1:] for t in compiled.layout] == [t[1:] for t in plain.layout]
    assert plain.weights.tobytes() == compiled.weights.tobytes()
    p = plan(momentum=0.5, weight_decay=1e-3, learning_rate=0.02, epochs=2)
    reports = [engine.train(data, p, 3) for engine in (compiled, plain)]
    np.testing.assert_allclose(plain.weights, compiled.weights, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(plain.buffers, compiled.buffers, rtol=1e-3, atol=1e-4)
    assert reports[0].loss == pytest.approx(reports[1].loss, rel=1e-3)
    first, second = compiled.evaluate(data), plain.evaluate(data)
    assert first.loss == pytest.approx(second.loss, rel=1e-3)


def test_a_hybrid_block_that_cannot_be_traced_trains() -> None:
    engine = MXNetEngine(Untraceable, (4,), 3)
    assert not is_compiled(engine)
    data = samples(20, (4,), 3)
    before = engine.evaluate(data).loss
    engine.train(data, plan(epochs=20, learning_rate=0.5), 1)
    assert engine.evaluate(data).loss < before


@pytest.mark.parametrize("build", [linear, lambda: PlainBlock(linear)])
def test_a_sigmoid_model_learns_two_labels_from_one_output(build: Any) -> None:
    def one_output() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Dense(1))
        return net if build is linear else PlainBlock(lambda: net)

    x = np.random.default_rng(0).normal(size=(60, 4)).astype("f")
    data = Samples(x, (x[:, 0] > 0).astype(np.int64))
    engine = MXNetEngine(one_output, (4,), 2, loss=Sigmoid())
    w = engine.weights.astype(np.float64)
    p = 1 / (1 + np.exp(-(x @ w[:4] + w[4])))
    expected = np.append(((p - data.y)[:, None] * x).mean(0), (p - data.y).mean())
    np.testing.assert_allclose(engine.gradient(data), expected, rtol=1e-4, atol=1e-6)
    report = engine.train(data, plan(epochs=30, learning_rate=1.0), 1)
    metrics = engine.evaluate(data)
    assert metrics.accuracy > 0.95
    assert metrics.loss < report.loss


def test_integer_inputs_reach_the_model_as_integers() -> None:
    def tokens() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Embedding(7, 5), nn.Flatten(), nn.Dense(3))
        return net

    rng = np.random.default_rng(0)
    data = Samples(rng.integers(0, 7, (30, 6)), rng.integers(0, 3, 30))
    for dtype in ("int32", "float32"):
        engine = MXNetEngine(tokens, (6,), 3, example_dtype=dtype)
        before = engine.evaluate(data).loss
        engine.train(data, plan(epochs=20, learning_rate=0.5), 1)
        assert engine.evaluate(data).loss < before


def test_a_diverging_run_reports_nan_without_an_error(toy: MXNetEngine) -> None:
    toy.load(*toy.initial(0))
    report = toy.train(samples(20, (4,), 3), plan(learning_rate=float("inf"), epochs=3), 1)
    assert np.isnan(report.loss)


def test_vectors_of_another_length_are_refused_and_nothing_is_loaded(toy: MXNetEngine) -> None:
    before = toy.weights.tobytes()
    weights, buffers = toy.initial(9)
    for bad in ((weights[:-1], buffers), (weights, np.zeros(1, "f")), (weights[None], buffers)):
        with pytest.raises(ComputeError, match="those of the model"):
            toy.load(*bad)
        assert toy.weights.tobytes() == before


@pytest.mark.parametrize(
    ("x", "y", "word"),
    [
        (np.zeros((0, 4), "f"), np.zeros(0, int), "no samples"),
        (np.zeros((2, 5), "f"), np.zeros(2, int), r"take"),
        (np.zeros((3, 4), "f"), np.zeros(2, int), "2 labels"),
        (np.zeros((2, 4), "f"), np.array([0, 3]), "0 to 2"),
        (np.zeros((2, 4), "f"), np.array([-1, 0]), "-1"),
        (np.zeros((2, 4), "f"), np.array([0.0, 1.0]), "integers"),
    ],
)
def test_wrong_samples_are_refused_in_one_line(
    toy: MXNetEngine, x: np.ndarray, y: np.ndarray, word: str
) -> None:
    bad = SimpleNamespace(x=x, y=y)
    for call in (lambda: toy.train(bad, plan(), 1), lambda: toy.evaluate(bad)):
        with pytest.raises(ComputeError, match=word) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(ComputeError, match=word):
        toy.gradient(bad)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"steps": -1}, {"batch_size": -5}])
def test_an_invalid_plan_is_refused(toy: MXNetEngine, bad: dict[str, int]) -> None:
    with pytest.raises(ComputeError, match=next(iter(bad))):
        toy.train(samples(5, (4,), 3), plan(**bad), 1)


class Scaled(mx.gluon.HybridBlock):
    """The inputs times a vector of this name, without an initialiser."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.factors = self.params.get(name, shape=(3,))

    def hybrid_forward(self, F: Any, x: Any, factors: Any) -> Any:
        return F.broadcast_mul(x, F.expand_dims(factors, 0))


class Both(mx.gluon.Block):
    """A plain block with two outputs."""

    def forward(self, x: Any) -> Any:
        return x, x


class Odd(nn.Dense):
    """A layer with a loss that nobody knows."""

    loss = "softmx"


@pytest.mark.parametrize(
    ("build", "shape", "classes", "word"),
    [
        (linear, (4,), 5, "output"),
        (lambda: nn.Conv2D(3, 9), (1, 5, 5), 3, "does not take inputs"),
        (lambda: nn.Flatten(), (3,), 3, "no trainable"),
        (lambda: 7, (4,), 3, "not a gluon Block"),
        (lambda: nn.Dense(3, dtype="float64"), (4,), 3, "^parameter weight is float64"),
        (lambda: nn.Dense(3, weight_initializer="zeroes"), (4,), 3, "weight .*'zeroes'"),
        (lambda: Odd(3), (4,), 3, "softmax"),
        (lambda: Scaled("weight"), (3,), 3, r"parameter factors of shape \(3,\) .* Xavier"),
        (lambda: Scaled("scale"), (3,), 3, "parameter factors has no initialiser"),
        (lambda: Both(), (3,), 3, "several outputs"),
    ],
)
def test_a_wrong_model_is_refused_in_one_line(
    build: Any, shape: tuple[int, ...], classes: int, word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ComputeError, match=word) as caught:
        MXNetEngine(build, shape, classes)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_initial_weights_depend_only_on_the_seed_and_change_no_shared_state() -> None:
    def mixed() -> Any:
        net = nn.HybridSequential()
        net.add(
            nn.Conv2D(4, 3, weight_initializer=mx.init.Normal(2.0)),
            nn.BatchNorm(),
            nn.Dense(64, bias_initializer=mx.init.Constant(0.5)),
            nn.Dense(3, weight_initializer="ones"),
        )
        return net

    mx.random.seed(3)
    np.random.seed(3)
    expected = mx.nd.random.uniform(shape=4).asnumpy().tolist(), np.random.random()
    mx.random.seed(3)
    np.random.seed(3)
    engine = MXNetEngine(mixed, (1, 8, 8), 3, seed=11)
    values = engine.initial(11)
    assert (mx.nd.random.uniform(shape=4).asnumpy().tolist(), np.random.random()) == expected
    assert engine.weights.tobytes() == values[0].tobytes()
    assert MXNetEngine(mixed, (1, 8, 8), 3).initial(11)[0].tobytes() == values[0].tobytes()
    assert MXNetEngine(mixed, (1, 8, 8), 3).initial(12)[0].tobytes() != values[0].tobytes()
    got = {t.name: values[0][t.start : t.stop].reshape(t.shape) for t in engine.layout}
    assert 1 < got["0.weight"].std() < 3
    assert (got["1.gamma"] == 1).all()
    assert (got["2.bias"] == 0.5).all()
    assert (got["3.weight"] == 1).all()
    bound = np.sqrt(3 / ((4 * 36 + 64) / 2))
    assert 0.95 * bound < np.abs(got["2.weight"]).max() <= bound
    buffers = {t.name: values[1][t.start : t.stop] for t in engine.buffers_layout}
    assert (buffers["1.running_mean"] == 0).all()
    assert (buffers["1.running_var"] == 1).all()


def test_a_users_own_initialiser_is_used_and_follows_the_seed() -> None:
    class Lopsided(mx.init.Initializer):
        def _init_weight(self, name: str, array: Any) -> None:
            array[:] = 5 + mx.nd.random.uniform(shape=array.shape)

    engine = MXNetEngine(lambda: nn.Dense(3, weight_initializer=Lopsided()), (4,), 3)
    assert engine.initial(1)[0][:12].min() >= 5
    assert engine.initial(1)[0].tobytes() == engine.initial(1)[0].tobytes()
    assert engine.initial(1)[0].tobytes() != engine.initial(2)[0].tobytes()


def test_a_frozen_parameter_is_a_buffer_and_does_not_change() -> None:
    def frozen() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Dense(5), nn.Dense(3))
        net[0].weight.grad_req = "null"
        return net

    engine = MXNetEngine(frozen, (4,), 3)
    assert [t.name for t in engine.buffers_layout] == ["0.weight"]
    before = engine.buffers.copy(), engine.weights.copy()
    engine.train(samples(20, (4,), 3), plan(), 1)
    np.testing.assert_array_equal(engine.buffers, before[0])
    assert (engine.weights != before[1]).any()


def test_tokens_have_the_gradient_of_the_mean_cross_entropy_over_their_places() -> None:
    def each_place() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Embedding(7, 5), nn.Dense(7, flatten=False))
        return net

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 7, (2, 12, 4))
    engine = MXNetEngine(each_place, (4,), Targets("tokens", 7, 4))
    tensors = engine.values()
    embedding, weight, bias = (tensors[one.name].astype(np.float64) for one in engine.layout)
    seen = embedding[x]
    z = seen @ weight.T + bias
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    dz = (p - np.eye(7)[y]) / y.size
    expected = [
        np.zeros((7, 5)),
        np.einsum("npk,npc->kc", dz, seen),
        dz.sum((0, 1)),
    ]
    np.add.at(expected[0], x, dz @ weight)
    data = Samples(x, y)
    found = engine.gradient(data)
    np.testing.assert_allclose(found, np.concatenate([a.ravel() for a in expected]), atol=1e-6)
    own = np.take_along_axis(p, y[..., None], 2)
    assert engine.evaluate(data).loss == pytest.approx(-np.log(own).mean(), rel=1e-6)
    before = engine.evaluate(data).loss
    engine.train(data, plan(epochs=20, learning_rate=1.0), 1)
    assert engine.evaluate(data).loss < before
