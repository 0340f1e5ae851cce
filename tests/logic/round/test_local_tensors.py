"""Local tensors stay on each client; the others travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from layers.logic import (
    ClientSide,
    Hook,
    LogicError,
    Rejected,
    ServerSide,
    Task,
    Training,
    Update,
    run_round,
)
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedaim import FedAim
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.core.declaration import Trait
from layers.logic.core.local_tensors import LocalTensors, own_tensors
from layers.logic.core.messages import EMPTY
from layers.logic.hooks.compressors import SignSgd, Stc
from layers.logic.hooks.local_gradients import FedProx, GradientReply
from layers.logic.selectors.power_of_choice import PowerOfChoice
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import THREE_BOWLS, Tensor
from tests.logic.toys import Offered

TENSORS = (Tensor("body", (2,), 0, 2), Tensor("head", (1,), 2, 3))


LAYERS = ("conv.weight", "conv.bias", "norm.scale", "norm.shift", "out.weight", "out.bias")


@pytest.mark.parametrize(
    ("patterns", "own"),
    [
        (("head",), {"out.weight", "out.bias"}),
        (("body",), {*LAYERS[:4], "norm.mean", "norm.variance"}),
        (("norm",), {"norm.scale", "norm.shift", "norm.mean", "norm.variance"}),
        (("conv.*", "norm.mean"), {"conv.weight", "conv.bias", "norm.mean"}),
        (("*.bias", "head"), {"conv.bias", "out.weight", "out.bias"}),
        ((), set()),
    ],
)
def test_a_pattern_stands_for_a_group_of_layers_or_for_the_names_that_match(patterns, own) -> None:
    layout = tensors(LAYERS)
    buffers = tensors(("norm.mean", "norm.variance"))
    assert own_tensors(patterns, layout, buffers) == own
    assert own_tensors(("head",), TENSORS) == {"head"}
    for refused in (("unknown",), ("*",), ("head", "body")):
        with pytest.raises(LogicError, match=r"no tensor is called unknown|stand for all tensors"):
            own_tensors(refused, layout, buffers)
    with pytest.raises(LogicError, match="no tensor is called norm"):
        own_tensors(("norm",), layout)


def tensors(names: Sequence[str]) -> list[Tensor]:
    return [Tensor(name, (1,), place, place + 1) for place, name in enumerate(names)]


def with_local_tensors(**settings):
    local_tensors = LocalTensors(TENSORS, frozenset({"head"}))
    logic = a_logic(alone(0, 1, 2), training=Training(steps=1, learning_rate=0.5), **settings)
    initial = np.zeros(3, np.float32), np.zeros(1, np.float32)
    return replace(logic, layout=TENSORS, local_tensors=local_tensors, initial=initial)


def test_a_mask_says_which_tensors_travel_and_the_others_stay_with_each_client() -> None:
    logic = with_local_tensors(aggregator=Mean("uniform"))
    peers = MemoryCarrier(logic, THREE_BOWLS)
    sizes = []
    peers.forge = lambda update: sizes.append(update.delta.size) or [update]
    state, _ = run_rounds(2, a_state(logic), peers)
    assert {task.weights.size for task in peers.tasks} == {2}
    assert set(sizes) == {2}
    assert state.weights[2] == 0, "the server's head is the initial one"
    heads = [peers.memory(one, state).memory["mask"]["own"].item() for one in range(3)]
    assert heads == [0.75, 1.5, 2.25], "each head goes on alone: half of the way, twice"
    np.testing.assert_allclose(state.weights[:2], [1.5, 1.5])


def test_a_mask_goes_with_hooks_on_updates_and_not_with_an_encoded_model() -> None:
    state, report = run_round(
        a_state(logic := with_local_tensors(hooks=[FedProx(0.1), Stc(p_down=None)])),
        MemoryCarrier(logic, THREE_BOWLS),
        logic,
    )
    assert report.of("accepted") == (0, 1, 2)
    assert state.weights[2] == 0
    with pytest.raises(LogicError, match="Stc encodes the whole model"):
        with_local_tensors(hooks=[Stc()])


def test_a_mask_does_not_go_with_questions_about_the_whole_model() -> None:
    logic = replace(with_local_tensors(aggregator=Mean("uniform")), selector=PowerOfChoice(count=1))
    peers = MemoryCarrier(logic, THREE_BOWLS)
    with pytest.raises(LogicError, match="PowerOfChoice asks clients about the whole model"):
        run_round(a_state(logic), peers, logic)
    assert not peers.tasks
    with pytest.raises(LogicError, match="FedAim asks clients about the whole model"):
        with_local_tensors(aggregator=FedAim())
    with_local_tensors(aggregator=FedAim(loss_of="received"))


def test_the_norm_of_an_offer_is_of_what_travels() -> None:
    logic = with_local_tensors()
    logic = replace(logic, selector=Offered())
    _, report = run_round(a_state(logic), MemoryCarrier(logic, THREE_BOWLS), logic)
    assert report.of("accepted") == (0, 1, 2)
    norms = [one.metrics["norm"] for one in report.clients]
    np.testing.assert_allclose(norms, [0.5 * (one + 1) * np.sqrt(2) for one in range(3)], rtol=1e-6)


@pytest.mark.parametrize(
    "hooks", [[Scaffold(option="I")], [Scaffold(option="II")], [SignSgd(down=False)]]
)
def test_nothing_of_a_clients_own_tensors_is_in_what_hooks_send(hooks) -> None:
    logic = with_local_tensors(hooks=hooks)
    peers = MemoryCarrier(logic, THREE_BOWLS)
    sent = []
    peers.forge = lambda update: sent.append(update) or [update]
    state, reports = run_rounds(2, a_state(logic), peers)
    assert all(report.of("accepted") == (0, 1, 2) for report in reports)
    assert state.weights[2] == 0, "the server's head is the initial one"
    vectors = [
        value for update in sent for slot in update.slots.values() for value in slot.values()
    ]
    assert all(one[2] == 0 for one in vectors if isinstance(one, np.ndarray) and one.shape == (3,))


@dataclass(frozen=True)
class Whole(Hook):
    """Sends one more of each value, those of a client's own tensors included."""

    provides = frozenset({Trait.ENCODES_UPDATE})

    class Server(ServerSide):
        def receive(self, update, context):
            return replace(update, delta=context.slot["whole"])

    class Client(ClientSide):
        def send(self, update, context):
            context.slot["whole"] = update.delta + np.float32(1)
            return replace(update, delta=np.zeros(0, np.float32))


