"""Hooks are sorted by their stage, so that every order of a list ends in the same bits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest

from layers.logic import (
    HOOKS,
    PRESETS,
    ClientSide,
    Facilities,
    Hook,
    LogicError,
    ServerSide,
    Stage,
    Training,
)
from layers.logic.algorithms.csfedavg import Divergence
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.core.declaration import Trait
from layers.logic.hooks.compressors import Quantise, Stc, TopK
from layers.logic.hooks.dgc import Dgc
from layers.logic.hooks.local_gradients import Clip, FedProx, GradientReply
from layers.logic.hooks.selective_sgd import SelectiveSgd
from layers.logic.hooks.server_optimisers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import bowls

SIZE = 12
CLIENTS = bowls(3, size=SIZE, noise=0.1)


@dataclass(frozen=True)
class Halving(Hook):
    """A user's own hook that says nothing about its stage."""

    class Server(ServerSide):
        def conclude(self, state, context):
            return replace(state, weights=state.weights / np.float32(2))

    class Client(ClientSide):
        def send(self, update, context):
            return replace(update, delta=update.delta / np.float32(2))


@dataclass(frozen=True)
class Late(Halving):
    """The same, but it says that it stands where updates may be encoded."""

    stage = Stage.UPDATE


def names(hooks) -> list[str]:
    return [type(hook).__name__ for hook in hooks]


def auxiliary(weights, buffers, training, seed):
    return weights + np.float32(1)


def outcome(hooks) -> tuple:
    """Return the bits of the model, and what the clients' updates told, after four rounds."""
    logic = a_logic(
        alone(0, 1, 2),
        size=SIZE,
        hooks=hooks,
        training=Training(steps=3, learning_rate=0.05),
        facilities=Facilities(auxiliary),
        seed=5,
    )
    state, reports = run_rounds(4, a_state(logic, np.ones(SIZE)), MemoryCarrier(logic, CLIENTS))
    assert all(report.of("accepted") == (0, 1, 2) for report in reports)
    told = [dict(client.metrics) for report in reports for client in report.clients]
    return state.weights.tobytes(), state.buffers.tobytes(), told


@pytest.mark.parametrize(
    "working",
    [
        [FedAvgM(), Stc()],
        [FedAdam(), Quantise(up=False, down=True)],
        [FedYogi(), Dgc(p=0.3)],
        [FedAdagrad(), SelectiveSgd(download=0.5)],
        [Scaffold(server_learning_rate=0.5), Stc(p_up=None)],
        [Scaffold(server_learning_rate=0.5, dense=True), TopK(0.3, p_down=0.3)],
        [Scaffold(), GradientReply()],
        [Divergence(), Stc()],
        [Clip(), GradientReply()],
        [FedProx(0.1), Quantise()],
        [Stc(None, 0.2), Quantise(16)],
        [Halving(), Quantise(down=True)],
        [FedAvgM(), Stc(p_up=None), GradientReply()],
    ],
    ids=lambda hooks: "-".join(names(hooks)),
)
def test_every_order_of_the_list_ends_in_the_same_bits(working) -> None:
    assert names(a_logic(alone(0), hooks=working).hooks) == names(working), "it is left alone"
    expected = outcome(working)
    for order in permutations(working):
        assert names(a_logic(alone(0), hooks=order).hooks) == names(working)
        assert outcome(order) == expected


def test_hooks_of_one_stage_keep_the_order_of_the_list() -> None:
    for plain in permutations([Clip(), Scaffold(dense=True), FedProx(), FedAvgM(), Halving()]):
        assert names(a_logic(alone(0), hooks=plain).hooks) == names(plain)
        mixed = [plain[0], Quantise(), *plain[1:]]
        assert names(a_logic(alone(0), hooks=mixed).hooks) == [*names(plain), "Quantise"]


def test_a_hook_stands_where_what_it_encodes_puts_it() -> None:
    stages = {name: hook().stage for name, hook in HOOKS.items()}
    encoders = [name for name in HOOKS if Trait.ENCODES_UPDATE in HOOKS[name]().provides]
    codecs = ("dgc", "gradient-reply", "quantise", "selective-sgd", "sign-sgd", "stc", "top-k")
    assert set(codecs) <= set(encoders)
    assert stages == dict.fromkeys(HOOKS, Stage.PLAIN) | dict.fromkeys(encoders, Stage.UPDATE)
    assert Stc(p_up=None).stage is Stage.MODEL
    assert Stc(p_down=None).stage is Stage.UPDATE
    assert Hook().stage is Stage.PLAIN


@pytest.mark.parametrize(
    ("preset", "own", "expected"),
    [
        ("stc", [Clip()], ["Clip", "Stc"]),
        ("scaffold", [Clip()], ["Clip", "Scaffold"]),
        ("csfedavg", [Clip(), Stc()], ["Clip", "Divergence", "Stc"]),
        ("csfedavg", [Stc(), Clip()], ["Clip", "Divergence", "Stc"]),
        ("fedavgm", [Stc(p_up=None)], ["FedAvgM", "Stc"]),
        ("quantised", [Stc(p_up=None), Halving()], ["Halving", "Stc", "Quantise"]),
    ],
)
def test_a_users_own_hooks_come_before_the_presets_of_the_same_stage(preset, own, expected) -> None:
    made = PRESETS[preset]()
    logic = a_logic(made.selector, aggregator=made.aggregator, hooks=(*own, *made.hooks))
    assert names(logic.hooks) == expected


def test_a_hook_that_stands_behind_the_encoder_by_its_own_stage_is_refused() -> None:
    with pytest.raises(LogicError, match="Late works on updates or gradients, but comes after"):
        a_logic(alone(0), hooks=[Stc(), Late()])
    assert names(a_logic(alone(0), hooks=[Late(), Stc(), Halving()]).hooks) == [
        *("Halving", "Late", "Stc")
    ]


def test_a_logic_made_from_another_keeps_the_order() -> None:
    logic = a_logic(alone(0), hooks=[Stc(), FedAvgM()])
    assert dataclasses.replace(logic, seed=3).hooks == logic.hooks == (FedAvgM(), Stc())
