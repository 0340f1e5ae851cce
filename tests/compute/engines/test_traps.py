"""Traps of MXNet 1.9.1 that the engine must avoid, and bits that must not change."""

import os
import subprocess
import sys
import threading
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from layers.compute.engines.mxnet import rewriting
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.engines.mxnet.runtime import _without
from layers.compute.engines.objective import STEP_ROWS
from tests.compute.engines.digests import BUILDS, digest, digests
from tests.compute.engines.memory import grown
from tests.compute.engines.toys import PlainBlock, batchnorm, wide_convolutions
from tests.compute.engines.training import path, plan, samples

SHAPE = (3, 12, 12)


@pytest.mark.parametrize(
    "build", [wide_convolutions, batchnorm, lambda: PlainBlock(wide_convolutions)]
)
def test_an_evaluation_between_trainings_changes_no_bit(build: Any) -> None:
    """Inference re-lays convolution weights in place, which must not reach the flat vector."""
    data = samples(24, SHAPE, 10)
    watched, alone = MXNetEngine(build, SHAPE, 10, seed=2), MXNetEngine(build, SHAPE, 10, seed=2)
    for seed in range(3):
        for batch_size in (24, 7):
            before = watched.weights.tobytes()
            watched.evaluate(data, batch_size)
            assert watched.weights.tobytes() == before
        watched.train(data, plan(batch_size=5), seed)
        alone.train(data, plan(batch_size=5), seed)
        assert watched.weights.tobytes() == alone.weights.tobytes()
        assert watched.buffers.tobytes() == alone.buffers.tobytes()
    assert watched.evaluate(data) == alone.evaluate(data)


@pytest.mark.parametrize(
    "build", [wide_convolutions, batchnorm, lambda: PlainBlock(wide_convolutions)]
)
def test_an_evaluation_after_an_update_uses_the_new_weights(build: Any) -> None:
    """An executor bound for inference may keep fused copies of the first weights."""
    data = samples(24, SHAPE, 10)
    engine = MXNetEngine(build, SHAPE, 10, seed=1)
    for seed in range(1, 4):
        engine.load(*engine.initial(seed))
        engine.evaluate(data)
        engine.train(data, plan(learning_rate=0.3, epochs=2), seed)
        fresh = MXNetEngine(build, SHAPE, 10, seed=99)
        fresh.load(engine.weights, engine.buffers)
        assert engine.evaluate(data) == fresh.evaluate(data)


def test_the_compiled_gradient_of_wide_convolutions_is_correct() -> None:
    """Gradients may be in blocked layouts, too; compare with finite differences."""
    data = samples(6, SHAPE, 10)
    engine = MXNetEngine(wide_convolutions, SHAPE, 10, seed=4)
    weights, buffers = engine.initial(4)
    gradient = engine.gradient(data).astype(np.float64)
    rng = np.random.default_rng(0)
    for t in engine.layout:
        direction = np.zeros(len(weights))
        direction[t.start : t.stop] = rng.choice([-1.0, 1.0], t.stop - t.start)
        direction += 10 * np.sign(gradient) * (direction != 0)
        direction /= np.linalg.norm(direction)
        losses = []
        for sign in (1, -1):
            engine.load((weights + sign * 3e-2 * direction).astype("f"), buffers)
            losses.append(engine.evaluate(data).loss)
        slope = (losses[0] - losses[1]) / 6e-2
        assert slope == pytest.approx(gradient @ direction, rel=2e-2, abs=2e-4), t.name


def test_names_do_not_depend_on_earlier_models() -> None:
    names = [t.name for t in MXNetEngine(batchnorm, SHAPE, 10).layout]
    assert [t.name for t in MXNetEngine(batchnorm, SHAPE, 10).layout] == names
    assert names[:4] == ["0.weight", "0.bias", "1.gamma", "1.beta"]
    assert in_a_new_process().split() == names


