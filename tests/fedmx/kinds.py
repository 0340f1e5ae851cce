"""One small experiment of each kind, for tests that it ends in the same bits wherever it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedmx import Experiment, Server, simulate
from fedmx.simulation.executors.parallel import Backend

TREE: dict[str, Any] = {
    "rounds": 3,
    "clients": 6,
    "compute": {
        "model": "2nn",
        "data": "digits",
        "normalise": {"scale": 16},
        "partition": "dirichlet",
        "train": {"batch_size": 20, "learning_rate": 0.05},
        "evaluate": {"batch_size": 50},
    },
}
ALL = {"selector": {"name": "uniform", "fraction": 1.0}}
DEVICES = {"deadline_s": 4, "devices": "lognormal", "uploads": "serial"}
SOME = {"selector": {"name": "uniform", "fraction": 0.7}}
LOGISTIC = {**TREE["compute"], "model": "logistic"}
KRUM = {"name": "krum", "byzantine": 0}
MIXING = {"name": "nearest-neighbour-mixing", "byzantine": 1, "rule": KRUM}
KINDS: dict[str, dict[str, Any]] = {
    "fedavg": {"logic": SOME},
    "asked": {
        "logic": {
            "selector": {"name": "power-of-choice", "count": 2, "candidates": 4},
            "aggregator": {"name": "mean", "weights": "uniform"},
        }
    },
    "projected stc": {"logic": {"preset": {"name": "projected-stc", "fraction": 0.7, "p": 0.1}}},
    "scaffold": {"logic": {"preset": {"name": "scaffold", "fraction": 0.7}}},
    "lanes": {
        "logic": {"preset": {"name": "astraea", "gamma": 2, "rebalance": 3.0, "augment": True}}
    },
    "passes": {
        "logic": {"preset": {"name": "astraea", "gamma": 2, "mediator_epochs": 3}, "hooks": ["stc"]}
    },
    "online knapsack": {
        "logic": {"preset": {"name": "online-kp", "L0": 1e-9, "U": 1e-8}, "min_updates": 0},
        "clock": DEVICES,
    },
    "asynchronous": {
        "logic": {"preset": {"name": "fedbuff", "concurrency": 4, "buffer": 2}, "hooks": ["stc"]},
        "clock": {"devices": "lognormal", "dropout": 0.2},
    },
    "ditto": {"logic": {"preset": {"name": "ditto", "fraction": 0.7}, "hooks": ["stc"]}},
    "own head": {"logic": {"preset": {"name": "fedrep", "fraction": 0.7, "head_steps": 3}}},
    "own norm": {
        "compute": {**TREE["compute"], "model": "kind_models:Normed"},
        "logic": {"preset": {"name": "fedbn", "fraction": 0.7}},
    },
    "loss": {"compute": {**TREE["compute"], "loss": {"name": "logit-adjustment", "tau": 0.5}}},
    "kept state": {
        "compute": {
            **TREE["compute"],
            "train": {
                **{"batch_size": 20, "learning_rate": 0.005, "weight_decay": 0.01},
                "optimiser": {"name": "adamw", "state": "keep"},
            },
        },
        "logic": SOME,
    },
    "loss with a reference": {
        "compute": {**TREE["compute"], "model": "kind_models:Normed", "loss": "distillation"}
    },
    "dropout": {"compute": {**TREE["compute"], "model": "kind_models:Dropping"}},
    "numpy": {
        "compute": {**TREE["compute"], "engine": "numpy", "loss": "distillation"},
        "logic": {"preset": {"name": "scaffold", "fraction": 0.7}},
    },
    "batch norm": {"compute": {**TREE["compute"], "model": "kind_models:Normed"}},
    "assets": {"logic": {**SOME, "hooks": [{"name": "fedshare", "warm_up": 2}]}},
    "liars": {"attack": {"name": "min-max", "clients": 0.34}, "logic": SOME},
    "nested": {
        "logic": {
            "selector": {"name": "uniform", "fraction": 1.0},
            "aggregator": {"name": "bucketing", "size": 2, "rule": MIXING},
            "min_updates": 6,
        }
    },
    "tree of noise": {
        "compute": LOGISTIC,
        "privacy": {"name": "dp-ftrl", "clip": 0.5, "delta": 1e-2, "noise": 1.1, "restart": 2},
        "logic": {
            "preset": {"name": "fedavg", "weights": "uniform"},
            "selector": {"name": "cyclic", "period": 2},
            "hooks": ["fedavgm"],
            "min_updates": 0,
        },
    },
    "hidden labels": {
        "compute": LOGISTIC,
        "privacy": {
            **{"name": "local", "clip": 0.5, "delta": 1e-2, "noise": 4.0},
            **{"label_epsilon": 2.0, "labels": 20},
        },
        "logic": {
            "selector": {"name": "fedaim", "mediators": 2, "threshold": 2.0},
            "aggregator": "mean",
        },
    },
    "round memory": {
        "logic": {**SOME, "hooks": ["kind_parts:Shares"], "trainer": "kind_parts:Counts"}
    },
    "secure sum": {
        "compute": {**TREE["compute"], "model": "kind_models:Normed"},
        "privacy": {"name": "secure-sum", "rounding": "stochastic"},
        "logic": {**SOME, "hooks": ["fedavgm"]},
    },
}
MODELS = """
from mxnet.gluon import nn


