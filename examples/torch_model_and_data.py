"""A PyTorch user's own nn.Module and Dataset, trained by ten clients: needs PyTorch.

python examples/torch_model_and_data.py
"""

from __future__ import annotations

from sklearn.datasets import load_digits

from fedmx import Experiment, simulate

try:
    import torch
    from torch import nn
    from torch.utils.data import Dataset
except ModuleNotFoundError:
    raise SystemExit("this example needs PyTorch: pip install torch") from None


class Digits(Dataset):
    """Scikit-learn's digits, the last 300 for testing."""

    def __init__(self, train: bool):
        images, labels = load_digits(return_X_y=True)
        part = slice(None, -300) if train else slice(-300, None)
        self.images = torch.tensor(images[part] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
        self.labels = torch.tensor(labels[part])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index], self.labels[index]


class Net(nn.Module):
    """A convolution with batch normalisation, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Linear(16 * 6 * 6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


def data() -> tuple[Dataset, Dataset]:
    return Digits(train=True), Digits(train=False)


if __name__ == "__main__":
    compute = {"engine": "torch", "model": Net, "data": data, "partition": "dirichlet"}
    experiment = Experiment(rounds=5, clients=10, compute=compute, logic={"preset": "scaffold"})
    for round in simulate(experiment):
        print(round.round, f"{round.accuracy:.1%}")
