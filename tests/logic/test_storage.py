"""Updates that wait on disk and are folded slice by slice: the same bits, in bounded memory."""

from __future__ import annotations

import mmap
import resource
import tracemalloc
import weakref
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import (
    AGGREGATORS,
    HOOKS,
    Contribution,
    Logic,
    LogicError,
    ServerState,
    Training,
    Update,
    run_round,
)
from layers.logic.aggregators.collected import VALUES, WORK_BYTES
from layers.logic.core.declaration import Trait
from layers.logic.core.round import PlannedLane
from layers.logic.round.lanes import Lane
from layers.logic.storage import StoredSlots, UpdateStore
from tests.logic.given_updates import peers_of
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.toys import InLanes

BY_SLICES = [name for name, make in AGGREGATORS.items() if Trait.BY_SLICES in make().provides]
WHOLE = [name for name in AGGREGATORS if name not in BY_SLICES]
OWN = {"trimmed-mean": {"trim": 0.2}}
GROUP = "nebs"  # by-group needs one, and fedaim knows this one
MB = 1_000_000


def contribution(k: int, delta) -> Contribution:
    update = Update(1, k, k + 1, k + 2, np.zeros(0), np.zeros(0), {"loss": 1.0 / (1 + k)})
    buffers = np.full(2, k, np.float32)
    return Contribution(k, k + 1, delta, buffers, (update,), Training(), GROUP)


def folded(name: str, deltas) -> ServerState:
    """Return the state after a fold of the deltas by an aggregator with its default settings."""
    deltas = iter(deltas)
    first = next(deltas)
    rule, state = AGGREGATORS[name](), ServerState(0, np.ones(first.size, np.float32), np.ones(2))
    total = rule.add(rule.begin(state, None), contribution(0, first))
    del first
    for k, delta in enumerate(deltas, 1):
        total = rule.add(total, contribution(k, delta))
        del delta
    return rule.finish(total, state)


def drawn(size: int, number: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield rng.standard_normal(size, np.float32)


@pytest.mark.parametrize("name", BY_SLICES)
@settings(max_examples=25)
@given(
    size=st.one_of(
        st.integers(1, 40),
        st.builds(
            lambda blocks, more: blocks * VALUES + more, st.integers(1, 5), st.integers(-2, 2)
        ),
        st.sampled_from([1 << 14, (1 << 16) - 1, (1 << 16) + 1]),
    ),
    number=st.integers(5, 9),
    memory_bytes=st.sampled_from([1, 100_000, 300_000, 1_000_000, 1 << 40]),
    seed=st.integers(0, 99),
)
def test_a_fold_from_disk_has_the_bits_of_the_fold_in_memory(
    name, size, number, memory_bytes, seed
) -> None:
    expected = folded(name, drawn(size, number, seed))
    with closing(UpdateStore(memory_bytes)) as store:
        found = folded(name, (store.put(delta) for delta in drawn(size, number, seed)))
        assert same_bits(found.weights, expected.weights)
        assert same_bits(found.buffers, expected.buffers)
        assert same_bits(found.change, expected.change)
        assert store.file_bytes == 0


def six_lanes(name: str) -> Logic:
    """Six lanes of one client each, and an aggregator that can work with five updates."""
    return a_logic(
        InLanes(tuple((client,) for client in (3, 0, 5, 1, 2, 4)), group=GROUP),
        aggregator=AGGREGATORS[name](**OWN.get(name, {})),
        training=Training(steps=2),
        min_updates=5,
    )


@pytest.mark.parametrize("name", BY_SLICES)
@settings(max_examples=8)
@given(order=st.permutations(range(6)), fitting=st.integers(0, 5))
def test_a_round_from_disk_has_the_bits_of_the_round_in_memory(name, order, fitting) -> None:
    logic = six_lanes(name)
    clients = bowls(6, noise=0.3)
    expected, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, clients))
    with closing(UpdateStore(MB, waiting_bytes=fitting * expected.weights.nbytes)) as store:
        found, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, clients, order=order), store)
        assert same_bits(found.weights, expected.weights)
        assert same_bits(found.buffers, expected.buffers)
        assert (store.file_bytes, store.held_bytes) == (0, 0)


