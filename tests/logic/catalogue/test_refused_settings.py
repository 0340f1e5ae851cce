"""Every part refuses settings that mean nothing, and accepts the nearest ones that do."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from layers.compute.errors import ComputeError
from layers.compute.losses import LOSSES
from layers.logic import AGGREGATORS, ATTACKS, HOOKS, PRIVACY, SELECTORS, TRAINERS, LogicError

TINY = 5e-324  # the least number above 0
BELOW_0, ABOVE_1, BELOW_1 = -TINY, math.nextafter(1, 2), math.nextafter(1, 0)
BELOW_HALF = math.nextafter(0.5, 0)
LARGEST = math.nextafter(math.inf, 0)
NAN, INF = math.nan, math.inf

SHARE_OR_0 = {"refused": (BELOW_0, ABOVE_1, NAN), "accepted": (0.0, 1.0)}
SHARE = {"refused": (0.0, ABOVE_1, NAN), "accepted": (TINY, 1.0)}
PART = {"refused": (0.0, 1.0, NAN), "accepted": (TINY, BELOW_1)}
DECAY = {"refused": (BELOW_0, 1.0, NAN), "accepted": (0.0, BELOW_1)}
POSITIVE = {"refused": (0.0, INF, NAN), "accepted": (TINY, LARGEST)}
POSITIVE_OR_ENDLESS = {"refused": (0.0, NAN), "accepted": (TINY, INF)}
NOT_NEGATIVE = {"refused": (BELOW_0, INF, NAN), "accepted": (0.0, LARGEST)}
FROM_0, FROM_1, FROM_2 = ({"refused": (least - 1,), "accepted": (least,)} for least in (0, 1, 2))


def one_of(*names: str):
    return {"refused": ("none of them",), "accepted": names}


BUDGET = {
    "clip": POSITIVE,
    "delta": PART,
    "epsilon": POSITIVE,
    "noise": {"refused": (math.nextafter(0.01, 0), INF, NAN), "accepted": (0.01, LARGEST)},
}
L1, POOLED = {"distance": "l1"}, {"reference": "pooled"}
COHORT = {"fraction": SHARE_OR_0, "count": FROM_1, "clients": SHARE_OR_0}
FREE = "every value of its type is accepted"
TUNED = {"tune_epochs": FROM_1, "tune_steps": FROM_0, "tune": one_of("all", "head", "body")}
STALENESS = {
    "staleness": one_of("constant", "polynomial", "hinge"),
    "a": NOT_NEGATIVE,
    "b": NOT_NEGATIVE,
    "staleness_limit": FROM_0,
}

GIVEN = {
    ("aggregator", "bucketing"): {"size": FROM_1, "rule": FREE},
    ("aggregator", "centered-clipping"): {"radius": POSITIVE, "iterations": FROM_1},
    ("aggregator", "fedaim"): {
        "divergence": NOT_NEGATIVE,
        "tolerance": NOT_NEGATIVE,
        "amplitude": SHARE_OR_0,
        "steepness": NOT_NEGATIVE,
        "bins": FROM_2,
        "loss_rule": one_of("signed_rel", "abs_rel", "signed_abs"),
        "loss_of": one_of("new", "received"),
        "last_loss": one_of("round", "exchange"),
    },
    ("aggregator", "fedasync"): {**STALENESS, "alpha": SHARE},
    ("aggregator", "fedbuff"): STALENESS,
    ("aggregator", "fedfv"): {"alpha": SHARE_OR_0, "tau": FROM_0},
    ("aggregator", "fednova"): {"mu": NOT_NEGATIVE, "effective": one_of("auto", "a", "steps")},
    ("aggregator", "fltrust"): {"held_out": PART},
    ("aggregator", "geometric-median"): {
        "iterations": FROM_1,
        "weights": FREE,
        "smoothing": POSITIVE,
    },
    ("aggregator", "krum"): {"byzantine": FROM_0},
    ("aggregator", "majority-vote"): {"step": POSITIVE_OR_ENDLESS},
    ("aggregator", "mean"): {"weights": FREE},
    ("aggregator", "multi-krum"): {"byzantine": FROM_0, "keep": FROM_1},
    ("aggregator", "nearest-neighbour-mixing"): {"byzantine": FROM_0, "rule": FREE},
    ("aggregator", "norm-clip"): {"norm": POSITIVE, "weights": FREE},
    ("aggregator", "q-fedavg"): {"q": NOT_NEGATIVE},
    ("aggregator", "stratified"): {"mean": one_of("stratified", "literal")},
    ("aggregator", "trimmed-mean"): {
        "trim": {"refused": (BELOW_0, 0.5, NAN), "accepted": (0.0, BELOW_HALF)},
    },
    ("attack", "alie"): {"z": {"refused": (-INF, INF, NAN), "accepted": (-LARGEST, LARGEST)}},
    ("attack", "back-door"): {
        "target": FROM_0,
        "part": SHARE,
        "size": FROM_1,
        "value": FREE,
        "scale": POSITIVE,
    },
    ("attack", "fang-trim"): {
        "beyond": {"refused": (1.0, INF, NAN), "accepted": (ABOVE_1, LARGEST)},
    },
    ("attack", "free-rider"): {"sigma": NOT_NEGATIVE},
    ("attack", "gaussian"): {"sigma": POSITIVE},
    ("attack", "inner-product"): {"epsilon": POSITIVE},
    ("attack", "label-flipping"): {"classes": FROM_2},
    ("attack", "mimic"): {"place": FROM_0},
    ("attack", "min-max"): {"direction": one_of("unit_vec", "sign", "std")},
    ("attack", "min-sum"): {"direction": one_of("unit_vec", "sign", "std")},
    ("attack", "scaling"): {"scale": POSITIVE},
    ("attack", "sign-flip"): {"scale": POSITIVE},
    ("hook", "clip"): {"norm": POSITIVE_OR_ENDLESS},
    ("hook", "dgc"): {
        "p": SHARE,
        "threshold": POSITIVE_OR_ENDLESS,
        "momentum": DECAY,
        "clip": POSITIVE_OR_ENDLESS,
        "clients": FROM_1,
        "warmup": FROM_0,
        "warmup_factor": SHARE,
    },
    ("hook", "divergence"): {"held_out": PART},
    ("hook", "fedadagrad"): {"server_learning_rate": POSITIVE, "beta1": DECAY, "tau": POSITIVE},
    ("hook", "fedadam"): {
        "server_learning_rate": POSITIVE,
        "beta1": DECAY,
        "beta2": DECAY,
        "tau": POSITIVE,
    },
    ("hook", "fedavgm"): {"server_learning_rate": POSITIVE, "momentum": DECAY},
    ("hook", "fedprox"): {"mu": NOT_NEGATIVE},
    ("hook", "fedshare"): {"shared": PART, "part": SHARE, "warm_up": FROM_0},
    ("hook", "fedyogi"): {
        "server_learning_rate": POSITIVE,
        "beta1": DECAY,
        "beta2": DECAY,
        "tau": POSITIVE,
    },
    ("hook", "quantise"): {
        "bits": {"refused": (7, 9, 15, 17, 32), "accepted": (8, 16)},
        "up": {"refused": (False,), "accepted": (True,)},  # with `down` off, which is usual
    },
    ("hook", "rebalance"): {
        "above": POSITIVE,
        "shift": SHARE_OR_0,
        "rotation": {"refused": (BELOW_0, math.nextafter(180, 181), NAN), "accepted": (0.0, 180.0)},
        "shear": {"refused": (BELOW_0, 90.0, NAN), "accepted": (0.0, math.nextafter(90, 89))},
        "zoom": DECAY,
    },
    ("hook", "scaffold"): {
        "option": one_of("I", "II"),
        "server_learning_rate": POSITIVE,
        "correct": one_of("gradient", "step"),
    },
    ("hook", "selective-sgd"): {
        "download": SHARE,
        "upload": SHARE,
        "choice": one_of("largest", "random"),
        "threshold": {"refused": (BELOW_0,), "accepted": (0.0,)},
        "clip": POSITIVE_OR_ENDLESS,
        "epsilon": {"refused": (0.0, 1.0, INF, NAN), "accepted": (None,)},  # not with `largest`
    },
    ("hook", "stc"): {
        "p_up": SHARE,
        "p_down": SHARE,
    },
    ("hook", "stragglers"): {"share": SHARE_OR_0},
    ("hook", "top-k"): {"p": SHARE, "p_down": SHARE},
    ("selector", "astraea"): {
        "gamma": FROM_1,
        "classes": FROM_2,
        "above": POSITIVE,
        "mediator_epochs": FROM_1,
    },
    ("selector", "concurrent"): {
        "concurrency": FROM_1,
        "buffer": FROM_1,
        "refill_at": {"refused": (0, 11), "accepted": (1, 10)},
    },
    ("selector", "csfedavg"): {
        "candidates": SHARE,
        "entering": SHARE,
        "exploring": SHARE_OR_0,
    },
    ("selector", "fedaim"): {
        "mediators": FROM_1,
        "classes": FROM_2,
        "threshold": {"refused": (0.0, 4.51, INF, NAN), "accepted": (TINY, 4.5)},
        "distance": one_of("emd", "l1"),
        "reference": one_of("uniform", "pooled"),
        "schedule": one_of("greedy", "balanced", "random"),
        "reveal": one_of("histogram", "distance"),
    },
    ("selector", "fedcs"): {
        "candidates": SHARE_OR_0,
        "select_s": NOT_NEGATIVE,
        "distribute_s": NOT_NEGATIVE,
        "aggregate_s": NOT_NEGATIVE,
    },
    ("selector", "fedsso"): {
        "beta": SHARE_OR_0,
        "learning_rate": POSITIVE,
        "min_samples": FROM_2,
        "xi": PART,
        "noise": one_of("stratum", "drop", "singletons"),
        "ask": one_of("drawn", "all"),
        "sketch": FROM_0,
    },
    ("selector", "offline-kp"): {
        "stop": FREE,
        "output": FREE,
        "solver": FREE,
        "resolution_s": POSITIVE,
    },
    ("selector", "online-kp"): {"L0": FREE, "U": FREE, "value": FREE},
    ("selector", "oort"): {
        "alpha": NOT_NEGATIVE,
        "exploration": SHARE_OR_0,
        "decay": SHARE,
        "least_exploration": SHARE_OR_0,
        "cutoff": SHARE,
        "candidates": NOT_NEGATIVE,
        "new_candidates": {"refused": (BELOW_1, INF, NAN), "accepted": (1.0, LARGEST)},
        "clip": SHARE_OR_0,
        "percentile": {
            "refused": (0.0, math.nextafter(100, 101), NAN),
            "accepted": (TINY, 100.0),
        },
        "pacer_delta": {
            "refused": (BELOW_0, math.nextafter(100, 101), NAN),
            "accepted": (0.0, 100.0),
        },
        "pacer_step": FROM_1,
        "most_rounds": FROM_1,
        "most_barred": SHARE_OR_0,
    },
    ("selector", "cyclic"): {"period": FROM_1},
    ("selector", "poisson"): {"probability": SHARE},
    ("selector", "power-of-choice"): {
        "candidates": FROM_1,
        "loss": FREE,
        "samples": FROM_0,
    },
    ("loss", "distillation"): {
        "reference": FREE,
        "weight": SHARE_OR_0,
        "temperature": POSITIVE,
    },
    ("loss", "fedproto"): {"lam": NOT_NEGATIVE, "layer": FREE},
    ("loss", "focal"): {"gamma": NOT_NEGATIVE},
    ("loss", "label-smoothing"): {"epsilon": SHARE_OR_0},
    ("loss", "logit-adjustment"): {"tau": NOT_NEGATIVE, "smoothing": NOT_NEGATIVE},
    ("loss", "moon"): {"mu": NOT_NEGATIVE, "temperature": POSITIVE, "layer": FREE},
    ("privacy", "central"): {
        **BUDGET,
        "quantile": SHARE_OR_0,
        "clip_rate": POSITIVE,
        "bit_noise": POSITIVE,
    },
    ("privacy", "dp-ftrl"): {**BUDGET, "restart": FROM_1},
    ("privacy", "local"): {
        **BUDGET,
        "label_epsilon": {"refused": (0.0, math.nextafter(30, 31), NAN), "accepted": (TINY, 30.0)},
        "labels": FROM_1,
    },
    ("trainer", "apfl"): {"alpha": SHARE_OR_0},
    ("trainer", "ditto"): {
        "lam": NOT_NEGATIVE,
        "personal_epochs": FROM_1,
        "personal_steps": FROM_1,
        "personal_rate": POSITIVE,
    },
    ("trainer", "fedbabu"): TUNED,
    ("trainer", "fedrep"): {"head_epochs": FROM_1, "head_steps": FROM_1},
    ("trainer", "fine-tuning"): TUNED,
    ("trainer", "per-fedavg"): {
        "alpha": POSITIVE,
        "order": one_of("first", "hessian-free"),
        "delta": POSITIVE,
        "personal_steps": FROM_1,
    },
    ("trainer", "pfedme"): {"lam": POSITIVE, "inner_steps": FROM_1, "inner_rate": POSITIVE},
}
KINDS = {
    "aggregator": AGGREGATORS,
    "attack": ATTACKS,
    "hook": HOOKS,
    "loss": LOSSES,
    "privacy": PRIVACY,
    "selector": SELECTORS,
    "trainer": TRAINERS,
}
NEEDED = {"privacy": {"clip": 1.0, "delta": 1e-5, "noise": 1.0}}  # without a default
# A setting that is true or false takes both, and all cohorts and attacks have the same limits.
LIMITS = {
    (kind, name): {
        one.name: GIVEN.get((kind, name), {}).get(
            one.name, FREE if one.type == "bool" else COHORT.get(one.name)
        )
        for one in fields(part)
        if one.init
    }
    for kind, parts in KINDS.items()
    for name, part in parts.items()
}
SETTINGS = [
    pytest.param(kind, name, setting, limits, id=f"{kind}-{name}-{setting}")
    for (kind, name), settings in LIMITS.items()
    for setting, limits in settings.items()
    if limits not in (FREE, None)
]

# Settings that can be had alone or together only: what is refused, and what is next to it.
TOGETHER = [
    ("hook", "quantise", {"up": False, "down": False}, {"up": False, "down": True}),
    ("hook", "selective-sgd", {"epsilon": TINY}, {"epsilon": TINY, "choice": "random"}),
    (
        "hook",
        "selective-sgd",
        {"epsilon": 1.0, "choice": "random", "clip": None},
        {"epsilon": LARGEST, "choice": "random", "clip": LARGEST},
    ),
    (
        "hook",
        "selective-sgd",
        {"epsilon": 1.0, "choice": "random", "clip": INF},
        {"epsilon": 1.0, "choice": "random", "clip": 1.0},
    ),
    ("hook", "stragglers", {"share": 1.0, "drop": True}, {"share": BELOW_1, "drop": True}),
    ("hook", "stc", {"p_up": None, "p_down": None}, {"p_up": None}),
    ("hook", "stc", {"p_up": None, "p_down": None}, {"p_down": None}),
    ("hook", "stc", {"ternary": False, "literal": True}, {"ternary": False}),
    (
        "privacy",
        "central",
        {"clip": 1.0, "delta": 0.1},
        {"clip": 1.0, "delta": 0.1, "epsilon": 1.0},
    ),
    (
        "privacy",
        "dp-ftrl",
        {"clip": 1.0, "delta": 0.1},
        {"clip": 1.0, "delta": 0.1, "noise": 1.0},
    ),
    ("selector", "fedaim", {"reveal": "distance", "reference": "pooled"}, {"reveal": "distance"}),
    ("selector", "fedaim", L1 | {"threshold": 1.81}, L1 | {"threshold": 1.8}),
    ("selector", "fedaim", L1 | {"classes": 2}, L1 | {"classes": 2, "threshold": 1.0}),
    ("selector", "fedaim", POOLED | {"threshold": 9.1}, POOLED | {"threshold": 9.0}),
    ("selector", "fedaim", L1 | POOLED | {"threshold": 2.1}, L1 | POOLED | {"threshold": 2.0}),
    ("selector", "online-kp", {"L0": 1.0}, {"L0": 1.0, "U": 1.0}),
    ("selector", "online-kp", {"U": 1.0}, {"L0": TINY, "U": 1.0}),
    ("selector", "online-kp", {"L0": 0.0, "U": 1.0}, {"L0": TINY, "U": TINY}),
    ("selector", "online-kp", {"L0": 1.0, "U": BELOW_1}, {"L0": 1.0, "U": LARGEST}),
    ("selector", "online-kp", {"L0": 1.0, "U": INF}, {"L0": BELOW_1, "U": 1.0}),
    ("selector", "power-of-choice", {"count": 3, "candidates": 2}, {"count": 3, "candidates": 3}),
]


def test_the_limits_of_every_setting_of_every_part_are_written_down_here() -> None:
    unknown = [(key, one) for key, limits in LIMITS.items() for one in limits if not limits[one]]
    gone = [(key, one) for key, given in GIVEN.items() for one in {*given} - {*LIMITS[key]}]
    assert (unknown, gone) == ([], [])


@pytest.mark.parametrize(("kind", "name", "setting", "limits"), SETTINGS)
def test_a_setting_is_refused_beyond_its_limits_and_accepted_at_them(
    kind, name, setting, limits
) -> None:
    make, needed = KINDS[kind][name], NEEDED.get(kind, {})
    for value in limits["refused"]:
        with pytest.raises((LogicError, ComputeError), match=setting):
            make(**needed | {setting: value})
    for value in limits["accepted"]:
        assert getattr(make(**needed | {setting: value}), setting) == value


@pytest.mark.parametrize(("kind", "name", "refused", "accepted"), TOGETHER)
def test_settings_that_exclude_each_other_are_refused_together(
    kind, name, refused, accepted
) -> None:
    make = KINDS[kind][name]
    with pytest.raises(LogicError):
        make(**refused)
    made = make(**accepted)
    assert {key: getattr(made, key) for key in accepted} == accepted
