"""A user's own arrays and federated data: valid ones become a data set, others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.datasets import Dataset, Files, as_dataset, from_arrays
from layers.compute.data.datasets.arrays import Arrays, CheckedFederatedData
from layers.compute.data.targets import Targets
from layers.compute.errors import DataError


def arrays(**changed: Any) -> dict[str, Any]:
    whole = {
        "x_train": np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2),
        "y_train": np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8),
        "x_test": np.zeros((3, 1, 2, 2), dtype=np.uint8),
        "y_test": np.array([0, 1, 3]),
    }
    return {name: array for name, array in {**whole, **changed}.items() if array is not None}


def read(path: Path) -> Dataset:
    return Arrays(str(path)).load(Files())


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    np.savez(tmp_path / "mine.npz", **arrays(users_train=["a", "b", "a", "b", "a", "b"]))
    return tmp_path / "mine.npz"


def test_an_npz_file_becomes_a_data_set(npz: Path) -> None:
    data = read(npz)
    assert (data.shape, data.targets.classes, len(data.train), len(data.test)) == (
        (1, 2, 2),
        4,
        6,
        3,
    )
    assert (data.train.x.dtype, data.train.y.dtype) == (np.uint8, np.int64)
    assert data.train.users.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.test.users is None


def test_a_dict_a_tuple_and_a_data_set_are_accepted() -> None:
    whole = arrays()
    for value in (whole, tuple(whole.values()), from_arrays(**whole)):
        assert as_dataset(value, "mine").train.x.tolist() == whole["x_train"].tolist()
    with pytest.raises(DataError, match="gave an object of type list"):
        as_dataset([1, 2], "mine")


class Pairs:
    """A dataset as PyTorch has them: it has a length, and its items are samples with labels."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_two_datasets_of_pytorch_become_a_data_set() -> None:
    whole = arrays()
    train = Pairs(*zip(whole["x_train"], whole["y_train"], strict=True))
    data = as_dataset((train, Pairs(*zip(whole["x_test"], whole["y_test"], strict=True))), "mine")
    for raw, split in ((data.train, "train"), (data.test, "test")):
        np.testing.assert_array_equal(raw.x, whole[f"x_{split}"])
        np.testing.assert_array_equal(raw.y, whole[f"y_{split}"])
    assert (data.train.x.dtype, data.train.y.dtype, data.targets.classes) == (np.uint8, np.int64, 4)


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (7, "int"),
        (Pairs(), "Pairs"),
        (Pairs(0.5, 1), "Pairs"),
        (Pairs((np.zeros(2), 0), (np.zeros(3), 1)), "same shape"),
        (Pairs((np.zeros(2), 0, 5), (np.zeros(2), 1, 5)), "too many values"),
        (Pairs((np.zeros(2), 0), (np.zeros(2),)), "shorter"),
        (Pairs((np.zeros(2), 0), (np.zeros(2), [0, 1])), "same shape"),
    ],
)
def test_a_dataset_whose_items_are_no_equal_pairs_is_refused(dataset: Any, reason: str) -> None:
    good = Pairs((np.zeros(2), 0))
    for both in ((dataset, good), (good, dataset)):
        with pytest.raises(DataError, match=f"^mine: a .*{reason}"):
            as_dataset(both, "mine")


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ([0.0, 1.0, np.nan], "holds nan"),
        ([0.0, 2.0, np.inf], "holds inf"),
        ([1j, 0j, 2j], "complex128"),
        ([0.0, 1.0, 2.0], r"labels, y_train = y_train\.astype\(int\); .*y_train\[:, None\]$"),
        ([True, False, True], r"y_train = y_train\.astype\(int\)$"),
        ([[0, 1], [1, 0], [0, 1]], r"y_train = y_train\.argmax\(axis=1\)$"),
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], r"y_train = y_train\.argmax\(axis=1\)$"),
        ([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]], r"y_train = y_train\.astype\(int\)$"),
        ([[[0, 1]], [[1, 0]], [[0, 1]]], "targets are"),
        (["cat", "dog", "cat"], "holds text such as 'cat'"),
    ],
)
def test_targets_are_cast_by_nobody_and_a_cast_is_advised_only_where_it_loses_nothing(
    targets: list[Any], reason: str
) -> None:
    x = np.zeros((3, 2), np.float32)
    given = {"x_train": x, "y_train": targets, "x_test": x, "y_test": targets}
    of_pytorch = Pairs(*zip(x, targets, strict=True))
    for data in (given, (of_pytorch, of_pytorch)):
        with pytest.raises(DataError, match=f"^mine: y_train .*{reason}"):
            as_dataset(data, "mine")