class Dropping(nn.HybridSequential):
    def __init__(self):
        super().__init__()
        self.add(nn.Dense(16, activation="relu"), nn.Dropout(0.5), nn.Dense(10))


class Normed(nn.HybridSequential):
    def __init__(self):
        super().__init__()
        self.add(nn.Dense(16), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(10))
"""


PARTS = """
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedmx import ClientSide, Hook, LocalSgd, ServerSide


@dataclass(frozen=True)
class Counts(LocalSgd):
    "Hands a hook the client's counts of labels."

    def train(self, job):
        shared = job.context.round_memory
        assert "counts" not in shared, "the memory is that before the task"
        shared["counts"] = np.bincount(job.data.y, minlength=10)
        return super().train(job)


@dataclass(frozen=True)
class Shares(Hook):
    "A number that an answer draws, and the trainer's counts, reach `send` and later answers."

    class Server(ServerSide):
        asks = frozenset({"cohort", "returned"})

        def ask(self, phase, clients, context):
            return {}

        def on_answers(self, phase, answers, context):
            if phase == "returned":
                self.sent = {client: slot["sent"].tolist() for client, slot in answers.items()}

        def on_accepted(self, update, context):
            assert context.slot["sent"].tolist() == self.sent[update.client]

        def conclude(self, state, context):
            total = sum(sum(one) for one in self.sent.values())
            context.record(total=total)
            return replace(state, weights=state.weights + np.float32(1e-6 * total))

    class Client(ClientSide):
        def answer(self, phase, question, context):
            if phase == "cohort":
                assert not context.round_memory, "a round begins with an empty memory"
                context.round_memory["key"] = int(context.rng("key").integers(1, 9))
                return {}
            return {"sent": context.round_memory["sent"]}

        def send(self, update, context):
            shared = context.round_memory
            shared["sent"] = context.slot["sent"] = shared["key"] * shared["counts"]
            return update


@dataclass(frozen=True)
class Kills(Hook):
    "The process of client 2 ends with its task of round 2, once: it leaves a file."

    file: str

    class Client(ClientSide):
        def receive(self, task, context):
            file = Path(self.hook.file)
            if (task.client, task.round) == (2, 2) and not file.exists():
                file.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return task
"""


def write_models(folder: Path) -> None:
    """Write the modules with the models and parts that experiments here name."""
    (folder / "kind_models.py").write_text(MODELS)
    (folder / "kind_parts.py").write_text(PARTS)


def experiment(folder: Path, **changed: Any) -> Experiment:
    text = json.dumps({**TREE, **changed})
    return Experiment.parse(text, "kinds.yaml", folder=folder, modules=None)


def outcome(given: Experiment, backend: Backend | None = None) -> list[Any]:
    """Everything that a run says of its rounds but the time, and the model's bytes."""
    return outcome_of(simulate(given, backend))


def outcome_of(server: Server) -> list[Any]:
    """Likewise, of a server that is yet to run."""
    with server:
        rounds = [
            [(one.accuracy, one.loss), *map(_timeless, one.client_records())] for one in server
        ]
        return [*rounds, server.weights.tobytes(), server.state.buffers.tobytes()]


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.endswith("_s")}