@pytest.mark.parametrize("waiting_bytes", [0, MB])
@pytest.mark.parametrize("lost", [(), (1,), (0, 1)])
def test_lanes_of_several_clients_wait_with_the_same_bits(lost, waiting_bytes) -> None:
    logic = a_logic(InLanes(((0, 1), (2, 3, 4), (5,))), training=Training(steps=2))
    clients = bowls(6, noise=0.3)
    expected, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, clients, lost=lost))
    with closing(UpdateStore(MB, waiting_bytes=waiting_bytes)) as store:
        peers = MemoryCarrier(logic, clients, order=(5, 2, 3, 4, 0), lost=lost)
        found, _ = run_rounds(2, a_state(logic), peers, store)
        assert same_bits(found.weights, expected.weights)
        assert (store.file_bytes, store.held_bytes) == (0, 0)


@pytest.mark.parametrize("hook", ["scaffold", "stc", "top-k", "fedavgm"])
def test_hooks_see_accepted_updates_with_all_slots(hook) -> None:
    """Large values of slots wait on disk as well, and come back as they were."""
    size = 40_000
    deltas = {
        (round, client): np.random.default_rng([round, client]).standard_normal(size, np.float32)
        for round in (1, 2)
        for client in range(4)
    }
    sent = []

    def result(store):
        peers = peers_of(HOOKS[hook](), deltas, (size,))
        state = ServerState(0, np.zeros(size, np.float32), np.zeros(1, np.float32))
        state, _ = run_rounds(2, state, peers, store)
        sent.append(len(peers.tasks))
        return state

    expected = result(None)
    with closing(UpdateStore(MB)) as store:
        found = result(store)
    assert sent == [8, 8]
    assert same_bits(found.weights, expected.weights)
    np.testing.assert_equal(dict(found.memory), dict(expected.memory))


@pytest.mark.parametrize("name", WHOLE)
def test_an_aggregator_that_needs_whole_updates_is_refused_in_one_line(name) -> None:
    logic = a_logic(InLanes(((0,), (1,))), aggregator=AGGREGATORS[name](), min_updates=9)
    peers = MemoryCarrier(logic, bowls(2))
    with closing(UpdateStore(MB)) as store, pytest.raises(LogicError, match="fold_memory_mb") as no:
        run_round(a_state(logic), peers, logic, store)
    assert "\n" not in str(no.value)
    assert type(logic.aggregator).__name__ in str(no.value)
    assert not peers.tasks


@pytest.mark.parametrize("name", BY_SLICES)
def test_memory_is_that_of_the_result_and_the_slices(name) -> None:
    """What numpy allocates at the most; all updates together take three times that."""
    size, number, memory_bytes = 250_000, 12, 4 * MB
    equal = np.zeros(size, np.float32)
    with closing(UpdateStore(memory_bytes)) as store:
        deltas = [store.put(delta) for delta in drawn(size, number)]
        result = _peak_bytes(lambda: folded(name, [equal] * 5))
        peak = _peak_bytes(lambda: folded(name, deltas))
    if name == "krum":  # its result is one of the updates, which above were there before
        result += equal.nbytes
    assert peak <= result + max(memory_bytes, (WORK_BYTES + 4 * VALUES) * number)


