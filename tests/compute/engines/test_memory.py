"""Training keeps no memory: neither of its steps nor of the graphs that it no longer uses."""

from __future__ import annotations

import pytest

from layers.compute.engines.mxnet import rewriting
from layers.compute.engines.mxnet.engine import STEP_ROWS, MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from tests.compute.engines.memory import grown
from tests.compute.engines.toys import plan, samples

GREY = (1, 28, 28)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("model", ["lenet5", "knapsack-cnn"])
def test_a_local_step_leaves_nothing_in_memory(
    model: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "block", lambda: block)
    engine = MXNetEngine(build_model(model), GREY, 10)
    data, steps = samples(40, GREY, 10), 10
    each = grown(lambda: engine.train(data, plan(steps=steps), seed=1), 20) / steps
    assert each < 100  # bytes; the gradient of what oneDNN joins leaves 1,800 or more


@pytest.mark.parametrize("block", [8, 16])
def test_a_graph_that_is_used_no_more_leaves_nothing_in_memory(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "block", lambda: block)
    engine = MXNetEngine(build_model("lenet5"), GREY, 10)
    sizes = range(40, 61, 2)
    assert sum(sizes) > STEP_ROWS  # so that each is made anew
    data = {size: samples(size, GREY, 10) for size in sizes}

    def train_with_all() -> None:
        for size in sizes:
            engine.train(data[size], plan(steps=1, batch_size=size), seed=1)

    assert grown(train_with_all, 8) / len(sizes) < 2000  # bytes; a graph read anew leaves 14,000
