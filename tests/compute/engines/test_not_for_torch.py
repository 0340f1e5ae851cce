"""What has no translation to PyTorch is refused by the name of its operator, in one line."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import pytest
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


def own(of: Callable[..., Any], **given: Any) -> Callable[[], Any]:
    return lambda: Own(of, given)


def layer(make: Callable[..., Any], *args: Any, **named: Any) -> Callable[[], Any]:
    def net() -> Any:
        made = nn.HybridSequential()
        made.add(make(*args, **named), nn.Dense(2))
        return made

    return net


def _batch(F: Any, x: Any, given: Any) -> Any:
    made = F.BatchNorm(x, given.gamma, given.beta, given.mean, given.var, output_mean_var=True)
    return F.broadcast_add(made[0], made[1])


def _reshaped_weights(F: Any, x: Any, given: Any) -> Any:
    return F.FullyConnected(x, F.reshape(given.p, shape=(3, 4)), num_hidden=3, no_bias=True)


def _with_state(F: Any, x: Any, given: Any) -> Any:
    return given.gru(x, [F.swapaxes(F.slice_axis(x, axis=1, begin=0, end=1), dim1=0, dim2=1)])[0]


def _raw_rnn(F: Any, x: Any, given: Any) -> Any:
    return F.RNN(x, given.p, F.zeros((1, 2, 3)), state_size=3, num_layers=1, mode="rnn_tanh")


def _pool(**settings: Any) -> Callable[[], Any]:
    return own(lambda F, x, _: F.Pooling(x, kernel=(2, 2), **settings))


GRU = partial(rnn.GRU, 4, layout="NTC")
FOUR = dict.fromkeys(("gamma", "beta", "mean", "var"), (3,))
CLIPPED = layer(rnn.LSTM, 3, layout="NTC", state_clip_min=-1, state_clip_max=1)
REFUSED: list[tuple[Callable[[], Any], tuple[int, ...], str]] = [
    (own(lambda F, x, _: F.smooth_l1(x, scalar=1.0)), (4,), "smooth_l1"),
    (own(lambda F, x, given: F.broadcast_mul(x, given.p), p=(1, 4)), (4,), "broadcast_mul"),
    (own(lambda F, x, given: F.broadcast_mul(x, F.sigmoid(given.p)), p=(1, 4)), (4,), "sigmoid"),
    (own(lambda F, x, given: F.concat(x, given.p), p=(2, 4)), (4,), "Concat"),
    (own(_reshaped_weights, p=(12,)), (4,), "FullyConnected"),
    (own(_batch, **FOUR), (3,), "broadcast_add"),
    (own(lambda F, x, _: F.broadcast_add(x, F.zeros((1, 4)))), (4,), "_zeros"),
    (_pool(layout="NHWC"), (4, 4, 2), "NHWC"),
    (_pool(pool_type="lp", p_value=2), (2, 4, 4), "lp"),
    (layer(nn.BatchNorm, axis=2), (3, 4), "BatchNorm"),
    (layer(nn.MaxPool1D, 3, 1, 2), (2, 5), "Pooling"),
    (layer(nn.PReLU), (4,), "prelu"),
    (layer(nn.Dropout, 0.5, axes=(1,)), (2, 3), "Dropout"),
    (own(lambda F, x, _: F.reshape(x, shape=(0, -2))), (4,), "(0, -2)"),
    (own(lambda F, x, _: F.reshape(F.reshape(x, shape=(-1, 2)), shape=(2, 4))), (4,), "(-1, 2)"),
    (own(_with_state, gru=GRU), (5, 4), "RNN"),
    (own(_raw_rnn, p=(27,)), (2, 4), "RNN"),
    (CLIPPED, (5, 4), "lstm_state_clip_min"),
]


@pytest.mark.parametrize(("build", "shape", "name"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_has_no_translation_is_named(
    build: Callable[[], Any], shape: tuple[int, ...], name: str
) -> None:
    with pytest.raises(ComputeError) as caught:
        torch_module(MXNetEngine(build, shape, 2).definition)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
