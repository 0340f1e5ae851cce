"""Flower: `FedAvg` in its simulation runtime with Ray, one CPU per client.

/tmp/peers/flower/bin/python benchmarks/peers/with_flower.py --model lenet5
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_models import build, count, tensors, train
from work import CLIENTS, COHORT, IMAGES, Clock, arguments

client_app = ClientApp()


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    settings = message.content["config"]
    net = build(str(settings["model"]))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = tensors(int(context.node_config["partition-id"]))
    train(net, *samples, loader=bool(settings["loader"]))
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": IMAGES}),
        }
    )
    return Message(content=content, reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that reports each round's end to a clock, and ends the run if a client failed."""

    def __init__(self, clock: Clock, **settings: Any) -> None:
        super().__init__(**settings)
        self._clock = clock

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        answers = sum(not reply.has_error() for reply in replies)
        if answers != COHORT:
            raise RuntimeError(f"round {server_round}: {answers} clients answered, not {COHORT}")
        aggregated = super().aggregate_train(server_round, replies)
        self._clock.tick()
        return aggregated


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--loader", action="store_true")
    options = parser.parse_args()
    clock = Clock(options.rounds)
    torch.manual_seed(0)
    net = build(options.model)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = TimedFedAvg(
            clock,
            fraction_train=COHORT / CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=COHORT,  # a fraction of the clients available at the start of round 1
            min_available_nodes=CLIENTS,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(net.state_dict()),
            num_rounds=clock.rounds,
            train_config=ConfigRecord({"model": options.model, "loader": options.loader}),
        )

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    release = f"{version('flwr')} (ray {version('ray')})"
    clock.report(
        "flower-loader" if options.loader else "flower", release, options.model, count(net)
    )


if __name__ == "__main__":
    main()