@pytest.mark.parametrize(
    ("y", "targets"),
    [
        ([0, 1, 4], Targets("classes", 5)),
        ([0.3, 0.9, 1.7], Targets("real", 1)),
        ([[3.0], [5.0], [4.0]], Targets("real", 1)),
        ([[0.2, 0.8], [0.7, 0.3], [0.5, 0.5]], Targets("real", 2)),
        ([[0, 1], [1, 1], [0, 1]], Targets("multi-label", 2)),
        ([[True, True], [False, False], [False, True]], Targets("multi-label", 2)),
        ([[0, 2], [1, 0], [0, 1]], Targets("tokens", 3, 2)),
    ],
)
def test_the_arrays_say_what_the_targets_are(y: list[Any], targets: Targets) -> None:
    x = np.zeros((3, 2), np.float32)
    data = as_dataset({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, "mine")
    assert data.targets == targets
    assert data.train.y.dtype == (np.float32 if targets.kind == "real" else np.int64)
    np.testing.assert_allclose(data.test.y, np.reshape(np.array(y, float), (3, *targets.shape)))


def test_a_dataset_of_pytorch_may_give_each_label_as_an_array_of_one() -> None:
    pairs = Pairs(*((np.zeros(2), np.array([label])) for label in (0, 1, 2)))
    assert as_dataset((pairs, pairs), "mine").train.y.tolist() == [0, 1, 2]


def test_a_tuple_of_another_length_is_refused_and_one_with_users_is_accepted() -> None:
    four, users = tuple(arrays().values()), (list("abcabc"), list("cda"))
    data = as_dataset((*four, *users), "mine")
    assert data.train.users.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.test.users.tolist() == [2, 3, 0]
    assert as_dataset((*four, users[0]), "mine").test.users is None
    for other in (four[:1], four[:3], (*four, *users, 1)):
        with pytest.raises(DataError, match="mine: gave an object of type tuple"):
            as_dataset(other, "mine")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"x_test": None}, "lacks x_test"),
        ({"user_train": [1, 2]}, "has user_train, which is none of"),
        ({"y_train": [0, 1, 2]}, "y has shape"),
        ({"y_train": [[0]] * 6}, r"y_train has .* shape \(6, 1\).* y_train = y_train\[:, 0\]$"),
        ({"y_train": [[0, 1]] * 6}, r"y_train has .*argmax"),
        ({"y_train": [0.5] * 6}, "test labels are int64"),
        ({"y_train": [0, 1, 2, 0, 1, -1]}, "train labels go from -1 to 2"),
        ({"y_train": [1, 2, 3] * 2, "y_test": [1, 2, 4]}, "labels go from 1 to 4, .*classes=5"),
        ({"y_train": ["cat"] * 6}, "y_train holds text such as 'cat'"),
        ({"y_train": np.array(["cat", 1, 2, 3, 4, 5], object)}, "y_train holds text such as 'cat'"),
        ({"x_train": np.zeros((6, 5))}, "a test sample has shape"),
        ({"x_train": np.zeros(6)}, "x has shape"),
        ({"x_train": ["a"] * 6}, "x_train has the dtype"),
        ({"x_train": 7.0}, "x_train is not an array"),
        ({"x_train": np.full((6, 1, 2, 2), np.nan)}, "NaN or infinity, first in sample 0"),
        ({"x_test": np.zeros((0, 1, 2, 2)), "y_test": np.zeros(0, int)}, "test split has no"),
        ({"users_train": [1, 2]}, "users has shape"),
        ({"users_test": [1, 2, 3]}, "users_test without users_train"),
    ],
)
def test_wrong_arrays_are_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        as_dataset(arrays(**changed), "mine")
    assert "mine" in str(caught.value)
    assert "\n" not in str(caught.value)


IMAGES = np.zeros((6, 28, 28, 3), np.uint8)


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"y_train": [-1, 1] * 3}, "y_train = (y_train + 1) // 2"),
        ({"y_train": [-1, -1] * 3}, "y_train = (y_train + 1) // 2"),
        ({"y_train": [1.0, -1.0] * 3}, "y_train = y_train.astype(int)"),
        ({"x_train": IMAGES}, "x_train = x_train.transpose(0, 3, 1, 2)"),
        ({"x_test": IMAGES[:3, ..., :1]}, "x_test = x_test.transpose(0, 3, 1, 2)"),
        ({"y_train": [*range(5), 100_000]}, "np.unique(y_train, return_inverse=True)"),
        ({"y_train": [*range(5), 1_000]}, "for real values give floats"),
        ({"x_train": np.zeros((6, 2), object)}, "x_train = x_train.astype(float)"),
        ({"x_train": np.array([[1], [1, 2]] * 3, object)}, "x_train = np.stack(x_train)"),
        ({"y_train": np.zeros(6, object)}, "y_train = y_train.astype(float)"),
        ({"y_train": np.array([1, None] * 3)}, "y_train holds objects of type int"),
        ({"users_train": [1.0, np.nan] * 3}, "for 3 of 6 samples; give each sample a user"),
        ({"users_train": np.array(["a", None] * 3)}, "for 3 of 6 samples; give each sample a user"),
        ({"users_train": np.array(["a", 1] * 3, object)}, "users_train = users_train.astype(str)"),
        ({"users_train": [1] * 6, "users_test": [np.nan] * 3}, "users_test is None or NaN"),
    ],
)
def test_what_is_refused_is_named_with_what_mends_it(changed: dict[str, Any], remedy: str) -> None:
    with pytest.raises(DataError, match=r"^mine: ") as caught:
        as_dataset(arrays(**changed), "mine")
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_few_channels_or_a_known_number_of_classes_are_not_doubted() -> None:
    for shape in ((6, 1, 28, 3), (6, 4, 28, 1), (6, 3, 28, 28), (6, 28, 28, 2)):
        x = np.zeros(shape, np.uint8)
        assert as_dataset((x, [0, 1] * 3, x, [0, 1] * 3), "mine").shape == shape[1:]
    many = arrays(y_train=[*range(5), 100_000])
    assert from_arrays(**many, classes=100_001).targets.classes == 100_001


