"""Models by name: their papers' sizes, the same bits everywhere, constants and word vectors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from layers.compute.data.dataset import Samples
from layers.compute.engines.initial import RULES
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.execution import trace
from layers.compute.engines.mxnet.lstm import random_vectors, read_glove
from layers.compute.engines.mxnet.models import MODELS, build_model
from layers.compute.errors import ComputeError
from tests.compute.engines.digests import paper_digests
from tests.compute.engines.toys import is_compiled
from tests.compute.engines.training import path, plan


def test_a_zoo_model_with_batchnorm_trains_and_moves_its_statistics() -> None:
    rng = np.random.default_rng(1)
    samples = Samples(rng.random((20, 3, 32, 32), dtype="f"), rng.integers(0, 10, 20))
    engine = MXNetEngine(build_model("gluoncv:cifar_resnet20_v1", classes=10), (3, 32, 32), 10)
    weights, buffers = engine.weights.copy(), engine.buffers.copy()
    assert engine.train(samples, plan(batch_size=10, epochs=2), seed=1).steps == 4
    assert np.isfinite(engine.weights).all()
    assert (engine.weights != weights).mean() > 0.9
    assert (engine.buffers != buffers).mean() > 0.9
    assert {t.name.split(".")[-1] for t in engine.buffers_layout} == {"running_mean", "running_var"}
    assert engine.evaluate(samples).samples == 20


def test_a_model_of_gluons_zoo_is_found_by_name() -> None:
    engine = MXNetEngine(build_model("gluon:mobilenet0.25", classes=7), (3, 64, 64), 7)
    assert engine.layout[0].name == "features.0.weight"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lenet", "lenet5"),
        ("gluon:resnet18v1", "resnet18_v1"),
        ("gluoncv:cifar_resnet20", "cifar_resnet20_v1"),
        ("zoo:thing", "2nn"),
    ],
)
def test_an_unknown_model_is_refused_with_the_nearest_names(name: str, near: str) -> None:
    with pytest.raises(ComputeError, match=near) as caught:
        build_model(name)()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("zoo", ["gluon", "gluoncv"])
@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("resnet18_v1", {"root": "/", "pretrained": True}, ": pretrained, root cannot be set"),
        ("resnet18_v1", {"pretrained_base": False}, ": pretrained_base cannot be set"),
        ("resnet18_v1", {"ctx": 0}, ": ctx cannot be set"),
        ("resnet18_v1", {"colour": 3}, " cannot be built: .*colour"),
    ],
)
def test_a_setting_that_a_zoos_model_does_not_have_is_refused(
    zoo: str, name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ComputeError, match=f"^model {zoo}:{name}{said}"):
        build_model(f"{zoo}:{name}", **settings)()


def test_gluoncv_is_named_where_it_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gluoncv.model_zoo", None)
    with pytest.raises(ComputeError, match=r"gluoncv:cifar_resnet20_v1 needs gluoncv, .*install"):
        build_model("gluoncv:cifar_resnet20_v1")()


def test_naming_models_does_not_import_mxnet() -> None:
    code = (
        "import sys; from layers.compute.engines.mxnet.models import MODELS, build_model; "
        "build_model('lenet5');"
        "from layers.compute.schedule import SCHEDULES; sys.exit('mxnet' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=path(), check=False).returncode == 0
    assert {"2nn", "lenet5"} <= set(MODELS)


GREY, COLOUR, TOKENS = (1, 28, 28), (3, 32, 32), (25,)
WORDS = ("<padding>", "<unknown>", "good", "bad", "day")


def some(shape: tuple[int, ...], classes: int, n: int = 12) -> Samples:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 50, (n, *shape)) if shape == TOKENS else rng.random((n, *shape), dtype="f")
    return Samples(x, rng.integers(0, classes, n))


@pytest.mark.parametrize(
    ("name", "settings", "shape", "classes", "size", "buffers"),
    [
        ("2nn", {}, GREY, 10, 109_386, 0),
        ("2nn", {"hidden": (200, 200)}, GREY, 10, 199_210, 0),
        ("lenet5", {}, GREY, 10, 61_706, 0),
        ("lenet5", {"classes": 62}, GREY, 62, 66_126, 0),
        ("lenet5", {"padding": 0}, COLOUR, 10, 62_006, 0),
        ("logistic", {}, (60,), 10, 610, 0),
        ("logistic", {}, GREY, 10, 7_850, 0),
        ("2nn-mcmahan", {}, GREY, 10, 199_210, 0),
        ("cnn3", {}, GREY, 10, 356_298, 0),
        ("vgg11s", {}, COLOUR, 10, 865_482, 0),
        ("knapsack-cnn", {}, GREY, 10, 21_840, 0),
        ("resnet18-cifar", {}, COLOUR, 10, 11_173_962, 9_600),
        ("lstm", {}, TOKENS, 2, 244_661, 0),
    ],
)
def test_a_papers_model_has_its_size_and_trains_to_the_same_bits(
    name: str, settings: Any, shape: tuple[int, ...], classes: int, size: int, buffers: int
) -> None:
    data = some(shape, classes)
    ends = []
    for _ in range(2):
        engine = MXNetEngine(build_model(name, **settings), shape, classes, seed=4)
        assert is_compiled(engine)
        assert (engine.weights.size, engine.buffers.size) == (size, buffers)
        before = engine.weights.copy()
        first = engine.evaluate(data)
        report = engine.train(data, plan(batch_size=8, learning_rate=0.02), seed=1)
        assert report.steps == 2
        assert np.isfinite(engine.weights).all()
        assert (engine.weights != before).mean() > 0.3
        last = engine.evaluate(data)
        assert last.loss != first.loss
        ends.append((engine.weights.tobytes(), engine.buffers.tobytes(), report, first, last))
    assert ends[0] == ends[1]


def test_the_number_of_threads_changes_no_bit_of_a_papers_model() -> None:
    program = "from tests.compute.engines.digests import paper_digests; print(*paper_digests())"
    env = path(OMP_NUM_THREADS="4")
    said = subprocess.check_output([sys.executable, "-c", program], env=env, text=True)
    assert said.split() == paper_digests()


def test_the_knapsack_cnn_drops_whole_channels() -> None:
    net = build_model("knapsack-cnn")()
    net.initialize()
    x = mx.nd.array(some(GREY, 10).x)
    with mx.autograd.record():
        dropped = net[:5](x).asnumpy()
    empty = (dropped == 0).reshape(12, 20, -1)
    assert (empty.all(axis=2) == empty.any(axis=2)).all()
    assert 0.2 < empty.all(axis=2).mean() < 0.8


class Imperative(mx.gluon.Block):
    """A block that cannot be traced, around one that can."""

    loss = "sigmoid"

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_model("lstm", vocabulary=50, dimensions=7)()

    def forward(self, tokens: Any) -> Any:
        return self.inner(tokens)


@pytest.mark.parametrize(
    ("shape", "fan_in", "fan_out"),
    [((60, 40), 40, 60), ((30, 20, 7), 140, 210), ((16, 12, 5, 3), 180, 240)],
)
def test_xavier_counts_the_kernel_size_in_both_fans(shape, fan_in: int, fan_out: int) -> None:
    """Glorot and Bengio 2010, eq. 16: sqrt(6 / (fan in + fan out))."""
    drawn = np.abs(RULES["xavier"](np.random.default_rng(5), "weight", shape))
    assert drawn.max() == pytest.approx(np.sqrt(6 / (fan_in + fan_out)), rel=0.01)


@pytest.mark.parametrize("slope", [0.25, 1.0])
def test_the_weights_of_he_et_al_have_their_variance(slope: float) -> None:
    """He et al. 2015, eq. 15: 2 / ((1 + a^2) n), with the mean of both fans as n, as in MXNet."""
    drawn = RULES["msraprelu"](np.random.default_rng(5), "weight", (400, 300), slope=slope)
    assert drawn.var() == pytest.approx(2 / ((1 + slope**2) * 350), rel=0.02)
    assert abs(drawn.mean()) < 1e-3


@pytest.mark.parametrize(
    ("name", "given", "lowest", "highest", "deviation"),
    [
        ("uniform", {}, -0.07, 0.07, 0.07 / 3**0.5),
        ("uniform", {"scale": 3.0}, -3.0, 3.0, 3**0.5),
        ("normal", {}, -0.06, 0.06, 0.01),
        ("normal", {"sigma": 2.0}, -12.0, 12.0, 2.0),
        ("constant", {}, 0.0, 0.0, 0.0),
        ("constant", {"value": 0.5}, 0.5, 0.5, 0.0),
        ("zeros", {}, 0.0, 0.0, 0.0),
        ("ones", {}, 1.0, 1.0, 0.0),
    ],
)
def test_values_are_drawn_around_their_centre_with_the_defaults_of_mxnet(
    name: str, given: dict[str, float], lowest: float, highest: float, deviation: float
) -> None:
    drawn = RULES[name](np.random.default_rng(5), "weight", (400, 300), **given)
    assert lowest <= drawn.min() <= drawn.max() <= highest
    assert drawn.mean() == pytest.approx((lowest + highest) / 2, abs=deviation / 50)
    assert drawn.std() == pytest.approx(deviation, rel=0.01)


class Several(mx.gluon.HybridBlock):
    """A block with two outputs, as a pair or as one symbol."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.together = together

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.split(x, num_outputs=2, axis=1) if self.together else (x, x)


