"""The outputs of single layers of a model, for losses that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from layers.compute.engines.mxnet.parameters import trainable
from layers.compute.errors import ComputeError, unknown
from layers.compute.losses.loss import LAST


class Layers:
    """A block, and layers of it by their structural names, such as "features.3".

    Args:
        block: the model.
        names: the layers; `LAST` is the input of the last layer that has parameters.

    Raises:
        ComputeError: the block has no such layer.
    """

    def __init__(self, block: Any, names: Sequence[str]):
        self._block = block
        self._layers = [self._found(name) for name in names]

    def outputs(self, F: Any, x: Any) -> list[Any]:
        """Return the model's output, then that of each layer, flattened to (n, values).

        Raises:
            ComputeError: the model does not use one of the layers.
        """
        taken: dict[int, Any] = {}
        handles = []
        for index, (layer, takes_input) in enumerate(self._layers):
            register = (
                layer.register_forward_pre_hook if takes_input else layer.register_forward_hook
            )

            def take(_layer: Any, inputs: Any, *outputs: Any, index: int = index) -> None:
                taken[index] = outputs[0] if outputs else inputs[0]

            handles.append(register(take))
        try:
            output = self._block(x)
        finally:
            for handle in handles:
                handle.detach()
        if len(taken) < len(self._layers):
            raise ComputeError("a layer that the loss reads is not used by the model")
        return [output, *(F.Flatten(taken[index]) for index in range(len(self._layers)))]

    def _found(self, name: str) -> tuple[Any, bool]:
        """Return a layer, and whether its input is meant instead of its output."""
        blocks = dict(_blocks(self._block, ""))
        if name == LAST:
            *_, last = (
                block
                for block in blocks.values()
                if any(trainable(parameter) for parameter in block._reg_params.values())
            )
            return last, True
        if name not in blocks:
            raise ComputeError(unknown("layer of the model", name, [one for one in blocks if one]))
        return blocks[name], False


def _blocks(block: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each block below a block, with its path, in the order of the tree."""
    yield path, block
    for name, child in block._children.items():
        yield from _blocks(child, f"{path}.{name}" if path else name)
