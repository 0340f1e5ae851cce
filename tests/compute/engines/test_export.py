"""A model exported as ONNX and as a PyTorch module has the same outputs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.exported_graph import Graph, exported_values
from layers.compute.engines.mxnet.parameters import Definition
from layers.compute.engines.mxnet.to_torch import torch_module, torch_state
from layers.compute.errors import ComputeError
from tests.compute.engines import numpy_torch
from tests.compute.engines.exported_models import MODELS, Trained, trained

NOTES = {"model": "a model", "input": "an input", "round": "7"}


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> Trained:
    return trained(request.param, os.environ.get("FEDMX_DATA", ""))


@pytest.fixture(scope="module")
def content(model: Trained) -> bytes:
    pytest.importorskip("onnx", reason="needs onnx")
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    return onnx_model(model.engine.definition, model.values, NOTES)


def test_outputs_depend_on_the_samples(model: Trained) -> None:
    """Otherwise the other tests of this file would pass for any model."""
    assert model.outputs.std(axis=0).max() > 1e-4


def test_onnxruntime_gives_the_same_outputs(model: Trained, content: bytes) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert given.shape == ["batch", *model.engine.example_shape]
    for rows in (slice(None), slice(0, 1), slice(3, 8)):
        (outputs,) = session.run(["output"], {"input": model.x[rows]})
        np.testing.assert_allclose(outputs, model.outputs[rows], rtol=0, atol=1e-5)


def test_an_onnx_file_has_the_weights_by_the_engines_names(model: Trained, content: bytes) -> None:
    from layers.compute.engines.onnx_file import onnx_tensors

    found = onnx_tensors(content)
    expected = exported_values(Graph.of(model.engine.definition), model.values)
    assert expected.keys() == model.values.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


def test_an_onnx_file_has_metadata_and_a_version_that_old_runtimes_read(content: bytes) -> None:
    import onnx

    found = onnx.load_from_string(content)
    onnx.checker.check_model(found, full_check=True)
    assert {one.key: one.value for one in found.metadata_props} == NOTES
    assert (found.ir_version, [one.version for one in found.opset_import]) == (7, [13])
    assert [one.name for one in found.graph.input] == ["input"]


def test_the_same_model_gives_the_same_onnx_bytes(model: Trained, content: bytes) -> None:
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    mx.gluon.nn.Dense(3)  # MXNet counts its layers
    assert onnx_model(model.engine.definition, model.values, NOTES) == content


@pytest.fixture
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in numpy_torch.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("_torch")
def test_the_printed_module_gives_the_same_outputs(model: Trained) -> None:
    module, state = torch_state(model.engine.definition, model.values)
    names: dict = {}
    exec(module.source, names)  # noqa: S102
    loaded = names["Model"]()
    loaded.load_state_dict(state)
    outputs = loaded(numpy_torch.tensor(model.x[:8]))
    np.testing.assert_allclose(outputs, model.outputs[:8], rtol=0, atol=1e-5)


def test_every_parameter_is_in_the_state_dict_once(model: Trained) -> None:
    module = torch_module(model.engine.definition)
    assert sorted(module.tensors.values()) == sorted(model.values)
    assert all(name.endswith(".num_batches_tracked") for name in module.counters)


# MXNet's own defaults, as the documentation of its operators gives them.
DEFAULTS: dict[str, dict[str, Any]] = {
    "Activation": {},
    "BatchNorm": {"eps": 1e-3, "momentum": 0.9, "fix_gamma": True, "use_global_stats": False},
    "Concat": {"dim": 1},
    "Convolution": {
        **{"stride": (1, 1), "dilate": (1, 1), "pad": (0, 0)},
        **{"num_group": 1, "no_bias": False, "layout": "NCHW"},
    },
    "Dropout": {"p": 0.5, "axes": ()},
    "FullyConnected": {"no_bias": False, "flatten": True},
    "LeakyReLU": {"act_type": "leaky", "slope": 0.25},
    "Pooling": {
        **{"pool_type": "max", "global_pool": False, "pooling_convention": "valid"},
        **{"stride": (1, 1), "pad": (0, 0), "count_include_pad": True},
    },
    "RNN": {"bidirectional": False, "p": 0.0, "state_outputs": False},
}


def meaning(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def without_defaults(definition: Definition) -> Definition:
    """The same graph, in which no operator names a default."""
    graph = json.loads(definition.symbol.tojson())
    for node in graph["nodes"]:
        defaults = DEFAULTS.get(node["op"], {})
        for key, text in list(node.get("attrs", {}).items()):
            if key in defaults and meaning(text) == defaults[key]:
                del node["attrs"][key]
    return replace(definition, symbol=mx.sym.load_json(json.dumps(graph)))


def test_a_graph_that_does_not_name_its_defaults_gives_the_same_module(model: Trained) -> None:
    silent = without_defaults(model.engine.definition)
    assert silent.symbol.tojson() != model.engine.definition.symbol.tojson()
    assert torch_module(silent) == torch_module(model.engine.definition)


@pytest.mark.parametrize("name", ["cnn3", "lstm", "own-recurrent", "own-fixed-scale", "own-parts"])
def test_a_graph_that_does_not_name_its_defaults_has_the_same_outputs_in_onnx(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="needs onnx")
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    model = trained(name, os.environ.get("FEDMX_DATA", ""))
    content = onnx_model(without_defaults(model.engine.definition), model.values, NOTES)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(["output"], {"input": model.x})
    np.testing.assert_allclose(outputs, model.outputs, rtol=0, atol=1e-5)


def test_the_module_of_lenet5_is_readable() -> None:
    assert torch_module(trained("lenet5").engine.definition).source == LENET5


LENET5 = """\
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.conv1(x)
        x = torch.relu(x)
        x = F.max_pool2d(x, 2)
        x = self.conv2(x)
        x = torch.relu(x)
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        x = torch.relu(x)
        x = self.fc2(x)
        x = torch.relu(x)
        return self.fc3(x)