@pytest.mark.parametrize("together", [False, True])
def test_a_model_with_several_outputs_is_refused(together: bool) -> None:
    with pytest.raises(ComputeError, match="several outputs"):
        trace(Several(together))


def test_the_traced_and_the_imperative_lstm_agree() -> None:
    traced = MXNetEngine(build_model("lstm", vocabulary=50, dimensions=7), TOKENS, 2, seed=4)
    called = MXNetEngine(Imperative, TOKENS, 2, seed=4)
    assert is_compiled(traced)
    assert not is_compiled(called)
    data = some(TOKENS, 2)
    assert [t.shape for t in traced.layout] == [t.shape for t in called.layout]
    called.load(traced.weights, traced.buffers)
    np.testing.assert_allclose(traced.gradient(data), called.gradient(data), rtol=1e-3, atol=1e-6)
    for engine in (traced, called):
        engine.train(data, plan(learning_rate=0.5, epochs=3), seed=3)
    np.testing.assert_allclose(traced.weights, called.weights, rtol=1e-3, atol=1e-5)
    assert traced.evaluate(data).loss == pytest.approx(called.evaluate(data).loss, rel=1e-4)


@pytest.mark.parametrize("build", [build_model("lstm", vocabulary=50, dimensions=7), Imperative])
def test_a_constant_is_in_neither_vector_and_does_not_change(build: Any) -> None:
    engine = MXNetEngine(build, TOKENS, 2)
    names = [t.name for t in (*engine.layout, *engine.buffers_layout)]
    assert not any("vectors" in name for name in names)
    data = some(TOKENS, 2)
    engine.train(data, plan(learning_rate=0.5), seed=1)
    weights, loss = engine.weights.copy(), engine.evaluate(data).loss
    fresh = MXNetEngine(build, TOKENS, 2, seed=9)
    fresh.load(weights, engine.buffers)
    assert fresh.evaluate(data).loss == loss


