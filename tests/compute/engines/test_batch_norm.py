"""BatchNorm as FedBN needs it: a step, its running statistics, and whose they are."""

from typing import Any

import numpy as np
from mxnet.gluon import nn

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.losses import Loss
from layers.logic.core.local_tensors import own_tensors
from tests.compute.engines.training import plan
from tests.logic.vector_files import vectors


class Squared(Loss):
    """(z - t)^2, with the targets t as an array (n, 1)."""

    FITS = ("sigmoid",)
    arrays = rows = ("targets",)

    def losses(self, F: Any, given: Any) -> Any:
        away = given.outputs.logits - given.arrays["targets"]
        return F.Reshape(F.square(away), shape=(-1,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Squared)

    def __hash__(self) -> int:
        return hash(Squared)


def test_a_step_and_the_running_statistics_are_those_of_the_vector() -> None:
    """One full-batch step of a client of FedBN; MXNet keeps the biased variance."""
    known = vectors("personal")
    given, wanted = known["inputs"]["batch_norm"], known["expected"]["batch_norm"]

    def build() -> Any:
        net = nn.HybridSequential()
        net.add(nn.BatchNorm(momentum=given["momentum"], epsilon=given["eps"]), nn.Dense(1))
        net.loss = "sigmoid"  # of one output
        return net

    engine = MXNetEngine(build, (2,), 2, loss=Squared())
    start = {
        "gamma": given["gamma"],
        "beta": given["beta"],
        "weight": given["head_weight"],
        "bias": [given["head_bias"]],
        "running_mean": given["running_mean"],
        "running_var": given["running_var"],
    }
    vector = lambda layout: np.concatenate(  # noqa: E731
        [np.float32(start[one.name.rpartition(".")[2]]) for one in layout]
    )
    engine.load(vector(engine.layout), vector(engine.buffers_layout))
    x = np.array(given["x"], np.float32)
    targets = np.array(given["t"], np.float32)[:, None]
    training = plan(steps=1, batch_size=0, learning_rate=given["rate"])
    engine.train(Samples(x, np.zeros(len(x), np.int64)), training, 1, arrays={"targets": targets})
    found = {
        one.name.rpartition(".")[2]: values[one.start : one.stop]
        for layout, values in (
            (engine.layout, engine.weights),
            (engine.buffers_layout, engine.buffers),
        )
        for one in layout
    }
    for mine, name in (
        ("gamma", "gamma"),
        ("beta", "beta"),
        ("weight", "head_weight"),
        ("bias", "head_bias"),
        ("running_mean", "running_mean"),
        ("running_var", "running_var_biased"),
    ):
        np.testing.assert_allclose(found[mine], np.ravel(wanted[name]), rtol=1e-5, atol=1e-6)
    own = own_tensors(["norm"], engine.layout, engine.buffers_layout)
    assert {one.rpartition(".")[2] for one in own} == set(wanted["own"])
