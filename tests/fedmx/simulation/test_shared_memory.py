"""Memory shared with worker processes: arrays, blocks and replies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmx.simulation.executors.shared_memory import (
    MAX_KEPT_BYTES,
    MAX_PIPED_BYTES,
    Block,
    ReplyFiles,
    SharedArrays,
    SharedMemory,
    map_arrays,
    read,
)
from layers.network import Payload


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.arange(12, dtype=">f8").reshape(3, 2, 2)[:, ::-1],
        np.zeros((0, 3), np.float32),
        np.array([True, False]),
        np.arange(6).reshape(2, 3).T,
    ],
)
def test_mapped_arrays_are_equal_and_read_only(array: np.ndarray) -> None:
    shared = SharedArrays([np.ones(5), array, np.ones(1)])
    first, found, last = map_arrays(shared.descriptor, shared.places)
    shared.close()
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(np.concatenate([first, last]), np.ones(6))
    for one in (first, found):
        with pytest.raises(ValueError, match="read-only"):
            one[...] = 0


def test_copy_on_write_changes_of_a_mapped_file_are_shared(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    for mode, place in (("c", ""), ("r", str(tmp_path / "x.npy")), ("r+", str(tmp_path / "x.npy"))):
        array = np.load(tmp_path / "x.npy", mmap_mode=mode)[2:8]
        if mode == "c":
            array[0] = 77
        shared = SharedArrays([array])
        assert shared.places[0].path == place
        np.testing.assert_array_equal(map_arrays(shared.descriptor, shared.places)[0], array)
        shared.close()


def test_replies_of_any_size_arrive_in_order() -> None:
    ours = ReplyFiles()
    theirs = ReplyFiles([os.dup(one) for one in ours.descriptors])
    sizes = [1, MAX_PIPED_BYTES + 1, 5, MAX_KEPT_BYTES + 1, MAX_PIPED_BYTES * 2, MAX_KEPT_BYTES * 2]
    sent: list[tuple[bytes, bytes]] = []
    for number, size in enumerate(sizes):
        reply = bytes([number]) * size
        parts = (memoryview(reply)[: size // 3], memoryview(b""), memoryview(reply)[size // 3 :])
        sent.append((theirs.write(Payload(parts, size, "reply")), reply))
        if len(sent) == 2:  # a worker may be two replies ahead
            message, expected = sent.pop(0)
            assert ours.read(message) == expected
    assert ours.read(sent[0][0]) == sent[0][1]
    assert sum(os.fstat(one).st_size for one in ours.descriptors) <= MAX_KEPT_BYTES
    ours.close()
    theirs.close()


@settings(max_examples=50)
@given(st.lists(st.one_of(st.integers(0, 200_000), st.none()), max_size=40), st.randoms())
def test_a_block_keeps_its_bytes_until_it_is_released(steps: list[int | None], draw: Any) -> None:
    memory = SharedMemory()
    held: dict[Block, bytes] = {}
    for number, size in enumerate(steps):
        if size is not None:
            data = np.full(size, number % 251, np.uint8).tobytes()
            held[memory.put(memoryview(data))] = data
        elif held:
            block = draw.choice(sorted(held))
            del held[block]
            memory.release(block)
        for block, data in held.items():
            assert bytes(read(memory.descriptor, block)) == data
            assert memory.holds(block, memoryview(data))
    for block in held:
        memory.release(block)
    assert memory._free == [(0, os.fstat(memory.descriptor).st_size)]
    memory.close()


def test_bytes_that_fit_a_free_place_exactly_are_put_there() -> None:
    memory = SharedMemory()
    size = os.fstat(memory.descriptor).st_size
    for content in (1, 2):
        block = memory.put(memoryview(bytes([content]) * size))
        assert block == Block(0, size)
        assert os.fstat(memory.descriptor).st_size == size
        memory.release(block)
    memory.close()


def test_bytes_that_are_not_there_are_missed() -> None:
    memory, replies = SharedMemory(), ReplyFiles()
    size = os.fstat(memory.descriptor).st_size
    with pytest.raises(EOFError, match=f"start={size - 1}, size=2"):
        read(memory.descriptor, Block(size - 1, 2))
    message = ReplyFiles(replies.descriptors).write(
        Payload((memoryview(bytes(MAX_PIPED_BYTES + 1)),), MAX_PIPED_BYTES + 1, "reply")
    )
    os.ftruncate(replies.descriptors[1], MAX_PIPED_BYTES)
    with pytest.raises(EOFError, match="shorter than its worker said"):
        replies.read(message)
    replies.close()
    memory.close()


def test_no_file_of_shared_memory_stays_open() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    SharedArrays([np.ones(3)]).close()
    SharedMemory().close()
    ReplyFiles().close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_an_array_that_cannot_be_shared_leaves_no_file_open() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(TypeError):
        SharedArrays([np.ones(3), np.array([object()])])
    assert sorted(os.listdir("/proc/self/fd")) == before
