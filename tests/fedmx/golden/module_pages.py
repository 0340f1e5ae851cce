"""The PyTorch modules that an export prints for small models, and its refusals of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import mxnet as mx
from mxnet.gluon import nn, rnn

from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.to_torch import torch_module
from layers.compute.errors import ComputeError


class Own(mx.gluon.HybridBlock):
    """A dense layer on the result of `of(F, x, given)`.

    Args:
        of: gets the parameters and the layers by name, in `given`.
        given: the shape of each parameter, and a function that makes each layer, by name.
    """

    def __init__(self, of: Callable[..., Any], given: dict[str, Any]):
        super().__init__()
        self._of, self._layers = of, {}
        with self.name_scope():
            for name, one in given.items():
                if isinstance(one, tuple):
                    setattr(self, name, self.params.get(name, shape=one, init="ones"))
                else:
                    self._layers[name] = one()
                    setattr(self, name, self._layers[name])
            self.last = nn.Dense(2)

    def hybrid_forward(self, F: Any, x: Any, **parameters: Any) -> Any:
        return self.last(self._of(F, x, SimpleNamespace(**self._layers, **parameters)))


class AsItIs(mx.gluon.HybridBlock):
    """A model that gives its inputs, beside a layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.unused = nn.Dense(2, in_units=2)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.identity(x)


def layers(*given: Callable[[], Any]) -> Any:
    """Return a model of these layers and a dense one."""
    net = nn.HybridSequential()
    net.add(*(make() for make in given), nn.Dense(2))
    return net


def own(of: Callable[..., Any], **given: Any) -> Callable[[], Any]:
    """Return a function that builds a model with this forward pass; see `Own`."""
    return lambda: Own(of, given)


def _defaults(F: Any, x: Any, given: Any) -> Any:
    """Return operators with as few settings as they take."""
    y = F.Convolution(x, given.weight, num_filter=3, kernel=(2, 2), no_bias=True)
    y = F.BatchNorm(y, given.gamma, given.beta, given.mean, given.var)
    return F.Dropout(F.LeakyReLU(F.Pooling(y, kernel=(2, 3))))


def _branches(F: Any, x: Any, given: Any) -> Any:
    """Return more values at a time than there are short names."""
    return F.identity(F.concat(*(F.sigmoid(x) for _ in range(7)), x + F.tanh(x)))


def _parts(F: Any, x: Any, given: Any) -> Any:
    """Return slices, joined, turned and limited."""
    x = F.reshape(x, shape=(0, 3, 4))
    first, middle = F.slice_axis(x, axis=1, begin=0, end=1), x.slice_axis(axis=-1, begin=1, end=3)
    last = F.slice_axis(x, axis=2, begin=-2, end=None)
    turned = F.swapaxes(F.concat(middle, last, dim=2), dim1=1, dim2=2)
    flat = F.concat(F.flatten(turned), F.reshape(first, shape=(0, -1)), dim=1)
    return F.broadcast_mul(F.clip(flat, -1.5, 6), F.broadcast_add(flat, F.tanh(flat)))


def _normalised(F: Any, x: Any, given: Any) -> Any:
    normalised = F.BatchNorm(
        x, given.gamma, given.beta, given.mean, given.var, output_mean_var=True
    )
    return F.broadcast_add(normalised[0], normalised[1])


def _with_state(F: Any, x: Any, given: Any) -> Any:
    first = F.slice_axis(x, axis=1, begin=0, end=1)
    return given.gru(x, [F.swapaxes(first, dim1=0, dim2=1)])[0]


def _state_read(F: Any, x: Any, given: Any) -> Any:
    output, states = given.gru(x, given.gru.begin_state(2, func=F.zeros))
    return F.broadcast_add(output, F.swapaxes(states[0], dim1=0, dim2=1))


def _raw_rnn(F: Any, x: Any, given: Any) -> Any:
    state = F.zeros((1, 2, 3))
    return F.RNN(x, given.p, state, state_size=3, num_layers=1, mode="rnn_tanh")


