"""The presets' parts and defaults, as the papers and the authors' codes have them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from layers.logic import (
    AGGREGATORS,
    ATTACKS,
    HOOKS,
    PRESETS,
    SELECTORS,
    TRAINERS,
    Aggregator,
    Hook,
    Selector,
)
from layers.logic.core.preset import parts_of
from layers.logic.core.trainer import Trainer

COHORT = {"fraction": 0.1, "count": None}
UNIFORM = ("Uniform", {"fraction": None, "count": None})  # a tenth, or all of few clients
BY_SAMPLES = ("Mean", {"weights": "samples"})
PLAIN = ("Mean", {"weights": "uniform"})
BY_PLAN = ("Mean", {"weights": "plan"})
STALENESS = {"staleness": "polynomial", "a": 0.5, "b": 4.0, "staleness_limit": None}
FEDFV = ("FedFV", {"alpha": 0.1, "tau": 1})

TUNED = {"tune_epochs": 1, "tune_steps": None, "tune": "all"}
# Written by hand: the numbers of the papers, not read from the classes.
PARTS = {
    "astraea": [
        ("Astraea", {"gamma": 10, "classes": 10, "above": None, "mediator_epochs": 1}),
        BY_SAMPLES,
    ],
    "clustered": [("Clustered", COHORT), BY_PLAN],
    "csfedavg": [
        ("CsFedAvg", {**COHORT, "candidates": 0.4, "entering": 0.2, "exploring": 0.0}),
        BY_SAMPLES,
        ("Divergence", {"held_out": 0.01}),
    ],
    "dgc": [
        UNIFORM,
        PLAIN,
        (
            "Dgc",
            {
                "p": 0.001,
                "threshold": None,
                "momentum": 0.9,
                "nesterov": False,
                "masking": True,
                "clip": None,
                "clients": 1,
                "warmup": 4,
                "warmup_factor": 0.25,
                "down": True,
            },
        ),
    ],
    "apfl": [UNIFORM, PLAIN, ("ApflTrainer", {"alpha": 0.5, "adaptive": False})],
    "ditto": [
        UNIFORM,
        BY_SAMPLES,
        (
            "DittoTrainer",
            {"lam": 0.1, "personal_epochs": 1, "personal_steps": None, "personal_rate": None},
        ),
    ],
    "fedbabu": [UNIFORM, BY_SAMPLES, ("FedBabuTrainer", TUNED)],
    "fedbn": [UNIFORM, BY_SAMPLES],
    "fedper": [UNIFORM, BY_SAMPLES],
    "fedrep": [UNIFORM, BY_SAMPLES, ("FedRepTrainer", {"head_epochs": 5, "head_steps": None})],
    "fine-tuning": [UNIFORM, BY_SAMPLES, ("FineTuning", TUNED)],
    "lg-fedavg": [UNIFORM, BY_SAMPLES],
    "per-fedavg": [
        UNIFORM,
        PLAIN,
        (
            "PerFedAvgTrainer",
            {"alpha": 0.01, "order": "first", "delta": 1e-3, "personal_steps": 1},
        ),
    ],
    "pfedme": [
        UNIFORM,
        PLAIN,
        ("PfedMeTrainer", {"lam": 15.0, "inner_steps": 5, "inner_rate": None}),
    ],
    "fedasync": [
        ("Concurrent", {"concurrency": 10, "buffer": 1, "refill_at": 1}),
        ("FedAsync", {**STALENESS, "alpha": 0.6}),
    ],
    "fedbuff": [
        ("Concurrent", {"concurrency": 10, "buffer": 5, "refill_at": 1}),
        ("FedBuff", STALENESS),
        ("FedAvgM", {"server_learning_rate": 1.0, "momentum": 0.0}),
    ],
    "fedadagrad": [
        UNIFORM,
        PLAIN,
        ("FedAdagrad", {"server_learning_rate": 0.1, "beta1": 0.0, "tau": 0.001}),
    ],
    "fedadam": [
        UNIFORM,
        PLAIN,
        ("FedAdam", {"server_learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}),
    ],
    "fedaim": [
        (
            "FedAimSplit",
            {
                "mediators": 3,
                "classes": 10,
                "threshold": None,
                "distance": "emd",
                "reference": "uniform",
                "schedule": "greedy",
                "shuffle": False,
                "reveal": "histogram",
            },
        ),
        (
            "FedAim",
            {
                "divergence": 0.015,
                "tolerance": 0.1,
                "amplitude": 0.5,
                "steepness": 1.0,
                "bins": 10,
                "loss_rule": "signed_rel",
                "sync_back": True,
                "loss_of": "new",
                "last_loss": "round",
            },
        ),
    ],
    "fedavg": [UNIFORM, BY_SAMPLES],
    "fedavgm": [UNIFORM, BY_SAMPLES, ("FedAvgM", {"server_learning_rate": 1.0, "momentum": 0.9})],
    "fedcs": [
        (
            "FedCS",
            {
                "candidates": 1.0,
                "select_s": 0.0,
                "distribute_s": 0.0,
                "multicast": False,
                "aggregate_s": 0.0,
            },
        ),
        BY_SAMPLES,
    ],
    "fedfv": [UNIFORM, FEDFV],
    "fednova": [UNIFORM, ("FedNova", {"mu": 0.0, "effective": "auto"})],
    "fedprox": [UNIFORM, BY_SAMPLES, ("FedProx", {"mu": 0.01})],
    "fedsgd": [("Uniform", {"fraction": None, "count": 1}), BY_SAMPLES],
    "fedshare": [UNIFORM, BY_SAMPLES, ("FedShare", {"shared": 0.05, "part": 1.0, "warm_up": 0})],
    "fedsso": [
        (
            "FedSSO",
            {
                "beta": 0.1,
                "learning_rate": 0.01,
                "min_samples": 2,
                "xi": 0.25,
                "noise": "stratum",
                "sketch": 0,
                "ask": "drawn",
            },
        ),
        BY_SAMPLES,
    ],
    "fedyogi": [
        UNIFORM,
        PLAIN,
        ("FedYogi", {"server_learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}),
    ],
    "offline-kp": [
        (
            "OfflineKP",
            {
                "stop": "strict",
                "output": "best",
                "solver": "exact",
                "resolution_s": 1.0,
                "ask_times": True,
            },
        ),
        BY_SAMPLES,
    ],
    "online-kp": [
        ("OnlineKP", {"L0": None, "U": None, "value": "raw", "ask_times": True}),
        BY_SAMPLES,
    ],
    "oort": [
        (
            "Oort",
            {
                **COHORT,
                "alpha": 2.0,
                "exploration": 0.9,
                "decay": 0.98,
                "least_exploration": 0.3,
                "cutoff": 0.05,
                "candidates": 10.0,
                "new_candidates": 5.0,
                "clip": 0.9,
                "percentile": 30.0,
                "pacer_delta": 5.0,
                "pacer_step": 20,
                "most_rounds": None,
                "most_barred": 0.3,
                "ask_times": True,
            },
        ),
        BY_SAMPLES,
    ],
    "power-of-choice": [
        ("PowerOfChoice", {**COHORT, "candidates": None, "loss": "asked", "samples": 0}),
        PLAIN,
    ],
    "projected-stc": [
        UNIFORM,
        FEDFV,
        (
            "Stc",
            {
                "p_up": 0.1,
                "p_down": 0.1,
                "flat": False,
                "exact_k": False,
                "literal": False,
                "ternary": True,
            },
        ),
    ],
    "q-fedavg": [UNIFORM, ("QFedAvg", {"q": 1.0})],
    "quantised": [
        UNIFORM,
        BY_SAMPLES,
        ("Quantise", {"bits": 8, "up": True, "down": False, "feedback": False}),
    ],
    "scaffold": [
        UNIFORM,
        PLAIN,
        (
            "Scaffold",
            {
                "option": "II",
                "server_learning_rate": 1.0,
                "dense": False,
                "correct": "gradient",
            },
        ),
    ],
    "selective-sgd": [
        ("RoundRobin", {"fraction": 0.0, "count": 1}),
        BY_SAMPLES,
        (
            "SelectiveSgd",
            {
                "download": 1.0,
                "upload": 0.1,
                "choice": "largest",
                "threshold": 0.0001,
                "clip": 0.001,
                "epsilon": None,
            },
        ),
    ],
    "signsgd": [
        UNIFORM,
        ("MajorityVote", {"step": None}),
        ("SignSgd", {"down": True, "feedback": True}),
    ],
    "stc": [
        UNIFORM,
        PLAIN,
        (
            "Stc",
            {
                "p_up": 0.1,
                "p_down": 0.1,
                "flat": False,
                "exact_k": False,
                "literal": False,
                "ternary": True,
            },
        ),
    ],
    "top-k": [UNIFORM, BY_SAMPLES, ("TopK", {"p": 0.01, "p_down": None, "flat": False})],
}

# What a preset's own settings make of its parts.
OWN = [
    ("astraea", {"rebalance": 2.0}, {"Astraea": {"above": 2.0}, "Rebalance": {"above": 2.0}}),
    (
        "astraea",
        {"rebalance": 2.0, "augment": True},
        {"Rebalance": {"augment": True, "shift": 0.1, "rotation": 10.0, "zoom": 0.1}},
    ),
    ("fednova", {"mu": 0.5}, {"FedNova": {"mu": 0.5}, "FedProx": {"mu": 0.5}}),
    ("fedsgd", {"order": "round-robin"}, {"RoundRobin": {"fraction": 0.0, "count": 1}}),
    ("fedsgd", {"reply": "gradient"}, {"GradientReply": {}}),
    ("fedsso", {"mean": "stratified"}, {"Stratified": {"mean": "stratified"}}),
    ("fedsso", {"mean": "literal"}, {"Stratified": {"mean": "literal"}}),
    ("stc", {"p": 0.25}, {"Stc": {"p_up": 0.25, "p_down": 0.25}}),
    ("stc", {"p": 0.25, "p_up": 0.5}, {"Stc": {"p_up": 0.5, "p_down": 0.25}}),
    ("projected-stc", {"p": 0.25, "p_down": 0.5}, {"Stc": {"p_up": 0.25, "p_down": 0.5}}),
]


def settings_of(part) -> dict:
    return {one.name: getattr(part, one.name) for one in fields(part) if one.init}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_parts_and_defaults_of_its_paper(name) -> None:
    made = [(type(part).__name__, settings_of(part)) for part in parts_of(PRESETS[name]())]
    assert made == PARTS[name]


@pytest.mark.parametrize(("name", "given", "expected"), OWN)
def test_a_presets_own_setting_reaches_every_part_that_needs_it(name, given, expected) -> None:
    made = {type(part).__name__: settings_of(part) for part in parts_of(PRESETS[name](**given))}
    for part, settings in expected.items():
        assert {key: made[part][key] for key in settings} == settings


KINDS = (
    ({**HOOKS, **ATTACKS}, Hook),
    (SELECTORS, Selector),
    (AGGREGATORS, Aggregator),
    (TRAINERS, Trainer),
)


def test_no_two_parts_have_the_same_name() -> None:
    for table, kind in KINDS:
        named = [one for one in subclasses(kind) if "name" in vars(one)]
        assert sorted(table.values(), key=repr) == sorted(named, key=repr)
        assert {name: one.name for name, one in table.items()} == {name: name for name in table}


def subclasses(kind: type) -> list[type]:
    found = [one for sub in kind.__subclasses__() for one in (sub, *subclasses(sub))]
    return [one for one in found if one.__module__.startswith("layers.")]
