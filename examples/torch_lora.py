"""Federates LoRA: adapters of a frozen transformer travel, its base does not. Needs PyTorch.

python examples/torch_lora.py

Each client reads scikit-learn's digits row by row. The transformer is built from a configuration,
and every process draws the same frozen base. Source: Hu et al., "LoRA", 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.datasets import load_digits

from fedmx import Experiment, simulate

try:
    import torch
    from torch import Tensor, nn
    from torch.nn.functional import scaled_dot_product_attention
except ModuleNotFoundError:
    raise SystemExit("this example needs PyTorch: pip install torch") from None


@dataclass(frozen=True)
class Configuration:
    pixels: int = 8
    rows: int = 8
    width: int = 64
    heads: int = 4
    layers: int = 2
    rank: int = 4
    classes: int = 10


class Adapted(nn.Linear):
    """A frozen linear layer plus a trainable product of two thin ones, which begins at zero."""

    def __init__(self, inputs: int, outputs: int, rank: int):
        super().__init__(inputs, outputs)
        self.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x @ self.down.T @ self.up.T


class Block(nn.Module):
    def __init__(self, of: Configuration):
        super().__init__()
        self.heads = of.heads
        self.norms = nn.ModuleList(nn.LayerNorm(of.width) for _ in range(2)).requires_grad_(False)
        self.qkv = Adapted(of.width, 3 * of.width, of.rank)
        self.out = Adapted(of.width, of.width, of.rank)
        self.wide = Adapted(of.width, 4 * of.width, of.rank)
        self.narrow = Adapted(4 * of.width, of.width, of.rank)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).reshape(n, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(seen)
        return x + self.narrow(torch.relu(self.wide(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self, of: Configuration = Configuration()):
        super().__init__()
        self.rows = nn.Linear(of.pixels, of.width).requires_grad_(False)
        self.places = nn.Parameter(torch.randn(of.rows, of.width), requires_grad=False)
        self.blocks = nn.Sequential(*(Block(of) for _ in range(of.layers)))
        self.head = nn.Linear(of.rows * of.width, of.classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.rows(x) + self.places).flatten(1))


def data() -> tuple:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).reshape(-1, 8, 8)
    return x[:-300], y[:-300], x[-300:], y[-300:]


if __name__ == "__main__":
    train = {"batch_size": 20, "epochs": 2, "optimiser": "adamw", "learning_rate": 0.01}
    compute = {"engine": "torch", "model": Transformer, "data": data, "train": train}
    experiment = Experiment(
        rounds=8,
        clients=10,
        compute=compute,
        logic={"selector": {"name": "uniform", "fraction": 0.5}},
    )
    simulation = simulate(experiment)
    model = Transformer()
    whole, sent = sum(p.numel() for p in model.parameters()), simulation.state.weights.size
    print(f"{sent} of {whole} parameters are trained and sent")
    for round in simulation:
        mib = round.report.traffic.up_bytes / 2**20
        print(f"{round.round}: {round.accuracy:.1%}, {mib:.2f} MiB up")