GRU = partial(rnn.GRU, 4, layout="NTC")
STATISTICS = dict.fromkeys(("gamma", "beta", "mean", "var"), (3,))
PRINTED: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "one dimension": (
        lambda: layers(
            partial(nn.Conv1D, 4, 3, strides=2, padding=1, groups=2),
            partial(nn.BatchNorm, epsilon=1e-5, momentum=0.9),
            partial(nn.AvgPool1D, 2),
        ),
        (2, 12),
    ),
    "two dimensions": (
        lambda: layers(
            partial(nn.Conv2D, 3, (1, 3), strides=(2, 1), dilation=(1, 2), use_bias=False),
            nn.BatchNorm,
            partial(nn.MaxPool2D, (1, 2)),
            partial(nn.AvgPool2D, 3, 1, 1),
            partial(nn.AvgPool2D, 2, 2, 1, count_include_pad=False),
            partial(nn.MaxPool2D, 2, 3, ceil_mode=True),
            nn.GlobalMaxPool2D,
        ),
        (2, 11, 16),
    ),
    "three dimensions": (
        lambda: layers(
            partial(nn.Conv3D, 3, 2, padding=(0, 1, 2)),
            nn.BatchNorm,
            partial(nn.MaxPool3D, 2, 1),
            nn.GlobalAvgPool3D,
        ),
        (2, 4, 4, 4),
    ),
    "values": (lambda: layers(nn.BatchNorm, partial(nn.Dense, 3, use_bias=False)), (4,)),
    "rows": (lambda: layers(partial(nn.Dense, 3, flatten=False)), (5, 4)),
    "dropout": (
        lambda: layers(partial(nn.Dropout, 0.25), partial(nn.Dropout, 0.5, axes=(2, 3))),
        (2, 3, 3),
    ),
    "activations": (
        lambda: layers(
            *(
                partial(nn.Activation, kind)
                for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")
            ),
            partial(nn.LeakyReLU, 0.1),
            partial(nn.ELU, 0.5),
            nn.SELU,
            nn.GELU,
        ),
        (4,),
    ),
    "defaults": (own(_defaults, weight=(3, 2, 2, 2), **STATISTICS), (2, 5, 5)),
    "parts": (own(_parts), (12,)),
    "branches": (own(_branches), (4,)),
    "layers alone": (layers, (4,)),
    "nothing": (AsItIs, (2,)),
    "tokens": (lambda: layers(partial(nn.Embedding, 9, 3)), (5,)),
    "recurrent layers": (
        lambda: layers(
            partial(rnn.RNN, 3, layout="NTC", activation="tanh"),
            partial(rnn.RNN, 3, 2, "relu", "NTC", dropout=0.5),
            partial(rnn.LSTM, 3, 2, "NTC", dropout=0.25, bidirectional=True),
            partial(rnn.GRU, 3, layout="NTC"),
        ),
        (5, 4),
    ),
}
REFUSED: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "an unknown operator": (own(lambda F, x, _: F.smooth_l1(x, scalar=1.0)), (4,)),
    "a factor": (own(lambda F, x, given: F.broadcast_mul(x, given.p), p=(1, 4)), (4,)),
    "an activation of a factor": (
        own(lambda F, x, given: F.broadcast_mul(x, F.sigmoid(given.p)), p=(1, 4)),
        (4,),
    ),
    "joined with a parameter": (own(lambda F, x, given: F.concat(x, given.p), p=(2, 4)), (4,)),
    "weights of another shape": (
        own(
            lambda F, x, given: F.FullyConnected(
                x, F.reshape(given.p, shape=(3, 4)), num_hidden=3, no_bias=True
            ),
            p=(12,),
        ),
        (4,),
    ),
    "statistics of a batch": (own(_normalised, **STATISTICS), (3,)),
    "zeros": (own(lambda F, x, _: F.broadcast_add(x, F.zeros((1, 4)))), (4,)),
    "channels at the end": (
        own(lambda F, x, _: F.Pooling(x, kernel=(2, 2), layout="NHWC")),
        (4, 4, 2),
    ),
    "normalised columns": (lambda: layers(partial(nn.BatchNorm, axis=2)), (3, 4)),
    "a norm of windows": (
        own(lambda F, x, _: F.Pooling(x, kernel=(2, 2), pool_type="lp", p_value=2)),
        (2, 4, 4),
    ),
    "a padding of more than half a window": (
        lambda: layers(partial(nn.MaxPool1D, 3, 1, 2)),
        (2, 5),
    ),
    "a learnt slope": (lambda: layers(nn.PReLU), (4,)),
    "dropout of rows": (lambda: layers(partial(nn.Dropout, 0.5, axes=(1,))), (2, 3)),
    "a shape with the other sizes": (own(lambda F, x, _: F.reshape(x, shape=(0, -2))), (4,)),
    "samples in another order": (
        own(lambda F, x, _: F.reshape(F.reshape(x, shape=(-1, 2)), shape=(2, 4))),
        (4,),
    ),
    "own states": (own(_with_state, gru=GRU), (5, 4)),
    "states that are read": (own(_state_read, gru=GRU), (5, 4)),
    "own weights of a recurrent layer": (own(_raw_rnn, p=(27,)), (2, 4)),
    "limited states": (
        lambda: layers(partial(rnn.LSTM, 3, layout="NTC", state_clip_min=-1, state_clip_max=1)),
        (5, 4),
    ),
}


def printed_modules() -> str:
    """Return the modules, with the parameter in each tensor, and why a model has none."""
    lines = []
    for name, (build, shape) in {**PRINTED, **REFUSED}.items():
        lines += [f"== {name}: inputs {shape}"]
        try:
            module = torch_module(MXNetEngine(build, shape, 2).definition)
        except ComputeError as error:
            lines += [str(error)]
            continue
        lines += [module.source]
        lines += [f"{tensor}: {own}" for tensor, own in module.tensors.items()]
        lines += [f"{counter}: a counter" for counter in module.counters]
    return "\n".join(lines)
