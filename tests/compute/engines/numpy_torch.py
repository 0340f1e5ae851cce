"""The parts of PyTorch that exported modules use, in numpy, by PyTorch's documentation.

With this, the source of an exported module runs without PyTorch.
`benchmarks/torch_export.py` runs the same with PyTorch itself.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


class Tensor(np.ndarray):
    """An array with PyTorch's names of methods."""

    def long(self) -> Tensor:
        return self.astype(np.int64)

    def transpose(self, a: int, b: int) -> Tensor:  # type: ignore[override]
        return self.swapaxes(a, b)

    def clamp(self, low: float, high: float) -> Tensor:
        return self.clip(low, high)


def tensor(array: np.ndarray) -> Tensor:
    return np.asarray(array).view(Tensor)


class Module:
    """nn.Module: attributes that are layers, and a strict `load_state_dict`."""

    def __call__(self, *inputs: Tensor) -> Any:
        return self.forward(*inputs)  # type: ignore[attr-defined]

    def names(self, prefix: str = "") -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name, value in vars(self).items():
            if isinstance(value, Module):
                found |= value.names(f"{prefix}{name}.")
            elif isinstance(value, Parameter):
                found[prefix + name] = value.shape
        return found

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        assert {name: value.shape for name, value in state.items()} == self.names()
        for name, value in state.items():
            layer, _, own = name.partition(".")
            getattr(self, layer).__dict__[own] = tensor(value)


class Parameter:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def requires_grad_(self, _: bool) -> None:
        pass


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _windows(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int]) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    return windows[:, :, :: stride[0], :: stride[1]]


class Conv2d(Module):
    def __init__(self, before, after, kernel_size, stride=1, padding=0, groups=1, bias=True):
        self.weight = Parameter(after, before // groups, *_pair(kernel_size))
        if bias:
            self.bias = Parameter(after)
        self.settings = _pair(kernel_size), _pair(stride), _pair(padding), groups

    def forward(self, x):
        kernel, stride, (p, q), groups = self.settings
        x, kernels = np.asarray(x), np.asarray(self.weight)  # with numpy's own methods
        windows = _windows(np.pad(x, ((0, 0), (0, 0), (p, p), (q, q))), kernel, stride)
        parts = [
            np.einsum("ncyxij,ocij->noyx", one, weight, optimize=True)
            for one, weight in zip(
                np.split(windows, groups, 1), np.split(kernels, groups), strict=True
            )
        ]
        y = np.concatenate(parts, 1)
        return tensor(y + self.bias[:, None, None] if hasattr(self, "bias") else y)


class Linear(Module):
    def __init__(self, before, after, bias=True):
        self.weight = Parameter(after, before)
        if bias:
            self.bias = Parameter(after)

    def forward(self, x):
        y = x @ self.weight.T
        return tensor(y + self.bias if hasattr(self, "bias") else y)


class BatchNorm2d(Module):
    def __init__(self, channels, eps=1e-5, momentum=0.1):
        self.eps = eps
        for name in ("weight", "bias", "running_mean", "running_var"):
            setattr(self, name, Parameter(channels))
        self.num_batches_tracked = Parameter()

    def forward(self, x):
        scale = self.weight / np.sqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        return tensor(x * scale[:, None, None] + shift[:, None, None])


class LayerNorm(Module):
    def __init__(self, size, eps=1e-5):
        self.eps = eps
        self.weight, self.bias = Parameter(size), Parameter(size)

    def forward(self, x):
        away = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((away**2).mean(-1, keepdims=True) + self.eps)
        return tensor(away / scale * self.weight + self.bias)


class Dropout(Module):
    """Dropout of a module that is evaluated."""

    def __init__(self, p):
        assert 0 <= p < 1

    def forward(self, x):
        return x


class Embedding(Module):
    def __init__(self, rows, columns):
        self.weight = Parameter(rows, columns)

    def forward(self, x):
        assert x.dtype == np.int64
        return tensor(self.weight[x])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Recurrent(Module):
    """A recurrent layer over (time, batch, values)."""

    gates: int

    def __init__(self, before, size, num_layers=1, bidirectional=False):
        self.ends = ("", "_reverse") if bidirectional else ("",)
        self.size, self.layers = size, num_layers
        for layer in range(num_layers):
            for end in self.ends:
                setattr(self, f"weight_ih_l{layer}{end}", Parameter(self.gates * size, before))
                setattr(self, f"weight_hh_l{layer}{end}", Parameter(self.gates * size, size))
                setattr(self, f"bias_ih_l{layer}{end}", Parameter(self.gates * size))
                setattr(self, f"bias_hh_l{layer}{end}", Parameter(self.gates * size))
            before = size * len(self.ends)

    def forward(self, x):
        for layer in range(self.layers):
            x = np.concatenate([self._run(x, f"l{layer}{end}", end) for end in self.ends], 2)
        return tensor(x), None

    def _run(self, x, place, end):
        wi, wh, bi, bh = (
            getattr(self, f"{name}_{place}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = c = np.zeros((x.shape[1], self.size), np.float32)
        out = []
        for step in x[::-1] if end else x:
            h, c = self.step(step @ wi.T + bi, h @ wh.T + bh, h, c)
            out.append(h)
        return np.stack(out[::-1] if end else out)


class RNN(Recurrent):
    gates = 1

    def __init__(self, before, size, nonlinearity="tanh", **more):
        super().__init__(before, size, **more)
        self.nonlinearity = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[nonlinearity]

    def step(self, a, b, h, c):
        return self.nonlinearity(a + b), c


class LSTM(Recurrent):
    gates = 4

    def step(self, a, b, h, c):
        i, f, g, o = np.split(a + b, 4, 1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c


class GRU(Recurrent):
    gates = 3

    def step(self, a, b, h, c):
        (ar, az, an), (br, bz, bn) = np.split(a, 3, 1), np.split(b, 3, 1)
        r, z = _sigmoid(ar + br), _sigmoid(az + bz)
        return (1 - z) * np.tanh(an + r * bn) + z * h, c


def _max_pool2d(x, kernel_size, stride=None, padding=0):
    p = padding
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=-np.inf)
    kernel = _pair(kernel_size)
    return tensor(_windows(padded, kernel, _pair(stride or kernel)).max((4, 5)))


def modules() -> dict[str, ModuleType]:
    """The modules to put in `sys.modules` while a source is run."""
    torch, nn, functional = (ModuleType(n) for n in ("torch", "torch.nn", "torch.nn.functional"))
    nn.__dict__.update(
        Module=Module,
        Conv2d=Conv2d,
        Linear=Linear,
        BatchNorm2d=BatchNorm2d,
        LayerNorm=LayerNorm,
        Dropout=Dropout,
        Dropout2d=Dropout,
        Embedding=Embedding,
        RNN=RNN,
        LSTM=LSTM,
        GRU=GRU,
        functional=functional,
    )
    functional.__dict__.update(
        max_pool2d=_max_pool2d,
        adaptive_avg_pool2d=lambda x, _: tensor(x.mean((2, 3), keepdims=True)),
    )
    torch.__dict__.update(
        nn=nn,
        relu=lambda x: tensor(np.maximum(x, 0)),
        tanh=lambda x: tensor(np.tanh(x)),
        flatten=lambda x, _: x.reshape(len(x), -1),
        cat=lambda parts, axis: tensor(np.concatenate(parts, axis)),
    )
    return {"torch": torch, "torch.nn": nn, "torch.nn.functional": functional}