def _peak_bytes(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_file_has_no_name_and_reuses_room(tmp_path) -> None:
    with closing(UpdateStore(MB, tmp_path)) as store:
        for value in range(20):
            kept = [store.put(np.full(5000, value, np.float32)) for _ in range(3)]
            assert all(np.array_equal(one, np.full(5000, value)) for one in kept)
            assert list(tmp_path.iterdir()) == []
            assert store.file_bytes <= 3 * 6 * 4096
            kept.pop(1)
            again = store.put(np.arange(5000, dtype=np.int32))
            assert np.array_equal(kept[0], kept[1])
            assert np.array_equal(again, np.arange(5000))
            assert np.array_equal(again[10:20], np.arange(10, 20))
            assert store.file_bytes <= 3 * 6 * 4096
            del kept, again
            assert store.file_bytes == 0


def test_a_full_disk_is_reported_in_one_line_with_the_folder(tmp_path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(UpdateStore(MB, tmp_path)) as store:
        first = store.put(np.ones(1000, np.float32))
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            with pytest.raises(LogicError, match=str(tmp_path)) as full:
                store.put(np.ones(100_000, np.float32))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "\n" not in str(full.value)
        assert np.array_equal(first, np.ones(1000))
        del first
        assert store.file_bytes == 0, "what could not be written takes no room"


def test_slots_come_back_as_they_were_and_wait_on_disk_from_64_kib_on(tmp_path) -> None:
    size = 1 << 16
    large = {"array": np.arange(size // 4, dtype=np.float32), "bytes": bytes(size)}
    small = {"array": np.ones(size - 1, np.uint8), "bytes": bytes(size - 1), "text": "x" * size}
    slots = {
        "0:One": {f"{kind} {name}": value for kind, given in (("large", large), ("small", small))
                  for name, value in given.items()},
        "1:Other": {"number": 3, "nothing": None},
    }  # fmt: skip
    with closing(UpdateStore(MB, tmp_path)) as store:
        kept = StoredSlots.of(slots, store)
        assert {key: set(slot) for key, slot in kept.large.items()} == {
            "0:One": {"large array", "large bytes"},
            "1:Other": set(),
        }
        loaded = kept.loaded()
        assert store.hold(np.ones(1, np.uint8), 1) is None, "all wait on disk"
    np.testing.assert_equal(loaded, slots)
    for key, slot in slots.items():
        for name, value in slot.items():
            assert type(loaded[key][name]) is type(value)


def test_a_missing_folder_is_named(tmp_path) -> None:
    with pytest.raises(LogicError, match="missing"):
        UpdateStore(MB, tmp_path / "missing").open()


@pytest.mark.parametrize("waiting_bytes", [0, 1000])
def test_an_update_that_cannot_be_read_is_reported_with_the_reason_and_what_to_do(
    waiting_bytes: int, tmp_path
) -> None:
    store = UpdateStore(MB, tmp_path, waiting_bytes)
    stored = store.put(np.arange(5000, dtype=np.float32))
    assert store._file is not None
    store._file.truncate(4 * 5000 - 1)
    assert np.array_equal(stored[:4999], np.arange(4999))
    for reason in ("ends too early", "is closed"):
        with pytest.raises(LogicError, match=rf"{tmp_path}.* {reason}") as no:
            np.asarray(stored)
        assert ("run.fold_memory_mb" in str(no.value)) == (waiting_bytes == 0)
        store.close()


def test_a_stored_vector_is_read_in_whole_slices_only() -> None:
    with closing(UpdateStore(MB)) as store:
        stored = store.put(np.arange(12, dtype=np.int16).reshape(3, 4))
        assert (stored.shape, stored.size, stored.dtype) == ((3, 4), 12, np.int16)
        assert [part.tolist() for part in (stored[:3], stored[10:], stored[-2:], stored[5:5])] == [
            [0, 1, 2],
            [10, 11],
            [10, 11],
            [],
        ]
        assert np.array_equal(np.asarray(stored, np.float64), np.arange(12.0).reshape(3, 4))
        assert not stored[:3].flags.writeable
        for step in (2, -1):
            with pytest.raises(IndexError, match=f"every {step}th"):
                stored[::step]


def test_nothing_of_a_message_stays_in_memory_when_its_update_is_on_disk(tmp_path) -> None:
    message = mmap.mmap(-1, 1 << 20)
    gone = weakref.ref(message)
    values = np.frombuffer(message, np.float32)
    slots = {"hook": {"scale": values[1200:1201], "rows": values[1300:1310]}}
    lane = Lane(0, 1, PlannedLane((7,)), np.zeros(1000, np.float32), np.zeros(3, np.float32))
    with closing(UpdateStore(1 << 20, tmp_path)) as store:
        lane.waiting.clear()
        lane.add(Update(1, 7, 10, 10, values[:1000], values[1000:1003], slots=slots))
        lane.store(store)
        del message, values, slots
        assert gone() is None
        (update,) = lane.accepted()
        assert update.delta.size == 1000
        assert update.slots["hook"]["rows"].size == 10


def test_updates_wait_in_memory_up_to_a_bound_and_folding_frees_their_room() -> None:
    with closing(UpdateStore(MB, waiting_bytes=4000)) as store:
        first = store.hold(np.ones(500, np.float32), 2000)
        assert store.hold(np.ones(500, np.float32), 2001) is None
        second = store.hold(np.ones(500, np.float32), 2000)
        assert first is not None
        assert second is not None
        assert store.held_bytes == 4000
        del first
        assert store.held_bytes == 2000
        assert np.array_equal(second, np.ones(500))
