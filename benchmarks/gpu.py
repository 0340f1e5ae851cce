"""Clients per second on a GPU: one at a time, many at once, and PyTorch without a framework.

    bash benchmarks/gpu.sh [--dry-run]

Random images of CIFAR-10's shape, 500 for each client; 5 epochs in batches of 10, ResNet-18 1 epoch
in batches of 50; SGD. The contenders: fedmx with
`executor: serial`; fedmx with `executor: cohort`; a plain loop of PyTorch whose data stay on the
device; and the same loop with each step as one CUDA graph, which is the floor of one client after
the other. A figure is the median of the rounds after the first, until its share of the time is
over. `busy` is the share of a round in which a kernel runs, of one more round under PyTorch's
profiler. Before the table, the checks: models on the device agree with those on the CPU, repeated
and resumed runs end in the same model. pfl and FedJAX are measured by `benchmarks/peers/run.py`,
in environments of their own. MXNet 1.9.1 has no build for CUDA 12, so that engine has no row.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from fedmx import Assembly, Experiment, simulate  # noqa: E402
from layers.compute.engines.architectures import ARCHITECTURES  # noqa: E402
from layers.compute.engines.torch.modules import module_of  # noqa: E402

SHAPE, CLASSES, RATE = (3, 32, 32), 10, 0.01
EPOCHS, BATCHES = {"resnet18": 1}, {"resnet18": 50}  # of other models 5, and of 10
SERIAL, COHORT = "fedmx, serial", "fedmx, cohort"
CLOSE = 1e-4  # of two weights after a round, on the device and on the CPU


class Block(nn.Module):
    """Two convolutions with group normalisation, and a way around them."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride, 1, bias=False),
            nn.GroupNorm(8, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.GroupNorm(8, channels),
        )
        self.around: nn.Module = nn.Identity()
        if stride > 1:
            self.around = nn.Conv2d(before, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def resnet18() -> nn.Module:
    """Return ResNet-18 for images of 32 x 32, with group normalisation (Hsieh et al. 2020)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(8, 64)]
    before = 64
    for channels in (64, 128, 256, 512):
        layers += [Block(before, channels, 1 if channels == before else 2)]
        layers += [Block(channels, channels, 1)]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


MODELS: dict[str, Any] = {
    "2nn": {"name": "2nn"},
    "lenet5": {"name": "lenet5", "padding": 0},
    "cnn3": {"name": "cnn3"},
    "resnet18": resnet18,
}


def module(model: str) -> nn.Module:
    """Return the model of a plain loop."""
    given = MODELS[model]
    if callable(given):
        made: nn.Module = given()
        return made
    settings = {name: value for name, value in given.items() if name != "name"}
    return module_of(ARCHITECTURES[given["name"]](CLASSES, **settings), SHAPE)


@dataclass(frozen=True)
class Work:
    """The clients of a run, and the device.

    Attributes:
        device: of PyTorch.
        clients: of the population; each has the same number of images.
        images: of each client.
    """

    device: str
    clients: int
    images: int

    def data(self) -> dict[str, np.ndarray]:
        """Return 8-bit images for all clients, and a few to test on."""
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (self.clients * self.images, *SHAPE), dtype=np.uint8)
        y = rng.integers(0, CLASSES, len(x))
        return {"x_train": x, "y_train": y, "x_test": x[:20], "y_test": y[:20]}

    def experiment(self, model: str, cohort: int, executor: Any, **changed: Any) -> Experiment:
        """Return the experiment of a contender."""
        tree = {
            "seed": 1,
            "rounds": 1_000,
            "clients": self.clients,
            "executor": executor,
            "compute": {
                "engine": "torch",
                "device": self.device,
                "model": MODELS[model],
                "data": self.data,
                "normalise": {"scale": 255},
                "partition": "iid",
                "train": {
                    "epochs": EPOCHS.get(model, 5),
                    "batch_size": BATCHES.get(model, 10),
                    "learning_rate": RATE,
                },
                "evaluate": {"every": 1_000},
            },
            "logic": {"preset": {"name": "fedavg", "count": cohort}},
        }
        return Experiment.from_dict({**tree, **changed})


# --- the contenders: each yields at the end of a round ---------------------------------------


def of_fedmx(work: Work, model: str, cohort: int, executor: Any) -> Iterator[None]:
    with simulate(work.experiment(model, cohort, executor)) as simulation:
        for _ in simulation:
            yield


def plain(work: Work, model: str, cohort: int, graphed: bool) -> Iterator[None]:
    """A loop of PyTorch: clients in turn on one flat vector, their weights averaged."""
    data, device, rng = work.data(), torch.device(work.device), np.random.default_rng(1)
    x = torch.from_numpy(data["x_train"]).to(device).float().div(255)
    y = torch.from_numpy(data["y_train"]).to(device)
    net = module(model).to(device).train()
    weights, gradient = (
        torch.cat([one.detach().reshape(-1) for one in net.parameters()]) for _ in range(2)
    )
    start = 0
    for one in net.parameters():
        stop = start + one.numel()
        one.data, one.grad = (v[start:stop].view(one.shape) for v in (weights, gradient))
        start = stop
    batch_size = BATCHES.get(model, 10)
    rows = torch.zeros(batch_size, dtype=torch.int64, device=device)

    def step() -> None:
        gradient.zero_()
        cross_entropy(net(x[rows]), y[rows]).backward()
        weights.add_(gradient, alpha=-RATE)

    take = as_graph(step) if graphed else step
    start_weights = weights.clone()
    while True:
        total = torch.zeros_like(weights)
        for client in rng.choice(work.clients, cohort, replace=False):
            weights.copy_(start_weights)
            for _ in range(EPOCHS.get(model, 5)):
                order = torch.from_numpy(rng.permutation(work.images) + client * work.images)
                for batch in order.to(device).split(batch_size):
                    rows.copy_(batch)
                    take()
            total += weights
        start_weights = total / cohort
        total.cpu()
        yield


def as_graph(step: Callable[[], None]) -> Callable[[], None]:
    """Return the replay of a step's CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def contenders(work: Work, model: str, cohort: int) -> dict[str, Callable[[], Iterator[None]]]:
    found = {
        SERIAL: lambda: of_fedmx(work, model, cohort, "serial"),
        COHORT: lambda: of_fedmx(work, model, cohort, {"cohort": {"clients": cohort}}),
        "plain loop": lambda: plain(work, model, cohort, False),
    }
    if work.device == "cuda":
        found["CUDA graphs"] = lambda: plain(work, model, cohort, True)
    return found


# --- the measurement -------------------------------------------------------------------------


class Table:
    """Prints a row of each contender, within the time.

    Args:
        device: of PyTorch.
        ends_s: the end of the time, by `time.monotonic`.
    """

    def __init__(self, device: str, ends_s: float) -> None:
        self._gpu, self._ends_s = device == "cuda", ends_s
        print(
            "| model | clients a round | contender | s a round | clients a s | GPU MiB | busy |\n"
            "|---|--:|---|--:|--:|--:|--:|",
            flush=True,
        )

    @property
    def left_s(self) -> float:
        return self._ends_s - time.monotonic()

    def row(self, model: str, cohort: int, name: str, rounds: Iterator[None], s: float) -> None:
        """Measure a contender for about so many seconds, and print its row."""
        head = f"| {model} | {cohort:,} | {name} |"
        if self.left_s < 2 * s:
            print(f"{head} no time left | | | |", flush=True)
            return
        if self._gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        ends_s, seen = time.monotonic() + s, []
        try:
            next(rounds)  # loads, and compiles what there is to compile
            while not seen or (time.monotonic() < ends_s and len(seen) < 5):
                seen.append(self._seconds(rounds))
            round_s, busy = statistics.median(seen), self._busy(rounds)
        except Exception as error:  # noqa: BLE001 - the other rows are worth the time
            print(f"{head} {type(error).__name__}: {str(error).splitlines()[0]} | | | |")
            return
        memory = f"{torch.cuda.max_memory_allocated() >> 20:,}" if self._gpu else ""
        print(f"{head} {round_s:.3f} | {cohort / round_s:,.0f} | {memory} | {busy} |", flush=True)

    def _seconds(self, rounds: Iterator[None]) -> float:
        began_s = time.monotonic()
        next(rounds)
        if self._gpu:
            torch.cuda.synchronize()
        return time.monotonic() - began_s

    def _busy(self, rounds: Iterator[None]) -> str:
        if not self._gpu or self.left_s < 60:
            return ""
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            seconds = self._seconds(rounds)
        used_us = sum(one.self_device_time_total for one in profile.key_averages())
        return f"{used_us / 1e6 / seconds:.0%}"


# --- the checks ------------------------------------------------------------------------------


def weights_of(work: Work, model: str, executor: Any, rounds: int = 1) -> np.ndarray:
    given = work.experiment(model, 4, executor, rounds=rounds)
    with simulate(given) as simulation:
        list(simulation)
    found: np.ndarray = simulation.weights
    return found


def resumed(work: Work, model: str, executor: Any) -> np.ndarray:
    """Return the weights of two rounds, the second one in another simulation."""
    given = work.experiment(model, 4, executor, rounds=2)
    with simulate(Assembly(given)) as first:
        next(iter(first))
        state = first.checkpoint()
    with simulate(Assembly(given)) as second:
        second.restore(state)
        list(second)
    found: np.ndarray = second.weights
    return found


def check(work: Work) -> bool:
    """Print what agrees with the CPU, and what repeats; return whether all does."""
    here, cohort, fine = Work("cpu", work.clients, work.images), {"cohort": {"clients": 4}}, True
    print("| model | executor | from the CPU | repeated | resumed |\n|---|---|--:|---|---|")
    for model in MODELS:
        expected = weights_of(here, model, "serial")
        for name, executor in (("serial", "serial"), ("cohort", cohort)):
            found = weights_of(work, model, executor)
            apart = float(np.abs(found - expected).max())
            again = found.tobytes() == weights_of(work, model, executor).tobytes()
            two = weights_of(work, model, executor, 2)
            same = np.allclose(two, resumed(work, model, executor), rtol=0, atol=CLOSE)
            fine = fine and apart < CLOSE and bool(same)
            answers = "same bits" if again else "other bits", "yes" if same else "no"
            print(f"| {model} | {name} | {apart:.1e} | {' | '.join(answers)} |", flush=True)
    print()
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--seconds", type=float, default=420)
    options = parser.parse_args()
    ends_s = time.monotonic() + options.seconds
    dry = options.dry_run
    device = "cpu" if dry else "cuda"
    hardware = "a dry run: these are no figures" if dry else torch.cuda.get_device_name()
    print(f"{device}: {hardware}; PyTorch {torch.__version__}, Python {sys.version.split()[0]}\n")
    fine = check(Work(device, 8, 50))
    table = Table(device, ends_s)
    work = Work(device, 8, 20) if dry else Work(device, 100, 500)
    few, many = (2, 8) if dry else (10, 100)
    for cohort in (few, many):
        for model in MODELS:
            for name, rounds in contenders(work, model, cohort).items():
                # One client after the other: few clients say what many would need.
                if cohort == few or name == COHORT or (model != "resnet18" and name != SERIAL):
                    table.row(model, cohort, name, rounds(), 0.1 if dry else 6)
    crowd = Work(device, 32, 2) if dry else Work(device, 10_000, 20)
    executor = {"cohort": {"clients": 16 if dry else 1_000}}
    rounds = of_fedmx(crowd, "2nn", crowd.clients, executor)
    table.row("2nn", crowd.clients, COHORT, rounds, 0.1 if dry else 20)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
