"""The engine on PyTorch: any module on one vector, with its buffers, frozen parts and own draws."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx.assembly.start_file import read_start
from layers.compute.data.dataset import Samples
from layers.compute.errors import ComputeError
from layers.compute.losses.references import Distillation
from layers.compute.optimisers.adaptive import AdamW
from tests.compute.engines.training import path, plan, samples

pytestmark = pytest.mark.needs_torch

IMAGES = samples(20, (1, 8, 8), 3)
VALUES = samples(20, (6,), 3)
TOKENS = Samples(np.random.default_rng(0).integers(0, 50, (20, 7)), VALUES.y)


@pytest.fixture
def toys() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    from tests.compute.engines import torch_toys

    return torch_toys


def engine(build: Any, data: Samples, seed: int = 4, **more: Any) -> Any:
    from layers.compute.engines.torch.engine import TorchEngine

    return TorchEngine(build, data.x.shape[1:], 3, seed=seed, **more)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_module_trains_as_by_hand(toys: Any, precision: str) -> None:
    import torch

    def build() -> Any:
        return toys.Normed(rate=0.0)

    made, twin = engine(build, IMAGES, precision=precision), build()
    names = {one.name: made.weights[one.start : one.stop].reshape(one.shape) for one in made.layout}
    state = twin.state_dict()
    state.update({name: torch.from_numpy(value.copy()) for name, value in names.items()})
    twin.load_state_dict(state)
    made.train(IMAGES, plan(steps=1, batch_size=0, momentum=0.9, weight_decay=0.01), 1)
    given = torch.from_numpy(IMAGES.x), torch.from_numpy(IMAGES.y)
    after = toys.by_hand(twin, *given, 0.1, bf16=precision == "bf16")
    for layout, vector in ((made.layout, made.weights), (made.buffers_layout, made.buffers)):
        assert layout
        for one in layout:
            expected = after[one.name].numpy().reshape(-1)
            assert vector[one.start : one.stop] == pytest.approx(expected, abs=1e-6), one.name


def test_adapters_train_by_a_kept_adamw_as_in_a_loop_of_pytorch(toys: Any) -> None:
    """Three rounds of one client have the loss curve of three epochs."""
    import torch

    from examples.torch_lora import Transformer, data
    from layers.compute.engines.torch.engine import TorchEngine

    x, y, *_ = data()
    train = Samples(x[:400].astype("f"), y[:400])
    made = TorchEngine(Transformer, x.shape[1:], 10, seed=4)
    made.optimiser = AdamW(state="keep")
    settings = plan(batch_size=20, learning_rate=0.01, weight_decay=0.1)
    twin = Transformer()
    twin.load_state_dict({name: torch.from_numpy(one) for name, one in made.values().items()})
    adapters = [one for one in twin.parameters() if one.requires_grad]
    steps = torch.optim.AdamW(adapters, 0.01, weight_decay=0.1)
    kept: dict[str, np.ndarray] = {}
    for seed in range(3):
        batches = made.batches(train, settings, seed, kept=kept)
        losses = []
        for batch in batches:
            made.step(batch)
            outputs = twin(torch.from_numpy(batch.x))
            loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(batch.y))
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses.append(loss.item())
        kept = {name: array.copy() for name, array in batches.kept.items()}
        assert batches.report().loss == pytest.approx(np.mean(losses), abs=1e-3), seed
    assert np.mean(losses) < 1, "the adapters learn"


def test_bf16_changes_training_and_not_inference(toys: Any) -> None:
    usual, fast, again = (
        engine(lambda: toys.Normed(rate=0.0), IMAGES, precision=precision)
        for precision in ("float32", "bf16", "bf16")
    )
    assert fast.outputs(IMAGES).logits.tobytes() == usual.outputs(IMAGES).logits.tobytes()
    for one in (usual, fast, again):
        one.train(IMAGES, plan(steps=3), 1)
        assert one.weights.dtype == np.float32
    assert fast.weights.tobytes() == again.weights.tobytes() != usual.weights.tobytes()
    assert fast.weights == pytest.approx(usual.weights, abs=0.01)


def test_a_training_has_the_same_bits_again_also_in_a_new_process(toys: Any) -> None:
    made, ends = engine(toys.Normed, IMAGES), []
    for _ in range(2):
        made.load(*made.initial(4))
        made.train(IMAGES, plan(epochs=2), 9)
        ends.append((made.weights.tobytes(), made.buffers.tobytes(), made.evaluate(IMAGES)))
    assert ends[0] == ends[1]
    code = (
        "import hashlib; from tests.compute.engines.test_torch import *;"
        "from tests.compute.engines import torch_toys as toys; made = engine(toys.Normed, IMAGES);"
        "made.train(IMAGES, plan(epochs=2), 9); print(hashlib.sha256(made.weights).hexdigest())"
    )
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=path(OMP_NUM_THREADS="4"),
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == hashlib.sha256(ends[0][0]).hexdigest(), said.stderr


def test_initial_values_are_those_that_the_module_draws_from_the_seed(toys: Any) -> None:
    one, other = engine(toys.Normed, IMAGES, seed=1), engine(toys.Normed, IMAGES, seed=2)
    assert one.weights.tobytes() != other.weights.tobytes()
    assert one.initial(2)[0].tobytes() == other.weights.tobytes()
    trained = toys.Normed()
    by_object = engine(lambda: trained, IMAGES)
    by_object.train(IMAGES, plan(), 1)
    own = np.concatenate([one.detach().numpy().reshape(-1) for one in trained.parameters()])
    assert by_object.initial(7)[0].tobytes() == own.tobytes()


def test_evaluation_uses_the_running_statistics_and_changes_nothing(toys: Any) -> None:
    made = engine(toys.Normed, IMAGES)
    made.train(IMAGES, plan(), 1)
    before = made.weights.copy(), made.buffers.copy()
    first = made.evaluate(IMAGES)
    made.gradient(IMAGES)
    assert made.evaluate(IMAGES) == first
    assert (made.weights == before[0]).all()
    assert (made.buffers == before[1]).all()


def test_frozen_parameters_are_in_no_vector_and_equal_in_every_process(toys: Any) -> None:
    made = engine(toys.Adapted, VALUES)
    assert [one.name for one in made.layout] == [
        "down.weight",
        "up.weight",
        "head.weight",
        "head.bias",
    ]
    frozen = made.definition.constants
    assert set(frozen) == {"base.weight", "base.bias"}
    again = engine(toys.Adapted, VALUES).definition.constants
    assert all((again[name] == value).all() for name, value in frozen.items())
    before = {name: value.copy() for name, value in frozen.items()}
    made.train(VALUES, plan(epochs=2), 1)
    after = made.definition.constants
    assert all((after[name] == value).all() for name, value in before.items())


def test_tokens_reach_an_embedding_as_whole_numbers(toys: Any) -> None:
    made = engine(toys.Words, TOKENS)
    assert made.takes_tokens
    before = made.evaluate(TOKENS).loss
    made.train(TOKENS, plan(epochs=20, learning_rate=0.5), 1)
    assert made.evaluate(TOKENS).loss < before


def test_a_shared_tensor_is_in_the_vector_once(toys: Any) -> None:
    made = engine(toys.Tied, VALUES)
    names = [one.name for one in made.layout]
    assert names == ["one.weight", "one.bias", "two.bias", "head.weight", "head.bias"]
    made.train(VALUES, plan(), 1)
    assert made._module.one.weight is made._module.two.weight


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Two", "several outputs"),
        ("counting", "momentum=None"),
        ("in_float64", "float64|Double"),
        ("Normed", r"\(6,\)"),
    ],
)
def test_what_the_engine_cannot_train_is_refused(name: str, said: str, toys: Any) -> None:
    with pytest.raises(ComputeError, match=said):
        engine(getattr(toys, name), VALUES)


def test_another_engines_model_is_refused(toys: Any) -> None:
    with pytest.raises(ComputeError, match=r"compute\.engine: mxnet"):
        engine(lambda: "a block", VALUES)


def test_a_state_dict_begins_a_run(toys: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    made, trained = engine(toys.Normed, IMAGES), toys.Normed()
    save_file(trained.state_dict(), tmp_path / "trained.safetensors")
    start = read_start(tmp_path / "trained.safetensors", made)
    made.load(start.weights, start.buffers)
    for name, value in made._module.state_dict().items():
        assert (value == trained.state_dict()[name]).all(), name


@pytest.mark.parametrize("device", ["cpu:0", "cuda"])
def test_a_device_with_memory_of_its_own_gives_what_the_host_gives(device: str, toys: Any) -> None:
    """For the engine, "cpu:0" is a device to which everything is copied."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    ends = []
    for name in ("cpu", device):
        made = engine(lambda: toys.Normed(rate=0.0), IMAGES, loss=Distillation(), device=name)
        references = {one: made.initial(8) for one in made.loss.references}
        made.train(IMAGES, plan(epochs=2, momentum=0.9), 9, references=references)
        outputs = made.outputs(IMAGES).logits
        ends.append([made.weights, made.buffers, made.scores(IMAGES).losses, outputs])
        assert made.device.startswith(device[:3] if name == device else "cpu")
    for one, other in zip(*ends, strict=True):
        assert one.any()
        assert one == pytest.approx(other, abs=0 if device == "cpu:0" else 1e-4)


def test_a_gpu_that_is_not_there_is_refused(toys: Any) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(ComputeError, match=r"compute\.device: .*cuda"):
        engine(toys.Normed, IMAGES, device="cuda")


def test_threads_and_determinism_are_given_back(toys: Any) -> None:
    import torch

    from layers.compute.engines.torch.engine import one_thread

    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with one_thread():
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
