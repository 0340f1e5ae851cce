"""fluke: `FedAVG`, clients in turn in one process, with `FastDataLoader`.

/tmp/peers/fluke/bin/python benchmarks/peers/with_fluke.py --model lenet5 --threads 1
"""

from __future__ import annotations

from importlib.metadata import version

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver
from torch_models import build, count, tensors
from work import BATCH, CLASSES, CLIENTS, COHORT, EPOCHS, RATE, Clock, arguments

Loaders = list[FastDataLoader]


class Division:
    """Gives each client its samples; nobody has samples to evaluate."""

    def assign(
        self, clients: int, batch_size: int
    ) -> tuple[tuple[Loaders, list[FastDataLoader | None]], None]:
        loaders = [
            FastDataLoader(
                *tensors(client), num_labels=CLASSES, batch_size=batch_size, shuffle=True
            )
            for client in range(clients)
        ]
        return (loaders, [None] * clients), None


class Ticks(FederationObserver):
    """Reports each round's end to a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def end_round(self, round: int) -> None:
        self._clock.tick()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    clock = Clock(options.rounds)
    torch.set_num_threads(options.threads)
    environment = FlukeENV()
    environment.set_seed(1)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    net = build(options.model)
    parameters = DDict(
        model=net,
        client=DDict(
            batch_size=BATCH,
            local_epochs=EPOCHS,
            loss="CrossEntropyLoss",
            optimizer=DDict(name="SGD", lr=RATE),
            scheduler=DDict(name="StepLR", step_size=1, gamma=1),
        ),
        server=DDict(weighted=True),
    )
    algorithm = FedAVG(CLIENTS, Division(), parameters)
    algorithm.set_callbacks([Ticks(clock)])
    algorithm.run(clock.rounds, COHORT / CLIENTS)
    clock.report(f"fluke-{options.threads}", version("fluke-fl"), options.model, count(net))


if __name__ == "__main__":
    main()
