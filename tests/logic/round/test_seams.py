"""What a round lets other algorithms do: each way in is shown by one small part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from layers.logic import (
    ClientHalf,
    Context,
    Hook,
    LogicError,
    Selector,
    ServerHalf,
    ServerState,
    Training,
    run_round,
)
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.algorithms.scaffold.hook import Scaffold
from layers.logic.core.mask import Mask
from layers.logic.core.plan import Plan, single_lanes
from layers.logic.core.trainer import LocalSgd
from layers.logic.hooks.fedprox import FedProx
from layers.logic.hooks.gradient_reply import GradientReply
from layers.logic.hooks.sign_sgd import SignSgd
from layers.logic.hooks.stc import Stc
from tests.logic.memory_peers import (
    Buffered,
    MemoryPeers,
    a_logic,
    a_state,
    alone,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import Tensor, bowl

CLIENTS = {client: bowl(np.full(3, float(client + 1)), n=10 * (client + 1)) for client in range(3)}


# --- an update of an earlier version of the model --------------------------------------------


@dataclass(frozen=True)
class Seen(Mean):
    """The mean; keeps how stale each contribution was."""

    staleness: list[tuple[int, int]] = field(default_factory=list, compare=False)

    def add(self, total, contribution):
        (update,) = contribution.updates
        self.staleness.append((update.client, contribution.staleness))
        return super().add(total, contribution)


def test_an_update_of_an_earlier_version_is_folded_where_the_plan_accepts_it() -> None:
    aggregator = Seen("uniform")
    logic = a_logic(Buffered(), aggregator=aggregator, training=Training(steps=1, learning_rate=1))
    peers = MemoryPeers(logic, CLIENTS, order=(2, 0, 1))
    first, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (2,)
    assert sorted(first.in_flight) == [0, 1]
    assert {task.model_version for task in first.in_flight.values()} == {0}
    np.testing.assert_array_equal(first.weights, [3, 3, 3])

    restored = ServerState.of_tree(first.tree())  # a checkpoint keeps who is in flight
    headers = [{k: t.header() for k, t in one.in_flight.items()} for one in (restored, first)]
    assert headers[0] == headers[1]
    peers.order = (0, 1, 2)
    second, report = run_round(restored, peers, logic)
    assert report.of("accepted") == (0,)
    assert aggregator.staleness == [(2, 0), (0, 1)], "it had started from the model before the last"
    np.testing.assert_array_equal(second.weights, [4, 4, 4])  # its delta of 1, from 0
    assert sorted(second.in_flight) == [1, 2]
    assert second.last_accepted == {2: 1, 0: 1}, "the task of client 0 was of round 1"


@dataclass(frozen=True)
class EverySecond(Selector):
    """Waits for late updates in every second round only."""

    def select(self, population, memory, round, rng) -> Plan:
        late = population.in_flight if round % 2 else ()
        return Plan(
            ((2,),) if round > 1 else single_lanes((0, 1, 2)), late=late, keeps_stragglers=True
        )


def test_a_client_in_flight_that_a_plan_does_not_name_is_in_flight_no_longer() -> None:
    logic = a_logic(EverySecond())
    peers = MemoryPeers(logic, CLIENTS, silent=(0, 1))
    states = [a_state(logic)]
    for _ in range(3):
        states.append(run_round(states[-1], peers, logic)[0])
    assert [sorted(state.in_flight) for state in states] == [[], [0, 1], [], []]


def decaying(round: int) -> float:
    return 1.0 if round == 1 else 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {"hooks": [GradientReply()]},
        {"hooks": [Scaffold(), GradientReply()], "max_update": 10.0},
        {"hooks": [FedProx(0.5)], "aggregator": FedNova(mu=0.5)},
        {"aggregator": QFedAvg(1.0)},
    ],
)
def test_a_late_update_is_read_with_the_training_settings_of_its_task(settings) -> None:
    training = Training(steps=2, learning_rate=1.0)
    ends = []
    for schedule in (decaying, lambda round: 1.0):
        logic = a_logic(Buffered(), training=training, learning_rate=schedule, **settings)
        peers = MemoryPeers(logic, CLIENTS, order=(2, 0, 1))
        state, _ = run_round(a_state(logic), peers, logic)
        peers.order = (0, 1, 2)
        state, report = run_round(ServerState.of_tree(state.tree()), peers, logic)
        assert report.of("accepted") == (0,), report.clients
        ends.append(state.weights)
    assert same_bits(*ends), "client 0 has trained in round 1, whatever the rate in round 2"


@dataclass(frozen=True)
class Slower(Hook):
    """Client 1 trains at half the rate; writes down the rate that the halves see."""

    seen: list[tuple[str, int, float]] = field(default_factory=list, compare=False)

    def server(self) -> ServerHalf:
        return _Slower(self.seen)


class _Slower(ServerHalf):
    def __init__(self, seen) -> None:
        self.seen = seen

    def send(self, task, context):
        assert context.training.learning_rate == decaying(context.round), "not an earlier one"
        if task.client != 1:
            return task
        return replace(task, training=replace(task.training, learning_rate=0.5))

    def receive(self, update, context):
        self.seen.append(("receive", update.client, context.training.learning_rate))
        return update

    def on_accepted(self, update, context):
        self.seen.append(("accepted", update.client, context.training.learning_rate))


@dataclass(frozen=True)
class Rates(Mean):
    """The mean; keeps with which rate each contribution was trained."""

    rates: list[float] = field(default_factory=list, compare=False)

    def add(self, total, contribution):
        self.rates.append(contribution.training.learning_rate)
        return super().add(total, contribution)


def test_halves_and_aggregator_see_how_each_client_was_told_to_train() -> None:
    hook, aggregator = Slower(), Rates("uniform")
    logic = a_logic(
        alone(0, 1),
        hooks=[hook],
        aggregator=aggregator,
        training=Training(steps=1),
        learning_rate=decaying,
    )
    run_rounds(2, a_state(logic), MemoryPeers(logic, CLIENTS))
    assert aggregator.rates == [1.0, 0.5, 0.1, 0.5]
    for what in ("receive", "accepted"):
        rates = [rate for moment, _, rate in hook.seen if moment == what]
        assert rates == [1.0, 0.5, 0.1, 0.5]


def test_a_client_keeps_what_it_remembers_when_its_late_update_is_accepted() -> None:
    logic = a_logic(Buffered(), hooks=[Stc(p_down=None)], trainer=Ditto())
    peers = MemoryPeers(logic, CLIENTS, order=(2, 0, 1))
    state, _ = run_round(a_state(logic), peers, logic)
    peers.order = (0, 1, 2)
    state, report = run_round(state, peers, logic)
    assert report.of("accepted") == (0,)
    assert peers.remembers(0, state.last_accepted[0])
    assert set(peers.memory(0, state).memory) == {"0:Stc", "trainer"}


def test_a_late_update_is_accepted_from_clients_in_flight_alone() -> None:
    @dataclass(frozen=True)
    class Wishful(Selector):
        def select(self, population, memory, round, rng) -> Plan:
            return Plan(((0,),), late=(1,))

    logic = a_logic(Wishful())
    with pytest.raises(LogicError, match=r"late updates of clients \[1\]"):
        run_round(a_state(logic), MemoryPeers(logic, CLIENTS), logic)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"lanes": ((0, 1),), "keeps_stragglers": True}, "lanes of several clients"),
        ({"lanes": ((0,),), "offers": True, "keeps_stragglers": True}, "offers"),
        ({"lanes": ((0,),), "offers": True, "late": (1,)}, "offers"),
    ],
)
def test_a_plan_that_would_lose_an_accepted_update_is_refused(settings, what) -> None:
    with pytest.raises(LogicError, match=what):
        Plan(**settings)


# --- questions of hooks, and numbers for the record -------------------------------------------


@dataclass(frozen=True)
class Masked(Hook):
    """Pairwise masks that cancel in the sum, as in secure aggregation, without any secrecy.

    Before the tasks each client tells a number; the server hands all of them to everybody. Those
    who returned then tell what the numbers of those who did not have left in the sum.
    """

    def server(self) -> ServerHalf:
        return _MaskedServer()

    def client(self) -> ClientHalf:
        return _MaskedClient()


class _MaskedServer(ServerHalf):
    asks = frozenset({"cohort", "returned"})

    def __init__(self) -> None:
        self.told: dict[int, int] = {}
        self.returned: Sequence[int] = ()
        self.left = 0.0
        self.folded: list[int] = []

    def ask(self, moment, clients, context):
        if moment == "cohort":
            return {"ask": "your number"}
        assert not self.folded, "nothing is folded before the answers"
        self.returned = clients
        gone = [number for client, number in self.told.items() if client not in clients]
        return {"gone": np.array(gone, np.int64)}

    def on_answers(self, moment, answers, context):
        if moment == "cohort":
            self.told = {client: int(slot["number"]) for client, slot in answers.items()}
        else:
            self.left = sum(float(slot["left"]) for slot in answers.values())

    def send(self, task, context):
        others = [number for client, number in self.told.items() if client != task.client]
        context.slot["others"] = np.array(others, np.int64)
        return task

    def on_accepted(self, update, context):
        self.folded.append(update.client)

    def conclude(self, state, context):
        context.record(unmasked=len(self.returned), budget=0.5 * context.round)
        correction = np.float32(self.left / max(len(self.returned), 1))
        return replace(state, weights=state.weights - correction)


def _number(client: int | None) -> int:
    return 100 * (client + 1)


class _MaskedClient(ClientHalf):
    def answer(self, moment, question, context: Context):
        if moment == "cohort":
            return {"number": _number(context.client)}
        mine = _number(context.client)
        return {"left": float(sum(mine - int(other) for other in question["gone"]))}

    def receive(self, task, context):
        self.others = context.slot["others"]
        return task

    def send(self, update, context):
        mine = _number(context.client)
        mask = sum(mine - int(other) for other in self.others)
        return replace(update, delta=update.delta + np.float32(mask))


def _plain(clients: Sequence[int]) -> np.ndarray:
    logic = a_logic(alone(*clients), aggregator=Mean("uniform"))
    return run_round(a_state(logic), MemoryPeers(logic, CLIENTS), logic)[0].weights


@pytest.mark.parametrize("lost", [(), (1,)])
def test_a_hook_asks_the_cohort_first_and_those_who_returned_before_folding(lost) -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=[Masked()])

    class LostAfterTask(MemoryPeers):
        def ask(self, question, clients, deadline_s=None):
            self.lost = ()  # they answer, and are lost with their task
            answers = super().ask(question, clients, deadline_s)
            self.lost = lost
            return answers

    peers = LostAfterTask(logic, CLIENTS, lost=lost)
    state, report = run_round(a_state(logic), peers, logic)
    returned = tuple(client for client in CLIENTS if client not in lost)
    assert report.of("accepted") == returned
    assert peers.asked == [("hooks cohort", (0, 1, 2)), ("hooks returned", returned)]
    np.testing.assert_allclose(state.weights, _plain(returned), atol=1e-4)


@dataclass(frozen=True)
class LeavesOut(Hook):
    """Leave a client out, and write down the cohort that it saw and what it drew."""

    one: int
    why: str
    seen: list = field(default_factory=list, compare=False)

    def server(self):
        return _LeavesOut(self)


class _LeavesOut(ServerHalf):
    def __init__(self, hook):
        self.hook = hook

    def leave_out(self, clients, context):
        self.hook.seen.append((tuple(clients), context.shared_rng("draw").random()))
        return {self.hook.one: self.hook.why}


def test_a_client_that_a_hook_leaves_out_is_asked_nothing_and_gets_no_task() -> None:
    hooks = [LeavesOut(1, "unwell"), Masked(), LeavesOut(1, "too late")]
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=hooks)
    peers = MemoryPeers(logic, CLIENTS)
    state, report = run_round(a_state(logic), peers, logic)
    assert peers.asked == [("hooks cohort", (0, 2)), ("hooks returned", (0, 2))]
    np.testing.assert_allclose(state.weights, _plain((0, 2)), atol=1e-4)
    assert sorted(task.client for task in peers.tasks) == [0, 2]
    assert report.of("lost") == (1,)
    assert [c.reason for c in report.clients if c.client == 1] == ["unwell"], "the first hook's"
    assert hooks[0].seen == hooks[2].seen, "one cohort, and the same draws for all hooks"
    run_round(state, peers, logic)
    assert hooks[0].seen[0][1] != hooks[0].seen[1][1], "each round draws anew"


def test_a_client_of_the_cohort_that_does_not_answer_gets_no_task() -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=[Masked()])
    peers = MemoryPeers(logic, CLIENTS, lost=(1,))
    state, report = run_round(a_state(logic), peers, logic)
    assert [task.client for task in peers.tasks] == [0, 2]
    (lost,) = [one for one in report.clients if one.client == 1]
    assert (lost.status, lost.reason) == ("lost", "no answer to the question before its task")
    np.testing.assert_allclose(state.weights, _plain((0, 2)), atol=1e-4)


def test_a_client_that_leaves_out_a_hooks_question_has_not_answered() -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=Mean("uniform"), hooks=[Masked()])
    peers = MemoryPeers(logic, CLIENTS)
    peers.forge_answer = lambda told: [replace(told, slots={}) if told.client == 1 else told]
    state, report = run_round(a_state(logic), peers, logic)
    assert (report.of("accepted"), report.of("lost")) == ((0, 2), (1,))
    np.testing.assert_allclose(state.weights, _plain((0, 2)), atol=1e-4)


def test_a_hook_gives_numbers_to_the_rounds_record() -> None:
    logic = a_logic(alone(0, 1), hooks=[Masked()])
    _, reports = run_rounds(2, a_state(logic), MemoryPeers(logic, CLIENTS))
    assert [dict(report.numbers) for report in reports] == [
        {"unmasked": 2, "budget": 0.5},
        {"unmasked": 2, "budget": 1.0},
    ]


# --- a trainer of one's own ------------------------------------------------------------------


@dataclass(frozen=True)
class Ditto(LocalSgd):
    """Local SGD for the global model, and a personal model that is pulled towards it."""

    pull: float = 0.1

    def train(self, task, engine, data, correct, context):
        personal = context.memory.get("personal", task.weights)
        engine.load(personal, task.buffers)
        report = engine.train(data, task.training, task.seed)
        own = engine.weights - np.float32(self.pull) * (engine.weights - task.weights)
        context.keep(personal=own)
        engine.load(task.weights, task.buffers)
        super().train(task, engine, data, correct, context)
        return report


def test_a_trainer_keeps_a_model_of_the_clients_own() -> None:
    training = Training(steps=1, learning_rate=0.5)
    logic = a_logic(alone(0, 1), training=training, trainer=Ditto())
    plain = a_logic(alone(0, 1), training=training)
    peers, others = MemoryPeers(logic, CLIENTS), MemoryPeers(plain, CLIENTS)
    state, _ = run_rounds(3, a_state(logic), peers)
    other, _ = run_rounds(3, a_state(plain), others)
    assert same_bits(state.weights, other.weights), "the global model is that without it"
    personal = [peers.memory(client, state).memory["trainer"]["personal"] for client in (0, 1)]
    for client, model in enumerate(personal):
        target = client + 1.0
        global_error = abs(state.weights[0] - target)
        assert abs(model[0] - target) < global_error, "the personal model is nearer its own data"


# --- a mask ----------------------------------------------------------------------------------

TENSORS = (Tensor("body", (2,), 0, 2), Tensor("head", (1,), 2, 3))


def masked(**settings):
    mask = Mask(TENSORS, frozenset({"head"}), np.zeros(3, np.float32))
    logic = a_logic(alone(0, 1, 2), training=Training(steps=1, learning_rate=0.5), **settings)
    return replace(logic, layout=TENSORS, mask=mask)


def test_a_mask_says_which_tensors_travel_and_the_others_stay_with_each_client() -> None:
    logic = masked(aggregator=Mean("uniform"))
    peers = MemoryPeers(logic, CLIENTS)
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
        a_state(logic := masked(hooks=[FedProx(0.1), Stc(p_down=None)])),
        MemoryPeers(logic, CLIENTS),
        logic,
    )
    assert report.of("accepted") == (0, 1, 2)
    assert state.weights[2] == 0
    with pytest.raises(LogicError, match="Stc encodes the whole model"):
        masked(hooks=[Stc()])


@dataclass(frozen=True)
class Offered(Selector):
    """Everybody offers, and every offer is granted."""

    def select(self, population, memory, round, rng) -> Plan:
        return Plan(tuple((client,) for client in population.clients), offers=True)


def test_the_norm_of_an_offer_is_of_what_travels() -> None:
    logic = masked()
    logic = replace(logic, selector=Offered())
    _, report = run_round(a_state(logic), MemoryPeers(logic, CLIENTS), logic)
    assert report.of("accepted") == (0, 1, 2)
    norms = [one.metrics["norm"] for one in report.clients]
    np.testing.assert_allclose(norms, [0.5 * (one + 1) * np.sqrt(2) for one in range(3)], rtol=1e-6)


@pytest.mark.parametrize(
    "hooks", [[Scaffold(option="I")], [Scaffold(option="II")], [SignSgd(down=False)]]
)
def test_nothing_of_a_clients_own_tensors_is_in_what_hooks_send(hooks) -> None:
    logic = masked(hooks=hooks)
    peers = MemoryPeers(logic, CLIENTS)
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

    encodes_update = True

    def server(self) -> ServerHalf:
        return _WholeServer()

    def client(self) -> ClientHalf:
        return _WholeClient()


class _WholeServer(ServerHalf):
    def receive(self, update, context):
        return replace(update, delta=context.slot["whole"])


class _WholeClient(ClientHalf):
    def send(self, update, context):
        context.slot["whole"] = update.delta + np.float32(1)
        return replace(update, delta=np.zeros(0, np.float32))


def test_the_servers_values_of_a_clients_own_tensors_stay_whatever_is_sent() -> None:
    logic = masked(hooks=[Whole()], aggregator=Mean("uniform"))
    state, _ = run_round(a_state(logic), MemoryPeers(logic, CLIENTS), logic)
    np.testing.assert_array_equal(state.weights, [2, 2, 0])


def test_a_mask_is_refused_where_a_sum_of_gradients_goes_up() -> None:
    with pytest.raises(LogicError, match="GradientReply sends gradients"):
        masked(hooks=[GradientReply()])


def test_a_mask_of_a_tensor_that_there_is_not_says_which_there_are() -> None:
    with pytest.raises(LogicError, match="no tensor is called tail; there are body, head"):
        Mask(TENSORS, frozenset({"tail"}), np.zeros(3, np.float32))
