"""pfl-research: `FederatedAveraging` on a `SimulatedBackend`, in one process or more.

    /tmp/peers/pfl/bin/python benchmarks/peers/with_pfl.py --model lenet5 --processes 1

More processes are started by two environment variables, as on pfl's page about distributed
simulations. pfl evaluates before and after training in its first round, which cannot be turned off;
the first round counts as start-up. It does not shuffle between epochs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch_models import build, count, tensors
from work import BATCH, CLIENTS, COHORT, EPOCHS, RATE, Clock, arguments


def _start_the_others(processes: int) -> list[subprocess.Popen]:
    """Start this script again as the workers of ranks 1 and up; make this one rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    addresses = ",".join(f"localhost:{port + rank}" for rank in range(processes))
    os.environ["PFL_WORKER_ADDRESSES"] = addresses
    others = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, "PFL_WORKER_RANK": str(rank)}
        )
        for rank in range(1, processes)
    ]
    os.environ["PFL_WORKER_RANK"] = "0"
    return others


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    clock = Clock(options.rounds)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // options.processes))
    first = "PFL_WORKER_RANK" not in os.environ
    others = _start_the_others(options.processes) if first and options.processes > 1 else []
    net = _run(options.model, clock)
    for other in others:
        if other.wait():
            raise SystemExit(f"pfl: a worker process ended with {other.returncode}")
    if first:
        name = f"pfl-{options.processes}"
        clock.report(name, version("pfl"), options.model, count(net))


def _run(model: str, clock: Clock) -> torch.nn.Module:
    # Distributed pfl connects its workers when it is imported.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Tick(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
            clock.tick()
            return False, Metrics()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = build(model)
            self.loss_of = torch.nn.CrossEntropyLoss()

        def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            self.train()
            return self.loss_of(self.layers(images), labels)

        @torch.no_grad()
        def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
            loss = self.loss_of(self.layers(images), labels).item() * len(labels)
            return {"loss": Weighted(loss, len(labels))}

    np.random.seed(0)
    torch.manual_seed(0)
    net = Net()
    data = [tensors(client) for client in range(CLIENTS)]
    users = get_user_sampler("minimize_reuse", list(range(CLIENTS)))
    training = FederatedDataset(lambda user: Dataset(data[user], user_id=user), users)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=clock.rounds,
            evaluation_frequency=clock.rounds,
            train_cohort_size=COHORT,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=training, val_data=training),
        model=PyTorchModel(
            model=net,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=EPOCHS, local_learning_rate=RATE
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Tick()],
    )
    return net


if __name__ == "__main__":
    main()
