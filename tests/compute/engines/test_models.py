"""Models by name have the sizes that their papers give."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import MODELS, build_model
from layers.compute.errors import ComputeError
from tests.compute.engines.toys import is_compiled, path, plan


@pytest.mark.parametrize(
    ("name", "settings", "shape", "classes", "size"),
    [
        ("2nn", {}, (1, 28, 28), 10, 109_386),
        ("2nn", {"hidden": (200, 200)}, (1, 28, 28), 10, 199_210),
        ("lenet5", {}, (1, 28, 28), 10, 61_706),
        ("lenet5", {"classes": 62}, (1, 28, 28), 62, 66_126),
        ("lenet5", {"padding": 0}, (3, 32, 32), 10, 62_006),
    ],
)
def test_a_model_has_the_number_of_parameters_of_its_paper(
    name: str, settings: dict[str, int], shape: tuple[int, ...], classes: int, size: int
) -> None:
    engine = MXNetEngine(build_model(name, **settings), shape, classes)
    assert is_compiled(engine)
    assert engine.weights.shape == (size,)
    assert engine.buffers.shape == (0,)


def test_a_zoo_model_with_batchnorm_trains_and_moves_its_statistics() -> None:
    rng = np.random.default_rng(1)
    samples = Samples(rng.random((20, 3, 32, 32), dtype="f"), rng.integers(0, 10, 20))
    engine = MXNetEngine(build_model("gluoncv:cifar_resnet20_v1", classes=10), (3, 32, 32), 10)
    weights, buffers = engine.weights.copy(), engine.buffers.copy()
    report = engine.train(samples, plan(batch_size=10, epochs=2), seed=1)
    assert report.steps == 4
    assert np.isfinite(engine.weights).all()
    assert (engine.weights != weights).mean() > 0.9
    assert (engine.buffers != buffers).mean() > 0.9
    assert {t.name.rsplit(".")[-1] for t in engine.buffers_layout} == {
        "running_mean",
        "running_var",
    }
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
def test_an_unknown_model_is_answered_with_the_nearest_in_one_line(name: str, near: str) -> None:
    with pytest.raises(ComputeError, match=near) as caught:
        build_model(name)()
    assert "\n" not in str(caught.value)


def test_naming_models_does_not_import_mxnet() -> None:
    code = (
        "import sys; from layers.compute.engines.mxnet.models import MODELS, build_model; "
        "build_model('lenet5');"
        "from layers.compute.schedule import SCHEDULES; sys.exit('mxnet' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=path(), check=False).returncode == 0
    assert {"2nn", "lenet5"} <= set(MODELS)
