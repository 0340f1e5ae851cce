"""Operators on arrays with their gradients, under the names by which losses call them.

An operator returns a `Node`, which knows the nodes that it was computed from and how a gradient
goes back to them. `Operators` has those that losses use; `layers.compute.engines.numpy.network`
those of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from layers.compute.errors import ComputeError

Back: TypeAlias = "Callable[[np.ndarray], np.ndarray]"
"""Returns the gradient of an input from the gradient of the output."""

_order = count()


class Node:
    """An array, with its way back to the arrays that it was computed from.

    Attributes:
        array: the value, float32.
        gradient: the gradient of what `backward` began from; None: it has none.
    """

    __slots__ = ("array", "gradient", "order", "sources")

    def __init__(self, array: np.ndarray, *sources: tuple[Node, Back], leaf: bool = False):
        self.array = array
        self.gradient: np.ndarray | None = None
        # Constants, and what was computed from them alone, need no gradient.
        self.sources = tuple(one for one in sources if one[0].order >= 0)
        self.order: int = next(_order) if leaf or self.sources else -1

    def __add__(self, other: Any) -> Node:
        b = node(other)
        return Node(self.array + b.array, (self, _like(self)), (b, _like(b)))

    def __sub__(self, other: Any) -> Node:
        return self + (-node(other))

    def __rsub__(self, other: Any) -> Node:
        return node(other) - self

    def __mul__(self, other: Any) -> Node:
        b = node(other)
        to_self, to_b = _like(self), _like(b)
        return Node(
            self.array * b.array,
            (self, lambda g: to_self(g * b.array)),
            (b, lambda g: to_b(g * self.array)),
        )

    def __truediv__(self, other: Any) -> Node:
        b = node(other)
        value, to_self, to_b = self.array / b.array, _like(self), _like(b)
        return Node(
            value,
            (self, lambda g: to_self(g / b.array)),
            (b, lambda g: to_b(-g * value / b.array)),
        )

    def __rtruediv__(self, other: Any) -> Node:
        return node(other) / self

    def __neg__(self) -> Node:
        return Node(-self.array, (self, lambda g: -g))

    def __pow__(self, exponent: float) -> Node:
        value, power = self.array, np.float32(exponent)
        return Node(value**power, (self, lambda g: g * power * value ** (power - 1)))

    __radd__ = __add__
    __rmul__ = __mul__


def node(value: Any) -> Node:
    """Return a node as it is, and a number or an array as a constant."""
    return value if isinstance(value, Node) else Node(np.asarray(value, np.float32))


def _like(one: Node) -> Back:
    """Return how a gradient is summed to the shape of a node that was broadcast."""
    shape = one.array.shape

    def back(g: np.ndarray) -> np.ndarray:
        if g.shape == shape:
            return g
        g = g.sum(axis=tuple(range(g.ndim - len(shape))))
        stretched = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
        return np.asarray(g.sum(axis=stretched).reshape(shape))

    return back


def backward(head: Node) -> None:
    """Compute the gradient of each node below a head of a loss."""
    waiting = [(-head.order, head)] if head.order >= 0 else []
    head.gradient = np.ones_like(head.array)
    while waiting:
        _, one = heappop(waiting)
        assert one.gradient is not None
        for source, back in one.sources:
            gradient = back(one.gradient)
            if source.gradient is None:
                source.gradient = gradient
                heappush(waiting, (-source.order, source))
            else:
                source.gradient = source.gradient + gradient


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x))."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


class Operators:
    """The operators that a loss calls, with the names, arguments and gradients of MXNet's."""

    def __getattr__(self, name: str) -> Any:
        known = sorted(one for one in dir(type(self)) if not one.startswith("_"))
        raise ComputeError(
            f"the engine numpy has no operator {name} for a loss; it has {', '.join(known)}"
        )

    def exp(self, x: Node) -> Node:
        """Return e to the power of x."""
        value = np.exp(x.array)
        return Node(value, (x, lambda g: g * value))

    def log(self, x: Node) -> Node:
        """Return the natural logarithm of x."""
        return Node(np.log(x.array), (x, lambda g: g / x.array))

    def sqrt(self, x: Node) -> Node:
        """Return the square root of x."""
        value = np.sqrt(x.array)
        return Node(value, (x, lambda g: g / (2 * value)))

    def square(self, x: Node) -> Node:
        """Return x times x."""
        return Node(x.array * x.array, (x, lambda g: 2 * g * x.array))

    def abs(self, x: Node) -> Node:
        """Return the absolute value of x."""
        return Node(np.abs(x.array), (x, lambda g: g * np.sign(x.array)))

    def clip(self, x: Node, a_min: float, a_max: float) -> Node:
        """Return x, at least a_min and at most a_max."""
        low, high = np.float32(a_min), np.float32(a_max)
        inside = (x.array >= low) & (x.array <= high)
        return Node(np.clip(x.array, low, high), (x, lambda g: g * inside))

    def sum(self, x: Node, axis: int) -> Node:
        """Return the sums along an axis."""
        value, shape = x.array.sum(axis=axis), x.array.shape
        return Node(value, (x, lambda g: np.broadcast_to(np.expand_dims(g, axis), shape)))

    def mean(self, x: Node, axis: int) -> Node:
        """Return the means along an axis."""
        return self.sum(x, axis) * (1.0 / x.array.shape[axis])

    def reshape(self, x: Node, shape: tuple[int, ...]) -> Node:
        """Return x in another shape; one length may be -1."""
        old = x.array.shape
        return Node(x.array.reshape(shape), (x, lambda g: g.reshape(old)))

    Reshape = reshape

    def broadcast_add(self, a: Node, b: Node) -> Node:
        """Return a + b."""
        return a + b

    def broadcast_sub(self, a: Node, b: Node) -> Node:
        """Return a - b."""
        return a - b

    def broadcast_mul(self, a: Node, b: Node) -> Node:
        """Return a times b."""
        return a * b

    def relu(self, x: Node) -> Node:
        """Return x, or 0 where it is negative."""
        positive = x.array > 0
        return Node(x.array * positive, (x, lambda g: g * positive))

    def sigmoid(self, x: Node) -> Node:
        """Return 1 / (1 + exp(-x))."""
        value = sigmoid(x.array)
        return Node(value, (x, lambda g: g * value * (1 - value)))

    def Activation(self, x: Node, act_type: str) -> Node:  # noqa: N802
        """Return relu, sigmoid or softrelu, which is log(1 + exp(x)), of x."""
        if act_type == "softrelu":
            value = np.logaddexp(x.array, np.float32(0))
            return Node(value, (x, lambda g: g * sigmoid(x.array)))
        if act_type not in ("relu", "sigmoid"):
            raise ComputeError(
                f"Activation: act_type {act_type!r} is not one of relu, sigmoid, softrelu"
            )
        activation: Callable[[Node], Node] = getattr(self, act_type)
        return activation(x)

    def softmax(self, x: Node) -> Node:
        """Return the softmax along the last axis."""
        value = _softmax(x.array)
        return Node(value, (x, lambda g: value * (g - (g * value).sum(axis=-1, keepdims=True))))

    def log_softmax(self, x: Node) -> Node:
        """Return the logarithm of the softmax along the last axis."""
        shifted = x.array - x.array.max(axis=-1, keepdims=True)
        value = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        return Node(value, (x, lambda g: g - np.exp(value) * g.sum(axis=-1, keepdims=True)))

    def pick(self, x: Node, index: Node, axis: int = 1) -> Node:
        """Return x[i, index[i]] of each row i."""
        if axis not in (1, -1):
            raise ComputeError(f"pick: axis {axis} is not 1")
        at = np.arange(len(x.array)), index.array.astype(np.int64)

        def back(g: np.ndarray) -> np.ndarray:
            whole = np.zeros_like(x.array)
            whole[at] = g
            return whole

        return Node(x.array[at], (x, back))

    def take(self, x: Node, indices: Node) -> Node:
        """Return the rows of x at indices."""
        rows = indices.array.astype(np.int64)

        def back(g: np.ndarray) -> np.ndarray:
            whole = np.zeros_like(x.array)
            np.add.at(whole, rows, g)
            return whole

        return Node(x.array[rows], (x, back))

    def SoftmaxOutput(self, x: Node, label: Node, grad_scale: float) -> Node:  # noqa: N802
        """Return the softmax; its backward pass is that of the cross-entropy, times grad_scale."""
        value = _softmax(x.array)
        at = np.arange(len(value)), label.array.astype(np.int64)

        def back(_: np.ndarray) -> np.ndarray:
            gradient = value.copy()
            gradient[at] -= 1
            return gradient * np.float32(grad_scale)

        return Node(value, (x, back))

    def LogisticRegressionOutput(self, x: Node, label: Node, grad_scale: float) -> Node:  # noqa: N802
        """Return the sigmoid; its backward pass is that of the cross-entropy, times grad_scale."""
        value, scale = sigmoid(x.array), np.float32(grad_scale)
        return Node(value, (x, lambda _: (value - label.array) * scale))

    def MakeLoss(self, x: Node, grad_scale: float) -> Node:  # noqa: N802
        """Return x; its gradient is grad_scale."""
        scale = np.float32(grad_scale)
        return Node(x.array, (x, lambda _: np.full_like(x.array, scale)))


def _softmax(x: np.ndarray) -> np.ndarray:
    value = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(value / value.sum(axis=-1, keepdims=True))
