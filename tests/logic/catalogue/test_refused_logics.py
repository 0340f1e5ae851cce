"""Parts that cannot work together are refused; the nearest ones that can are accepted."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest

from layers.logic import AGGREGATORS, HOOKS, PRESETS, SELECTORS, LogicError, Training, run_round
from layers.logic.compression.sides import CodecHook
from layers.logic.core.declaration import RULES, Condition, Need, Part, Trait, check_together
from layers.logic.core.hook import Facilities
from tests.logic.memory_carrier import InLanes, MemoryCarrier, a_logic, a_state, alone
from tests.logic.quadratic import bowls

BELOW_1 = math.nextafter(1, 0)
RATE_HALF = Training(learning_rate=0.5)
CLIENTS = bowls(5)

# Whether an aggregator looks at single clients' updates, of which a lane of several has none.
EACH_CLIENT = {
    "bucketing": True,
    "by-group": False,
    "centered-clipping": True,
    "fedaim": False,
    "fedasync": False,
    "fedbuff": False,
    "fedfv": True,
    "fednova": True,
    "fltrust": True,
    "geometric-median": True,
    "krum": True,
    "majority-vote": False,
    "mean": False,
    "median": True,
    "multi-krum": True,
    "nearest-neighbour-mixing": True,
    "norm-clip": True,
    "q-fedavg": True,
    "stratified": False,
    "trimmed-mean": True,
}

# What each hook encodes with its own defaults, and with a setting that changes it.
ENCODED = [
    ("clip", {}, ""),
    ("dgc", {}, "update model"),
    ("dgc", {"down": False}, "update"),
    ("divergence", {}, ""),
    ("fedadagrad", {}, ""),
    ("fedadam", {}, ""),
    ("fedavgm", {}, ""),
    ("fedprox", {}, ""),
    ("fedshare", {}, ""),
    ("fedyogi", {}, ""),
    ("gradient-reply", {}, "update"),
    ("quantise", {}, "update"),
    ("quantise", {"down": True}, "update model"),
    ("quantise", {"up": False, "down": True}, "model"),
    ("rebalance", {}, ""),
    ("scaffold", {}, ""),
    ("selective-sgd", {}, "update model"),
    ("sign-sgd", {}, "update model"),
    ("sign-sgd", {"down": False}, "update"),
    ("stc", {}, "update model"),
    ("stc", {"p_up": None}, "model"),
    ("stc", {"p_down": None}, "update"),
    ("stragglers", {}, ""),
    ("top-k", {}, "update"),
    ("top-k", {"p_down": 0.1}, "update model"),
]
ENCODED += [
    (name, {}, "update" * issubclass(hook, CodecHook))
    for name, hook in HOOKS.items()
    if name not in {one for one, _, _ in ENCODED}
]


def logic(**settings):
    """Return a logic of one client; parts are given by name and settings, or as they are."""
    training = settings.pop("training", Training())
    for kind, known in (("aggregator", AGGREGATORS), ("hooks", HOOKS)):
        if kind in settings:
            made = [known[name](**own) for name, own in settings[kind]]
            settings[kind] = made if kind == "hooks" else made[0]
    selector = settings.pop("selector", alone(0))
    return a_logic(selector, training=training, **settings)


def of_preset(name: str, deadline_s=None, over_select=1.0, own=None, **changed):
    preset = PRESETS[name](**(own or {}))
    parts = {"aggregator": preset.aggregator, "hooks": preset.hooks, **changed}
    return a_logic(preset.selector, deadline_s=deadline_s, over_select=over_select, **parts)


def nova(mu: float, hook_mu: float | None = None, rate: float = 0.1, momentum: float = 0.0):
    return logic(
        aggregator=[("fednova", {"mu": mu})],
        hooks=[] if hook_mu is None else [("fedprox", {"mu": hook_mu})],
        training=Training(learning_rate=rate, momentum=momentum),
    )


def prox(mu: float, rate: float):
    return logic(hooks=[("fedprox", {"mu": mu})], training=Training(learning_rate=rate))


def by_size(name: str, aggregator: str, **settings):
    return a_logic(SELECTORS[name](), aggregator=AGGREGATORS[aggregator](**settings))


def sparse(rule: str, hook: str, own, settings):
    return logic(aggregator=[(rule, own)], hooks=[(hook, settings)], min_updates=5)


# What is refused, with a part of the reason, and what is next to it and accepted.
PAIRS = {
    "krum of too few": (
        lambda: logic(aggregator=[("krum", {})], min_updates=4),
        "min_updates to 5",
        lambda: logic(aggregator=[("krum", {})], min_updates=5),
    ),
    "krum of too few for two": (
        lambda: logic(aggregator=[("krum", {"byzantine": 2})], min_updates=6),
        "min_updates to 7",
        lambda: logic(aggregator=[("krum", {"byzantine": 2})], min_updates=7),
    ),
    "multi-krum of too few": (
        lambda: logic(aggregator=[("multi-krum", {})], min_updates=4),
        "min_updates to 5",
        lambda: logic(aggregator=[("multi-krum", {})], min_updates=5),
    ),
    "trimmed-mean that trims nobody": (
        lambda: logic(aggregator=[("trimmed-mean", {})], min_updates=9),
        "min_updates to 10",
        lambda: logic(aggregator=[("trimmed-mean", {})], min_updates=10),
    ),
    "trimmed-mean where no update may come": (
        lambda: logic(aggregator=[("trimmed-mean", {"trim": 0.2})], min_updates=0),
        "min_updates to 5",
        lambda: logic(aggregator=[("trimmed-mean", {"trim": 0.0})], min_updates=0),
    ),
    "scaffold beside a robust rule": (
        lambda: logic(aggregator=[("median", {})], hooks=[("scaffold", {})]),
        "Scaffold .* Median",
        lambda: logic(aggregator=[("median", {})], hooks=[("fedprox", {})]),
    ),
    "fednova that knows no proximal term": (
        lambda: nova(0.0, 0.25),
        "FedNova's mu is 0.0, and that of the hook fedprox 0.25",
        lambda: nova(0.25, 0.25),
    ),
    "fednova with a term that no client has": (
        lambda: nova(0.25),
        "FedNova's mu is 0.25, and that of the hook fedprox 0",
        lambda: nova(0.0),
    ),
    "fednova with mu and momentum": (
        lambda: nova(0.25, 0.25, momentum=0.5),
        "momentum together with mu",
        lambda: nova(0.0, 0.0, momentum=0.5),
    ),
    "fednova whose steps overshoot": (
        lambda: nova(2.0, 2.0, rate=0.5),
        "FedNova: learning_rate 0.5 times mu 2.0",
        lambda: nova(2 * BELOW_1, 2 * BELOW_1, rate=0.5),
    ),
    "fedprox whose steps overshoot": (
        lambda: prox(2.0, 0.5),
        "FedProx: learning_rate 0.5 times mu 2.0",
        lambda: prox(2 * BELOW_1, 0.5),
    ),
    "a gradient of steps with momentum": (
        lambda: logic(hooks=[("gradient-reply", {})], training=Training(momentum=5e-324)),
        "momentum is 5e-324",
        lambda: logic(hooks=[("gradient-reply", {})]),
    ),
    "a gradient of steps with weight decay": (
        lambda: logic(hooks=[("gradient-reply", {})], training=Training(weight_decay=5e-324)),
        "weight_decay is 5e-324",
        lambda: logic(hooks=[("gradient-reply", {})], training=RATE_HALF),
    ),
    "scaffold beside a codec": (
        lambda: logic(hooks=[("scaffold", {}), ("top-k", {})]),
        "TopK .* Scaffold.* dense: true",
        lambda: logic(hooks=[("scaffold", {"dense": True}), ("top-k", {})]),
    ),
    "scaffold beside a codec of updates": (
        lambda: logic(hooks=[("scaffold", {}), ("stc", {"p_down": None})]),
        "Stc .* Scaffold.* dense: true",
        lambda: logic(hooks=[("scaffold", {}), ("stc", {"p_up": None})]),
    ),
    "scaffold beside signs": (
        lambda: logic(hooks=[("scaffold", {}), ("sign-sgd", {})]),
        "SignSgd .* Scaffold.* dense: true",
        lambda: logic(hooks=[("scaffold", {}), ("gradient-reply", {})]),
    ),
    "rebalance without labels": (
        lambda: of_preset("fedavg", hooks=[HOOKS["rebalance"]()]),
        "Rebalance .* Uniform",
        lambda: of_preset("astraea", own={"rebalance": 3.0}),
    ),
    "csfedavg without a divergence": (
        lambda: of_preset("csfedavg", hooks=()),
        "CsFedAvg .* divergence",
        lambda: of_preset("csfedavg"),
    ),
    "a sketch as long as no model": (
        lambda: of_preset("fedsso", own={"sketch": 4}),
        "a sketch of 4 values of a model that has 3",
        lambda: of_preset("fedsso", own={"sketch": 3}),
    ),
    "fedcs without a deadline": (
        lambda: of_preset("fedcs"),
        "FedCS .* clock.deadline_s",
        lambda: of_preset("fedcs", deadline_s=5e-324),
    ),
    "offline-kp without a deadline": (
        lambda: of_preset("offline-kp"),
        "OfflineKP .* clock.deadline_s",
        lambda: of_preset("offline-kp", deadline_s=5e-324),
    ),
    "online-kp without a deadline": (
        lambda: of_preset("online-kp"),
        "OnlineKP .* clock.deadline_s",
        lambda: of_preset("online-kp", deadline_s=5e-324),
    ),
    "fedcs with a reserve": (
        lambda: of_preset("fedcs", deadline_s=9.0, over_select=1.25),
        "FedCS .* over_select .* 1.25",
        lambda: of_preset("fedcs", deadline_s=9.0),
    ),
    "a table of too many cells": (
        lambda: of_preset("offline-kp", 100_001.0, own={"solver": "dp"}),
        "a table of 100001 cells",
        lambda: of_preset("offline-kp", 100_000.0, own={"solver": "dp"}),
    ),
    "a table of too many cells by its resolution": (
        lambda: of_preset("offline-kp", 100_000.0, own={"solver": "dp", "resolution_s": 0.5}),
        "set resolution_s to 1 or more",
        lambda: of_preset("offline-kp", 100_001.0, own={"solver": "exact", "resolution_s": 0.5}),
    ),
    "by size, and a mean by size": (
        lambda: a_logic_of_size("samples"),
        "BySize .* Mean",
        lambda: a_logic_of_size("uniform"),
    ),
    "power-of-choice and a mean by size": (
        lambda: by_size("power-of-choice", "mean", weights="samples"),
        "PowerOfChoice draws clients by their size",
        lambda: by_size("power-of-choice", "mean", weights="plan"),
    ),
    "power-of-choice and clipping by size": (
        lambda: by_size("power-of-choice", "norm-clip", weights="samples"),
        "PowerOfChoice draws clients by their size",
        lambda: by_size("power-of-choice", "norm-clip", weights="uniform"),
    ),
    "power-of-choice and a median by size": (
        lambda: by_size("power-of-choice", "geometric-median", weights="samples"),
        "PowerOfChoice draws clients by their size",
        lambda: by_size("power-of-choice", "geometric-median", weights="uniform"),
    ),
    "clustered and a mean by size": (
        lambda: by_size("clustered", "mean", weights="samples"),
        "Clustered .*weights='samples'",
        lambda: by_size("clustered", "mean", weights="plan"),
    ),
    "clustered and a plain mean": (
        lambda: by_size("clustered", "mean", weights="uniform"),
        "Clustered .*weights='uniform'",
        lambda: by_size("clustered", "mean", weights="plan"),
    ),
    "clustered and clipping by size": (
        lambda: by_size("clustered", "norm-clip", weights="samples"),
        "Clustered .* NormClip",
        lambda: by_size("clustered", "norm-clip", weights="uniform"),
    ),
    **{
        f"{selector} and {rule}": (
            lambda selector=selector, rule=rule: by_size(selector, rule),
            f"{SELECTORS[selector].__name__} .* {AGGREGATORS[rule].__name__}",
            lambda selector=selector: by_size(selector, "q-fedavg"),
        )
        for selector in ("by-size", "clustered", "power-of-choice")
        for rule in ("fednova", "stratified")
    },
    **{
        f"{rule} and {hook}": (
            lambda rule=rule, hook=hook, own=own, few=few: sparse(rule, hook, own, few),
            f"{HOOKS[hook].__name__} .* {AGGREGATORS[rule].__name__} ",
            lambda rule=rule, hook=hook, own=own, half=half: sparse(rule, hook, own, half),
        )
        for rule, own in (("median", {}), ("trimmed-mean", {"trim": 0.2}))
        for hook, few, half in (
            ("top-k", {"p": 0.4}, {"p": 0.5}),
            ("stc", {"p_up": 0.1}, {"p_up": None}),
            ("dgc", {"p": 0.4}, {"p": 0.5}),
            ("selective-sgd", {"upload": 0.1}, {"upload": 1.0}),
        )
    },
    "a median of sparse updates that is not meant": (
        lambda: sparse("median", "top-k", {}, {"p": 0.01}),
        "TopK .* Median .* sparse: true",
        lambda: sparse("median", "top-k", {"sparse": True}, {"p": 0.01}),
    ),
    "fewer updates than none": (
        lambda: logic(min_updates=-1),
        "min_updates must be 0 or more",
        lambda: logic(min_updates=0),
    ),
    "a round without time": (
        lambda: logic(deadline_s=0.0),
        "deadline_s must be above 0",
        lambda: logic(deadline_s=5e-324),
    ),
    "fewer asked than needed": (
        lambda: logic(over_select=BELOW_1),
        "over_select must be 1 or more",
        lambda: logic(over_select=1.0),
    ),
    "everybody asked, and more": (
        lambda: logic(over_select=math.inf),
        "over_select must be 1 or more",
        lambda: logic(over_select=math.nextafter(math.inf, 0)),
    ),
}


def a_logic_of_size(weights: str):
    return a_logic(SELECTORS["by-size"](), aggregator=AGGREGATORS["mean"](weights=weights))


@pytest.mark.parametrize("name", PAIRS)
def test_what_cannot_work_is_refused_and_what_is_next_to_it_is_not(name) -> None:
    refused, reason, accepted = PAIRS[name]
    with pytest.raises(LogicError, match=reason):
        refused()
    accepted()


@pytest.mark.parametrize("name", AGGREGATORS)
def test_lanes_of_several_clients_are_for_rules_that_need_no_single_update(name) -> None:
    rule = AGGREGATORS[name](**({"trim": 0.2} if name == "trimmed-mean" else {}))
    for lanes in (((0, 1), (2,), (3,), (4,)), ((0,), (1,), (2,), (3,), (4,))):
        selector = InLanes(lanes, group="nebs")  # by-group needs one, and fedaim knows this one
        trains = Facilities(auxiliary=lambda weights, *_: weights + 1)  # fltrust
        logic = a_logic(selector, aggregator=rule, min_updates=5, facilities=trains)
        peers = MemoryCarrier(logic, CLIENTS)
        if EACH_CLIENT[name] and lanes[0] == (0, 1):
            with pytest.raises(LogicError, match=f"{type(rule).__name__} .* InLanes"):
                run_round(a_state(logic), peers, logic)
            assert not peers.tasks, "before anybody is asked"
        else:
            _, report = run_round(a_state(logic), peers, logic)
            assert report.of("accepted") == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("name", "settings", "encoded"), ENCODED, ids=lambda value: str(value).strip("{}") or "-"
)
def test_a_hook_says_what_it_encodes(name, settings, encoded) -> None:
    hook = HOOKS[name](**settings)
    said = [
        ("update", Trait.ENCODES_UPDATE in hook.provides),
        ("model", Trait.ENCODES_MODEL in hook.provides),
    ]
    assert " ".join(what for what, encodes in said if encodes) == encoded


@dataclass
class Beside:
    """Some hooks, and parts that declare nothing."""

    hooks: list
    selector: Any = field(default_factory=Part)
    aggregator: Any = field(default_factory=Part)
    trainer: Any = field(default_factory=Part)


def holding(name: str, declaration) -> tuple[list[Part], dict[Condition, str]]:
    """Return a part of this class with one declaration, or a condition with this value."""
    if isinstance(declaration, Condition):
        return [], {declaration: name}
    field = "requires" if isinstance(declaration, Need) else "provides"
    return [type(name, (Part,), {field: frozenset({declaration})})()], {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.one.name}-{rule.other.name}")
def test_a_rule_refuses_the_one_with_the_other_or_without_it(rule, monkeypatch) -> None:
    monkeypatch.setattr("layers.logic.core.declaration.RULES", (rule,))
    (one, one_holds), (other, other_holds) = holding("One", rule.one), holding("Other", rule.other)
    alone = Beside(one), one_holds
    both = Beside([*one, *other]), {**one_holds, **other_holds}
    accepted, refused = (both, alone) if rule.needed else (alone, both)
    check_together(*accepted)
    with pytest.raises(LogicError) as error:
        check_together(*refused)
    named = {"one": "One", "other": "Part" if rule.needed else "Other", "value": "Other"}
    for key in re.findall(r"{(one|other|value)}", rule.why + rule.advice):
        assert named[key] in str(error.value)
    if rule.one != rule.other:
        check_together(Beside(other), other_holds)


def refused(hooks) -> str:
    try:
        check_together(Beside(hooks), {})
    except LogicError as error:
        return str(error)
    return ""


def test_two_hooks_are_refused_exactly_when_both_encode_the_same() -> None:
    for one, other in combinations(ENCODED, 2):
        hooks = [HOOKS[name](**settings) for name, settings, _ in (one, other)]
        both = set(one[2].split()) & set(other[2].split())
        for pair in (hooks, hooks[::-1]):
            said = re.search("each encode the (model|update),", refused(pair))
            assert (said is not None and said[1] in both) if both else said is None


def test_every_aggregator_says_whether_it_uses_the_updates_of_single_clients() -> None:
    assert sorted(EACH_CLIENT) == sorted(AGGREGATORS)
