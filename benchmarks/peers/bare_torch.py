"""PyTorch without any framework: clients in turn, their weights averaged.

/tmp/peers/torch/bin/python benchmarks/peers/bare_torch.py --model lenet5 --threads 1
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch_models import build, count, tensors, train
from work import CLIENTS, COHORT, Clock, arguments


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    clock = Clock(options.rounds)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    data = [tensors(client) for client in range(CLIENTS)]
    net = build(options.model)
    weights = parameters_to_vector(net.parameters()).detach()
    for _ in range(clock.rounds):
        total = torch.zeros_like(weights)
        for client in rng.choice(CLIENTS, COHORT, replace=False):
            vector_to_parameters(weights.clone(), net.parameters())
            train(net, *data[client])
            total += parameters_to_vector(net.parameters()).detach()
        weights = total / COHORT
        clock.tick()
    clock.report(f"torch-{options.threads}", torch.__version__, options.model, count(net))


if __name__ == "__main__":
    main()