@lru_cache(maxsize=1)
def in_a_new_process() -> str:
    """Return what a process prints that trains, and prints only the names of a layout."""
    code = (
        "import layers.compute; from tests.compute.engines.toys import *;"
        "from tests.compute.engines.training import *;"
        "from layers.compute.engines.mxnet.engine import MXNetEngine;"
        "from layers.compute.engines.mxnet.models import build_model;"
        f"print(*[t.name for t in MXNetEngine(batchnorm, {SHAPE}, 10).layout]);"
        "e = MXNetEngine(linear, (4,), 3); s = samples(5, (4,), 3);"
        "e.train(s, plan(), 1); e.evaluate(s);"
        "MXNetEngine(build_model('lstm', vocabulary=9, dimensions=3), (25,), 2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=path(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_mxnet_starts_and_builds_a_model_with_constants_without_output() -> None:
    assert in_a_new_process().count("\n") == 1


def test_only_mxnets_notice_is_kept_from_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with _without(b"a notice"):
        os.write(2, b"a line\nthis is a notice\nanother line\n")
    assert capfd.readouterr().err == "a line\nanother line\n"


PROGRAM = "from tests.compute.engines.digests import digests; print(*digests())"
# MXNet was used, with its default engine, before fedmx sets its environment.
USED_BEFORE = (
    "import os, layers.compute;"
    "[os.environ.pop(name) for name in list(os.environ) if name.startswith('MXNET_')];"
    "import mxnet as mx; a = mx.nd.ones((300, 300)); mx.nd.dot(a, a).wait_to_read();"
    "from layers.compute.engines.mxnet.runtime import prepare; prepare();" + PROGRAM
)
IN_A_THREAD = (
    "import threading; from tests.compute.engines.digests import digests;"
    "t = threading.Thread(target=lambda: print(*digests())); t.start(); t.join()"
)


def in_a_process(program: str, threads: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=path(OMP_NUM_THREADS=str(threads)),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@lru_cache(maxsize=1)
def here() -> list[str]:
    return digests()


def test_the_number_of_threads_changes_no_bit() -> None:
    assert in_a_process(PROGRAM, 4) == here()


def test_mxnet_used_before_with_many_threads_changes_no_bit() -> None:
    assert in_a_process(USED_BEFORE, 4) == here()


def test_training_in_another_thread_changes_no_bit() -> None:
    assert in_a_process(IN_A_THREAD, 2) == here()


def test_several_engines_train_at_once_in_their_own_threads() -> None:
    got: dict[int, str] = {}

    def work(i: int) -> None:
        got[i] = digest(BUILDS[i % len(BUILDS)])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2 * len(BUILDS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(len(threads))] == here() * 2


def test_one_engine_in_several_threads_changes_no_bit() -> None:
    dropout = BUILDS[-1]
    engine = MXNetEngine(dropout, (1, 28, 28), 10, seed=3)
    got: list[str] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: got.append(digest(dropout, engine)))
        thread.start()
        thread.join()
        got.append(digest(dropout, engine))
    assert set(got) == {here()[-1]}


GREY = (1, 28, 28)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("model", ["lenet5", "knapsack-cnn"])
def test_a_step_leaks_no_memory(model: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "block", lambda: block)
    engine = MXNetEngine(build_model(model), GREY, 10)
    data, steps = samples(40, GREY, 10), 10
    each = grown(lambda: engine.train(data, plan(steps=steps), seed=1), 20) / steps
    assert each < 100  # bytes; a gradient of oneDNN's joins leaks 1,800 or more


@pytest.mark.parametrize("block", [8, 16])
def test_an_evicted_graph_leaks_no_memory(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "block", lambda: block)
    engine = MXNetEngine(build_model("lenet5"), GREY, 10)
    sizes = range(40, 61, 2)
    assert sum(sizes) > STEP_ROWS  # so that each is made again
    data = {size: samples(size, GREY, 10) for size in sizes}

    def train_with_all() -> None:
        for size in sizes:
            engine.train(data[size], plan(steps=1, batch_size=size), seed=1)

    assert grown(train_with_all, 8) / len(sizes) < 2000  # bytes; a parsed graph leaks 14,000