def test_the_servers_values_of_a_clients_own_tensors_stay_whatever_is_sent() -> None:
    logic = with_local_tensors(hooks=[Whole()], aggregator=Mean("uniform"))
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, THREE_BOWLS), logic)
    np.testing.assert_array_equal(state.weights, [2, 2, 0])


def test_a_mask_is_refused_where_a_sum_of_gradients_goes_up() -> None:
    with pytest.raises(LogicError, match="GradientReply sends gradients"):
        with_local_tensors(hooks=[GradientReply()])


def test_an_update_of_another_number_of_values_than_the_mask_has_is_rejected() -> None:
    buffers = (Tensor("body.mean", (3,), 0, 3), Tensor("head.mean", (2,), 3, 5))
    local_tensors = LocalTensors(TENSORS, frozenset({"head", "head.mean"}), buffers)

    def update(values: int, means: int) -> Update:
        delta, sent = np.ones(values, np.float32), np.ones(means, np.float32)
        return Update(1, 0, 3, 1, delta, sent)

    whole = local_tensors.expand(update(2, 3), np.arange(5, dtype=np.float32))
    assert whole.delta.tolist() == [1, 1, 0]
    assert whole.buffers.tolist() == [1, 1, 1, 3, 4]
    assert local_tensors.expand(update(0, 3), np.zeros(5, np.float32)).delta.size == 0
    for values, means, words in (
        (3, 3, r"update of shape \(3,\); 2 values are"),
        (1, 3, r"update of shape \(1,\); 2 values are"),
        (2, 5, r"buffers of shape \(5,\); 3 values are"),
        (2, 0, r"buffers of shape \(0,\); 3 values are"),
    ):
        with pytest.raises(Rejected, match=words):
            local_tensors.expand(update(values, means), np.zeros(5, np.float32))


def test_a_client_without_its_own_tensors_needs_the_whole_model() -> None:
    local_tensors = LocalTensors(TENSORS, frozenset({"head"}))
    whole = np.array([1, 2, 3], np.float32)
    cut = Task(2, 0, 7, Training(), whole[:2], EMPTY)
    assert local_tensors.restore(replace(cut, weights=whole), {}, None).weights is whole
    first = np.array([7, 8, 9], np.float32), EMPTY
    assert local_tensors.restore(cut, {}, first).weights.tolist() == [1, 2, 9]
    kept = local_tensors.kept(np.array([4, 5, 6], np.float32), EMPTY)
    assert local_tensors.restore(cut, kept, first).weights.tolist() == [1, 2, 6]
    with pytest.raises(LogicError, match="without the whole model"):
        local_tensors.restore(cut, {}, None)
    with_buffers = LocalTensors(
        TENSORS, frozenset({"mean"}), (Tensor("mean", (1,), 0, 1), Tensor("of all", (1,), 1, 2))
    )
    cut = Task(2, 0, 7, Training(), whole, np.array([5], np.float32))
    first = np.array([7, 8, 9], np.float32), np.array([3, 4], np.float32)
    assert with_buffers.restore(cut, {}, first).buffers.tolist() == [3, 5]
    kept = with_buffers.kept(whole, np.array([6, 0], np.float32))
    assert with_buffers.restore(cut, kept, first).buffers.tolist() == [6, 5]


def test_a_mask_of_a_tensor_that_there_is_not_says_which_there_are() -> None:
    with pytest.raises(LogicError, match="no tensor is called tail; there are body, head"):
        LocalTensors(TENSORS, frozenset({"tail"}))