def test_the_lstm_learns_to_separate_two_kinds_of_texts() -> None:
    x = np.random.default_rng(1).integers(4, 50, (40, 25))
    y = np.arange(40) % 2
    x[:, 23] = 2 + y
    engine = MXNetEngine(build_model("lstm", vocabulary=50, dimensions=20), TOKENS, 2, seed=1)
    engine.train(Samples(x, y), plan(learning_rate=0.2, epochs=40, momentum=0.9), seed=1)
    assert engine.evaluate(Samples(x, y)).accuracy == 1.0


def test_a_random_vector_depends_only_on_its_token() -> None:
    few, many = random_vectors(10, 5, 3), random_vectors(1000, 5, 3)
    np.testing.assert_array_equal(few, many[:10])
    assert not few[0].any()
    assert few[1:].all()
    assert (random_vectors(10, 5, 4)[1:] != few[1:]).all()


def test_words_in_glove_get_its_vectors_and_others_random_ones(tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("the 9 9 9\nday 1 2 -3.5\n<padding> 7 7 7\ngood 0.1 0.2 0.3\n")
    found = read_glove(str(file), WORDS, 3)
    assert {token: vector.tolist() for token, vector in found.items()} == {
        4: [1, 2, -3.5],
        2: pytest.approx([0.1, 0.2, 0.3]),
    }
    build = build_model("lstm", words=WORDS, vocabulary=8, glove=str(file), dimensions=3)
    table = build().vectors.value.asnumpy()
    expected = random_vectors(8, 3, 0)
    for token, vector in found.items():
        expected[token] = vector
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"day 1 2\n", "line 1 is not a word and 3 numbers"),
        (b"the 1 2 3\nday 1 2 x\n", "line 2 is not a word and 3 numbers"),
        (b"day 1 2 nan\n", "line 1 is not"),
        (b"day 1 2 3\n\xff\xfe 1 2 3\n", "line 2 is not UTF-8"),
        (b"", "has a vector for none of the 5 words"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_not_glove_is_refused_by_name(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "glove.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ComputeError, match=reason) as caught:
        read_glove(str(file), WORDS, 3)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"classes": 3}, "it is for two classes"),
        ({"vocabulary": 4, "words": WORDS}, "less than the data's 5 words"),
        ({"vocabulary": 1}, "must be at least 2"),
        ({"dimensions": 0}, "at least 1"),
        ({"glove": "glove.txt"}, "needs the word of each token"),
    ],
)
def test_an_lstm_with_invalid_settings_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ComputeError, match=reason):
        build_model("lstm", **settings)()
