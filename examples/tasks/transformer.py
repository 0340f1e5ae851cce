"""A small transformer of characters in PyTorch, whole or with adapters of a frozen base (LoRA).

Every process draws the same frozen base. Sources: Vaswani et al., "Attention Is All You Need",
2017; Hu et al., "LoRA", 2022.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

WIDTH, HEADS, LAYERS = 64, 4, 2


class Adapted(nn.Linear):
    """A linear layer; with a rank it is frozen, plus a trainable product of two thin ones."""

    def __init__(self, inputs: int, outputs: int, rank: int):
        super().__init__(inputs, outputs)
        self.rank = rank
        if rank:
            self.requires_grad_(False)
            self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
            self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        whole = super().forward(x)
        return whole + x @ self.down.T @ self.up.T if self.rank else whole


class Block(nn.Module):
    """Attention to the characters before, and two layers at each place."""

    def __init__(self, rank: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = Adapted(WIDTH, 3 * WIDTH, rank), Adapted(WIDTH, WIDTH, rank)
        self.wide, self.narrow = Adapted(WIDTH, 4 * WIDTH, rank), Adapted(4 * WIDTH, WIDTH, rank)

    def forward(self, x: Tensor) -> Tensor:
        n, places, width = x.shape
        qkv = self.qkv(self.norms[0](x)).reshape(n, places, 3, HEADS, -1)
        seen = scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, places, width))
        return x + self.narrow(torch.relu(self.wide(self.norms[1](x))))


class Transformer(nn.Module):
    """Returns the logits of the next character at each place, (n, places, characters)."""

    def __init__(self, classes: int, targets: Any, rank: int = 0):
        super().__init__()
        self.look_up = nn.Embedding(classes, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(targets.places, WIDTH))
        self.blocks = nn.Sequential(*(Block(rank) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.look_up(x) + self.places)))
