"""A small experiment with every hook, aggregator and preset, and one with several at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmx import Experiment
from layers.logic import AGGREGATORS, HOOKS, PRESETS

CLIENTS = 4
THREE = {"name": "uniform", "count": 3}  # so that everybody misses a round now and then
GIVEN: dict[str, dict[str, dict[str, Any]]] = {
    "hook": {
        "clip": {"norm": 0.5},
        "divergence": {"held_out": 0.1},
        "fedprox": {"mu": 0.1},
        "fedshare": {"shared": 0.1, "part": 0.5},
        "quantise": {"down": True, "feedback": True},
        "rebalance": {"above": 0.5},
        "scaffold": {"server_learning_rate": 0.5},
        "selective-sgd": {"download": 0.5},
        "stragglers": {"share": 0.5},
        "top-k": {"p_down": 0.1},
    },
    "aggregator": {
        "centered-clipping": {"iterations": 2},
        "fedfv": {"tau": 2},
        "fltrust": {"held_out": 0.1},
        "krum": {"byzantine": 0},
        "mean": {"weights": "uniform"},
        "multi-krum": {"byzantine": 0, "keep": 2},
        "norm-clip": {"norm": 0.5},
        "trimmed-mean": {"trim": 0.34},
    },
    "preset": {
        "astraea": {"gamma": 2, "rebalance": 0.5},
        "clustered": {"fraction": 0.75},
        "csfedavg": {"fraction": 0.75, "candidates": 0.5, "held_out": 0.1},
        "dgc": {"fraction": 0.75},
        "fedadagrad": {"fraction": 0.75},
        "fedadam": {"fraction": 0.75},
        "apfl": {"fraction": 0.75, "adaptive": True},
        "ditto": {"fraction": 0.75, "personal_steps": 2},
        "fedaim": {"mediators": 1, "threshold": 0.95},
        "fedavg": {"fraction": 0.75},
        "fedavgm": {"fraction": 0.75},
        # One candidate, since real times would put several into another order each time.
        "fedbabu": {"fraction": 0.75},
        "fedbn": {"fraction": 0.75},
        "fedcs": {"candidates": 0.25},
        "fedfv": {"fraction": 0.75},
        "fednova": {"fraction": 0.75, "mu": 0.1},
        "fedper": {"fraction": 0.75},
        "fedprox": {"fraction": 0.75},
        "fedrep": {"fraction": 0.75, "head_steps": 2},
        "fine-tuning": {"fraction": 0.75},
        "lg-fedavg": {"fraction": 0.75},
        "per-fedavg": {"fraction": 0.75, "order": "hessian-free"},
        "pfedme": {"fraction": 0.75, "beta": 0.5},
        "fedsgd": {"reply": "gradient"},
        "fedshare": {"fraction": 0.75, "shared": 0.1},
        "fedsso": {"beta": 0.75, "learning_rate": 0.05, "mean": "stratified"},
        "fedyogi": {"fraction": 0.75},
        # Everybody fits, and is worth it, however long it takes.
        "offline-kp": {"solver": "dp", "output": "last"},
        "online-kp": {"L0": 1e-9, "U": 1e-8},
        # Nobody is too slow: real times would choose others each time.
        "oort": {"fraction": 0.75, "percentile": 100},
        "power-of-choice": {"fraction": 0.5, "candidates": 3},
        "projected-stc": {"fraction": 0.75},
        "q-fedavg": {"fraction": 0.75},
        "quantised": {"fraction": 0.75, "bits": 16},
        "scaffold": {"fraction": 0.75},
        "signsgd": {"fraction": 0.75},
        "stc": {"fraction": 0.75},
        "top-k": {"fraction": 0.75},
    },
}
ASYNCHRONOUS = ("fedasync", "fedbuff")
"""Presets whose order of events follows the clients' times; test_asynchronous.py has them."""
BY_NAME = {
    kind: {name: GIVEN[kind].get(name, {}) for name in table if name not in ASYNCHRONOUS}
    for kind, table in (("hook", HOOKS), ("aggregator", AGGREGATORS), ("preset", PRESETS))
}
SELECT: dict[str, Any] = {  # where THREE will not do
    "rebalance": {"name": "astraea", "gamma": 2},
    "by-group": {"name": "fedsso", "beta": 1.0, "sketch": 8},
}
LOGIC: dict[str, dict[str, Any]] = {
    **{
        f"hook {name}": {"selector": SELECT.get(name, THREE), "hooks": [{"name": name, **settings}]}
        for name, settings in BY_NAME["hook"].items()
    },
    **{
        f"aggregator {name}": {
            "selector": SELECT.get(name, THREE),
            "aggregator": {"name": name, **settings},
            "min_updates": 3,
        }
        for name, settings in BY_NAME["aggregator"].items()
    },
    **{
        f"preset {name}": {"preset": {"name": name, **settings}}
        for name, settings in BY_NAME["preset"].items()
    },
    "preset fedbn": {"preset": {"name": "fedbn", "fraction": 0.75}, "own": ["1.*"]},  # no BatchNorm
    "preset selective-sgd with noise": {
        "preset": {"name": "selective-sgd", "choice": "random", "clip": 0.01, "epsilon": 1e5}
    },
    "several at once": {
        "selector": THREE,
        "aggregator": {"name": "fedfv", "tau": 2},
        "hooks": [
            {"name": "fedprox", "mu": 0.1},
            {"name": "scaffold", "option": "I", "dense": True},
            "fedavgm",
            "stc",
        ],
    },
    "several passes": {
        "preset": {"name": "astraea", "gamma": 2, "mediator_epochs": 2},
        "hooks": ["stc"],
    },
}


def experiment(logic: Mapping[str, Any], **changed: Any) -> Experiment:
    """Three rounds of a 2NN on digits, with clients of different classes and sizes."""
    tree: dict[str, Any] = {
        "rounds": 3,
        "clients": CLIENTS,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "evaluate": {"every": 3},
            "partition": "dirichlet",
            "train": {"batch_size": 20, "learning_rate": 0.05},
        },
        "logic": dict(logic),
        "clock": {"deadline_s": 600},
        "network": {"address": "127.0.0.1:0", "heartbeat_s": 30},
    }
    return Experiment(**{**tree, **changed})
