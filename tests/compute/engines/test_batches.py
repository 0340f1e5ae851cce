"""A trainer takes the mini-batches of a training one by one, and the bits are those of `train`."""

import gc
import threading
from typing import Any

import numpy as np
import pytest

from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.runtime import one_thread
from tests.compute.engines.toys import PlainBlock, batchnorm, dropout, linear
from tests.compute.engines.training import plan, samples

DATA = samples(23, (4,), 3)


@pytest.fixture(scope="module")
def toy() -> MXNetEngine:
    return MXNetEngine(linear, (4,), 3, seed=5)


def from_the_start(engine: MXNetEngine, seed: int = 1) -> None:
    engine.load(*engine.initial(seed))


@pytest.mark.parametrize("build", [dropout, batchnorm, lambda: PlainBlock(dropout)])
def test_steps_over_all_batches_are_the_training(build: Any) -> None:
    shape = (1, 8, 8) if build is batchnorm else (1, 28, 28)
    engine, data = MXNetEngine(build, shape, 10), samples(35, shape, 10)
    settings = plan(momentum=0.9, weight_decay=1e-3, epochs=2)
    from_the_start(engine)
    expected = engine.train(data, settings, 4)
    weights, buffers = engine.weights.tobytes(), engine.buffers.tobytes()
    from_the_start(engine)
    batches = engine.batches(data, settings, 4)
    assert len(batches) == 8
    for batch in batches:
        engine.step(batch)
        engine.evaluate(data)  # what a trainer does between steps changes no bit
    assert (engine.weights.tobytes(), engine.buffers.tobytes()) == (weights, buffers)
    assert batches.report() == expected


def test_a_batch_has_the_samples_of_its_step(toy: MXNetEngine) -> None:
    from_the_start(toy)
    batches = toy.batches(DATA, plan(batch_size=10), 7)
    assert [len(batch) for batch in batches] == [10, 10, 3]
    for batch in batches:
        np.testing.assert_allclose(toy.batch_gradient(batch), toy.gradient(batch), 1e-5, 1e-7)


def test_two_models_take_the_same_batches_each_with_its_own_velocity(toy: MXNetEngine) -> None:
    settings = plan(batch_size=10, momentum=0.9, epochs=2)
    alone = []
    for start in (1, 2):
        from_the_start(toy, start)
        alone.append((toy.train(DATA, settings, 7), toy.weights.copy()))
    models = [toy.initial(start) for start in (1, 2)]
    trainings = [toy.batches(DATA, settings, 7) for _ in models]
    for pair in zip(*trainings, strict=True):
        for i, batch in enumerate(pair):
            toy.load(*models[i])
            toy.step(batch)
            models[i] = toy.weights.copy(), toy.buffers.copy()
    for (report, weights), training, (ended, _) in zip(alone, trainings, models, strict=True):
        assert training.report() == report
        assert ended.tobytes() == weights.tobytes()


def test_the_gradient_of_a_batch_changes_no_weight_and_no_report(toy: MXNetEngine) -> None:
    from_the_start(toy)
    before = toy.weights.tobytes()
    batches = toy.batches(DATA, plan(batch_size=10), 7)
    first = next(iter(batches))
    gradient = toy.batch_gradient(first)
    assert (gradient.dtype, gradient.shape) == (np.float32, toy.weights.shape)
    assert toy.weights.tobytes() == before
    assert batches.report().steps == 0
    given = gradient.copy()
    toy.step(first, lambda g, w: np.testing.assert_array_equal(g, given))
    assert batches.report().steps == 1


def test_each_iteration_has_the_same_batches(toy: MXNetEngine) -> None:
    batches = toy.batches(DATA, plan(batch_size=10, steps=5), 7)
    first, second = ([batch.rows.tolist() for batch in batches] for _ in range(2))
    assert first == second


def threads() -> list[int]:
    return [library.get_num_threads() for library in one_thread().libraries]


def test_the_callers_openmp_threads_come_back_however_the_iteration_ends(toy: MXNetEngine) -> None:
    libraries = one_thread().libraries
    kept = threads()
    try:
        for library in libraries:
            library.set_num_threads(3)
        for _ in toy.batches(DATA, plan(), 7):
            assert threads() == [1] * len(libraries)
            break
        assert threads() == [3] * len(libraries)
        trainings = [iter(toy.batches(DATA, plan(), 7)) for _ in range(2)]
        for batches in trainings:
            next(batches)
        trainings[0].close()  # the first one that began ends first
        toy.step(next(trainings[1]))
        assert threads() == [1] * len(libraries)
        trainings[1].close()
        assert threads() == [3] * len(libraries)
    finally:
        for library, number in zip(libraries, kept, strict=True):
            library.set_num_threads(number)


def test_another_thread_may_compute_while_an_iteration_waits(toy: MXNetEngine) -> None:
    waiting = [iter(toy.batches(DATA, plan(), 7))]
    next(waiting[0])
    done: list[str] = []

    def other() -> None:
        waiting.clear()  # it ends in this thread
        gc.collect()
        with one_thread():
            done.append("computed")

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    thread.join(60)
    assert done == ["computed"]