def test_too_few_classes_are_refused() -> None:
    assert from_arrays(**arrays(), classes=62).targets.classes == 62
    assert (
        from_arrays(**arrays(y_train=[1, 2, 3] * 2, y_test=[1] * 3), classes=4).targets.classes == 4
    )
    with pytest.raises(DataError, match="2 classes are numbered 0 to 1"):
        from_arrays(**arrays(), classes=2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file"),
        (b"", r"is not an \.npz file"),
        (b"PK", r"is not an \.npz file"),
        (b"not a zip file at all", r"is not an \.npz file"),
        (arrays(x_train=np.array([{}] * 6, dtype=object)), r"mine.npz: cannot be read \(Object"),
        (arrays(x_tarin=np.zeros(1)), "has x_tarin, which is none of"),
        (arrays(y_test=None), "lacks y_test; it has x_train, y_train, x_test"),
    ],
)
def test_another_file_is_refused_and_pickled_objects_are_not_read(
    content: bytes | dict[str, Any] | None, reason: str, tmp_path: Path
) -> None:
    if isinstance(content, dict):
        np.savez(tmp_path / "mine.npz", **content)
    elif content is not None:
        (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        read(tmp_path / "mine.npz")


@given(data=st.data())
def test_a_damaged_file_is_a_data_error_or_a_data_set(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "mine.npz"
    np.savez_compressed(path, **arrays())
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        loaded = read(path)
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert len(loaded.train) == len(loaded.train.y)


def checked(source: Any, clients: int = 4) -> CheckedFederatedData:
    return CheckedFederatedData.of(source, clients, "mine")


class Mine:
    """Two samples for each of four clients; keyword arguments replace results."""

    classes = 3

    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def sizes(self) -> Any:
        return self.changed.get("sizes", 2)

    def client(self, number: int) -> Any:
        return self.changed.get("client", (np.zeros((2, 5)), np.array([0, 2])))

    def test(self) -> Any:
        return self.changed.get("test", (np.zeros((1, 5)), np.array([1])))


def test_the_data_of_a_client_are_made_on_request() -> None:
    data = checked(Mine())
    assert (data.shape, data.targets.classes, data.sizes, len(data.test)) == ((5,), 3, 2, 1)
    assert data.client(3).y.tolist() == [0, 2]
    unequal = checked(Mine(sizes=[2, 1, 0, 2]))
    assert np.asarray(unequal.sizes).tolist() == [2, 1, 0, 2]
    assert (len(unequal.client(0)), len(unequal.client(3))) == (2, 2)
    with pytest.raises(DataError, match=r"client 1: has 2 samples .* says 1"):
        unequal.client(1)
    assert len(checked(Mine(sizes=1, client=(np.zeros((1, 5)), [2]))).client(0)) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sizes": [2, 2, 2]}, r"mine: sizes\(\) has shape \(3,\)"),
        ({"sizes": 2.0}, "dtype float64"),
        ({"sizes": [2, -1, 2, 2]}, "must be 0 or more"),
        ({"sizes": 0}, "above 0 for a client"),
        ({"test": np.zeros((1, 5))}, "mine: test: gave an object of type ndarray"),
        ({"test": (np.zeros((1, 5)), np.array([3]))}, "labels go from 3 to 3"),
        ({"test": (np.full((1, 5), np.nan), np.array([1]))}, "NaN"),
    ],
)
def test_wrong_test_samples_and_sizes_are_refused_before_the_run(
    changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        checked(Mine(**changed))


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ((np.zeros((3, 5)), np.array([0, 1, 2])), "client 1: has 3 samples"),
        ((np.zeros((2, 6)), np.array([0, 1])), r"of shape \(6,\)"),
        ((np.zeros((2, 5)), np.array([0, 3])), "client 1: the train labels go from 0 to 3"),
        ((np.zeros((2, 5)), np.array([0.0, 1.0])), "whole numbers"),
        (None, "client 1: gave an object of type NoneType"),
    ],
)
def test_wrong_samples_of_a_client_are_refused_with_its_number(client: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        checked(Mine(client=client)).client(1)
