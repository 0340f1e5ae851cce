"""A model of the next character in Gluon: causal convolutions over the characters before it."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import HybridBlock, nn

CHANNELS, WIDTH = 48, 5


class NextCharacter(HybridBlock):
    """Returns the logits of the next character at each place, (n, places, characters)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.look_up = nn.Embedding(classes, CHANNELS)
        self.layers = nn.HybridSequential()
        for _ in range(3):
            self.layers.add(
                nn.Conv2D(CHANNELS, (WIDTH, 1), padding=(WIDTH - 1, 0), activation="relu")
            )
        self.out = nn.Dense(classes, flatten=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        # (n, places) to (n, channels, places, 1); the end of each layer's padding is cut off, so
        # that a place sees those before it alone.
        z = F.expand_dims(F.transpose(self.look_up(x), axes=(0, 2, 1)), axis=3)
        for layer in self.layers:
            z = z + F.slice_axis(layer(z), axis=2, begin=0, end=1 - WIDTH)
        return self.out(F.transpose(F.squeeze(z, axis=3), axes=(0, 2, 1)))