"""


def test_constant_word_vectors_are_frozen_in_pytorch() -> None:
    fixed = torch_module(trained("lstm").engine.definition).source
    assert "self.embedding1.weight.requires_grad_(False)" in fixed
    learnt = torch_module(trained("own-recurrent").engine.definition).source
    assert "nn.Embedding(10000, 12)" in learnt
    assert "requires_grad_" not in learnt


class Plain(mx.gluon.Block):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.dense = mx.gluon.nn.Dense(2)

    def forward(self, x):
        return self.dense(x if float(x.sum().asscalar()) < 9 else x / 2)


class Odd(mx.gluon.HybridBlock):
    """An operator that the exporters do not know."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.dense = mx.gluon.nn.Dense(2)

    def hybrid_forward(self, F, x):
        return F.smooth_l1(self.dense(x), scalar=1.0)


class Shared(mx.gluon.HybridBlock):
    """Two dense layers with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first = mx.gluon.nn.Dense(2, in_units=2)
            self.second = mx.gluon.nn.Dense(2, params=self.first.params, in_units=2)

    def hybrid_forward(self, F, x):
        return self.second(F.relu(self.first(x)))


def test_a_block_without_a_graph_is_refused_with_what_to_do() -> None:
    definition = MXNetEngine(Plain, (2,), 2).definition
    with pytest.raises(ComputeError, match=r"plain Block.*safetensors"):
        torch_module(definition)


def test_an_operator_without_a_translation_is_refused_by_name() -> None:
    engine = MXNetEngine(Odd, (2,), 2)
    with pytest.raises(ComputeError, match=r"smooth_l1.* onnx"):
        torch_module(engine.definition)
    pytest.importorskip("onnx", reason="needs onnx")
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    values = {t.name: engine.weights[t.start : t.stop].reshape(t.shape) for t in engine.layout}
    with pytest.raises(ComputeError, match="smooth_l1") as refused:
        onnx_model(engine.definition, values, NOTES)
    assert "\n" not in str(refused.value)


class OnImages(mx.gluon.HybridBlock):
    """An operator on images, before a layer that all models may have."""

    def __init__(self, operator: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self.operator, self.settings = operator, settings
        with self.name_scope():
            self.dense = mx.gluon.nn.Dense(2)

    def hybrid_forward(self, F, x):
        made = getattr(F, self.operator)(x, **self.settings)
        return self.dense(made[0] if self.settings.get("act_type") == "rrelu" else made)


@pytest.mark.parametrize(
    ("operator", "settings", "line"),
    [
        ("Activation", {"act_type": "relu"}, "x = torch.relu(x)"),
        ("Activation", {"act_type": "sigmoid"}, "x = torch.sigmoid(x)"),
        ("Activation", {"act_type": "tanh"}, "x = torch.tanh(x)"),
        ("Activation", {"act_type": "softrelu"}, "x = F.softplus(x)"),
        ("Activation", {"act_type": "softsign"}, "x = F.softsign(x)"),
        ("LeakyReLU", {}, "x = F.leaky_relu(x, 0.25)"),
        ("LeakyReLU", {"act_type": "elu", "slope": 0.5}, "x = F.elu(x, 0.5)"),
        ("LeakyReLU", {"act_type": "selu"}, "x = F.selu(x)"),
        ("LeakyReLU", {"act_type": "gelu"}, "x = F.gelu(x)"),
        ("LeakyReLU", {"act_type": "rrelu"}, None),
        ("Dropout", {}, "self.dropout1 = nn.Dropout(0.5)"),
        ("Dropout", {"p": 0.2, "axes": (2, 3)}, "self.dropout1 = nn.Dropout2d(0.2)"),
        ("Dropout", {"axes": (2,)}, None),
        ("Pooling", {"kernel": (2, 2)}, "x = F.max_pool2d(x, 2, stride=1)"),
        (
            "Pooling",
            {"kernel": (2, 2), "stride": (2, 1), "pad": (1, 1), "pool_type": "avg"},
            "x = F.avg_pool2d(x, 2, stride=(2, 1), padding=1)",
        ),
        ("Pooling", {"kernel": (2, 2), "pool_type": "sum"}, None),
    ],
)
def test_an_operator_on_images_in_pytorch(
    operator: str, settings: dict[str, Any], line: str | None
) -> None:
    definition = MXNetEngine(lambda: OnImages(operator, settings), (3, 4, 4), 2).definition
    if line is None:
        kind = settings.get("act_type") or settings.get("pool_type") or settings.get("axes")
        with pytest.raises(ComputeError, match=re.escape(str(kind))):
            torch_module(definition)
    else:
        assert line in [one.strip() for one in torch_module(definition).source.splitlines()]


def ceil_pooled() -> mx.gluon.nn.HybridSequential:
    """A pooling that rounds its size up: windows of 2 at every third place, as far as there are."""
    net = mx.gluon.nn.HybridSequential()
    with net.name_scope():
        net.add(mx.gluon.nn.MaxPool2D(2, 3, ceil_mode=True), mx.gluon.nn.Dense(2))
    return net


def test_a_pooling_window_beyond_the_image_is_refused_for_pytorch_which_leaves_it_out() -> None:
    source = torch_module(MXNetEngine(ceil_pooled, (1, 4, 4), 2).definition).source
    assert "F.max_pool2d(x, 2, stride=3, ceil_mode=True)" in source
    assert "nn.Linear(4, 2)" in source
    with pytest.raises(ComputeError, match="Pooling"):  # the second window would begin at 3 of 3
        torch_module(MXNetEngine(ceil_pooled, (1, 3, 3), 2).definition)


def test_a_shared_parameter_is_refused_for_pytorch() -> None:
    with pytest.raises(ComputeError, match=r"first\.weight"):
        torch_module(MXNetEngine(Shared, (2,), 2).definition)


def test_the_users_onnx_and_mxnets_translations_do_not_change(content: bytes) -> None:
    import onnx
    from mxnet.onnx.mx2onnx import _op_translations
    from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph

    assert content
    assert not hasattr(onnx, "mapping")
    assert "onnx.mapping" not in sys.modules
    assert _op_translations._op_translations_opset12.onnx is onnx
    assert MXNetGraph.registry_[13]["RNN"].__module__.startswith("mxnet.")
    assert "null" not in MXNetGraph.registry_[13]


def test_torch_and_onnx_are_imported_only_when_they_are_used() -> None:
    code = (
        "import sys, fedmx.cli.main, fedmx.cli.runs\n"
        "print(sorted({'mxnet', 'onnx', 'torch', 'onnxruntime'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.check_output([sys.executable, "-c", code], cwd=root, text=True)
    assert done == "[]\n"


class Stateful(mx.gluon.HybridBlock):
    """A recurrent layer that starts from the first values of its input."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.gru = mx.gluon.rnn.GRU(2, layout="NTC")

    def hybrid_forward(self, F, x):
        first = F.swapaxes(F.slice_axis(x, axis=1, begin=0, end=1), dim1=0, dim2=1)
        return F.flatten(self.gru(x, [first])[0])


