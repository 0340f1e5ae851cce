"""Large data sets on disk: converted once, completely, and equal to the original."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layers.compute.data import row_store
from layers.compute.data.datasets import Dataset, Files, from_arrays
from layers.compute.data.partitions import divide
from layers.compute.data.partitions.label_free import ByUser
from layers.compute.data.partitions.partition import GroupedRows
from layers.compute.data.row_store import stored

X = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2)


class Reader:
    """Reads a data set, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Dataset:
        self.times += 1
        users = ["b", "a", "b", "c"]
        data = from_arrays(X[:4], [0, 1, 2, 0], X[4:], [2, 1], users, ["c", "d"], name="mine")
        return replace(data, words=("one", "two"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Dataset]:
    monkeypatch.setattr(row_store, "LARGE_BYTES", 10)
    (tmp_path / "source").write_bytes(b"0" * 10)

    def read(reader: Reader, settings: str = "") -> Dataset:
        files = Files(cache=tmp_path / "cache")
        return stored(files, "mine", [tmp_path / "source"], settings, reader)

    return read


def folders(root: Path) -> list[Path]:
    return sorted((root / "cache" / "mine").iterdir())


def is_mapped(array: np.ndarray) -> bool:
    return isinstance(array, np.memmap) or isinstance(array.base, np.memmap)


def assert_equal(one: Dataset, other: Dataset) -> None:
    about = [(data.name, data.targets.classes, data.shape, data.words) for data in (one, other)]
    assert about[0] == about[1]
    for raw, same in ((one.train, other.train), (one.test, other.test)):
        for name in ("x", "y", "users"):
            array, equal = getattr(raw, name), getattr(same, name)
            assert array.dtype == equal.dtype
            np.testing.assert_array_equal(array, equal)


def test_a_data_set_is_converted_once_and_is_the_same(tmp_path, store) -> None:
    reader = Reader()
    first, second = store(reader), store(reader)
    assert reader.times == 1
    for data in (first, second):
        assert is_mapped(data.train.x)
        assert is_mapped(data.test.x)
        assert_equal(data, Reader()())
    assert len(folders(tmp_path)) == 1
    assert stat.S_IMODE(folders(tmp_path)[0].stat().st_mode) == 0o755, "others share the cache"


def test_two_conversions_at_once_leave_one_that_both_read_from_disk(tmp_path, store) -> None:
    class Slower(Reader):
        def __call__(self) -> Dataset:
            store(Reader())
            return super().__call__()

    data = store(Slower())
    assert is_mapped(data.train.x)
    assert_equal(data, Reader()())
    assert len(folders(tmp_path)) == 1


def test_other_settings_and_changed_files_are_converted_again(tmp_path, store) -> None:
    reader = Reader()
    store(reader)
    store(reader, "tokens=3")
    assert reader.times == 2
    os.utime(tmp_path / "source", ns=(1, 1))
    store(reader)
    assert reader.times == 3


@pytest.mark.parametrize("name", ["train_x.npy", "test_y.npy", "about.json"])
def test_a_damaged_conversion_is_made_again(tmp_path, store, name) -> None:
    reader = Reader()
    store(reader)
    path = folders(tmp_path)[0] / name
    path.write_bytes(path.read_bytes()[:-3])
    assert_equal(store(reader), Reader()())
    assert reader.times == 2
    assert_equal(store(reader), Reader()())
    assert reader.times == 2


def test_a_cache_that_cannot_be_written_keeps_the_rows_in_memory(tmp_path, store) -> None:
    (tmp_path / "cache").write_text("not a folder")
    data = store(Reader())
    assert not is_mapped(data.train.x)
    assert_equal(data, Reader()())


def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path, store, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert not is_mapped(store(Reader()).train.x)
    assert folders(tmp_path) == []


def test_a_small_data_set_is_read_into_memory_and_nothing_is_written(tmp_path, store) -> None:
    (tmp_path / "source").write_bytes(b"0" * 9)
    reader = Reader()
    store(reader)
    assert not is_mapped(store(reader).train.x)
    assert reader.times == 2
    assert not (tmp_path / "cache").exists()


def test_by_user_reads_its_rows_from_disk(store) -> None:
    data = store(Reader())
    train, test = divide(data, ByUser(), 3, 0)
    assert [rows.tolist() for rows in train] == [[1], [0, 2], [3]]
    assert [rows.tolist() for rows in test] == [[1], [], [0]]
    np.testing.assert_array_equal(data.train.x[train[1]], X[[0, 2]])


def test_by_group_returns_the_rows_of_each_group() -> None:
    groups = np.random.default_rng(0).integers(7, size=100)
    rows = GroupedRows.by_group(groups, 9)
    assert len(rows) == 9
    for group in range(9):
        np.testing.assert_array_equal(rows[group], np.flatnonzero(groups == group))
    np.testing.assert_array_equal(rows[-3], rows[6])
    assert [part.tolist() for part in rows[2:4]] == [rows[2].tolist(), rows[3].tolist()]
    assert sum(len(part) for part in rows) == 100