def test_a_recurrent_layer_with_states_is_refused_for_onnx_with_the_reason() -> None:
    pytest.importorskip("onnx", reason="needs onnx")
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    engine = MXNetEngine(Stateful, (3, 2), 6)
    with pytest.raises(ComputeError, match=r"^operator RNN: only .* zeros"):
        onnx_model(engine.definition, engine.values(), NOTES)


def test_an_onnx_file_whose_weights_are_in_another_file_is_refused_with_a_weight() -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    from layers.compute.engines.onnx_file import onnx_tensors

    weights = [onnx.numpy_helper.from_array(np.ones(3, "f"), name) for name in ("a", "b")]
    onnx.external_data_helper.set_external_data(weights[1], "weights.bin")
    graph = onnx.helper.make_graph([], "graph", [], [], weights)
    with pytest.raises(ComputeError, match=r"such as b, .*beside it"):
        onnx_tensors(onnx.helper.make_model(graph).SerializeToString())


@pytest.mark.parametrize(
    "content", [b"", b"not a model", b"\x08\x07"], ids=["empty", "text", "no weights"]
)
def test_a_file_that_is_not_onnx_is_refused(content: bytes) -> None:
    pytest.importorskip("onnx", reason="needs onnx")
    from layers.compute.engines.onnx_file import onnx_tensors

    with pytest.raises(ComputeError, match="not an ONNX file"):
        onnx_tensors(content)
