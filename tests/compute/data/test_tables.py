"""Tables: which columns become inputs, targets and users, and what is refused with its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from layers.compute.data.datasets import Dataset, Files
from layers.compute.data.datasets.arrays import own_split
from layers.compute.data.datasets.tables import MOST_CLASSES, MOST_VALUES, Table
from layers.compute.data.targets import Targets
from layers.compute.errors import DataError

ROWS = 24


def frame(**changed: Any) -> pandas.DataFrame:
    """Rows with one column of each kind; None leaves a column out."""
    number = np.arange(ROWS)
    whole = {
        "age": 20 + number,
        "bmi": number / 2,
        "smoker": number % 2 == 0,
        "ward": [("b", "a", "c")[one % 3] for one in number],
        "hospital": [("north", "south")[one // 16] for one in number],
        "species": [("lynx", "cat")[one % 2] for one in number],
        "price": number * 1.5,
    }
    return pandas.DataFrame(
        {key: one for key, one in {**whole, **changed}.items() if one is not None}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.csv"
    frame().to_csv(path, index=False)
    return path


def read(path: Path, target: Any = "price", **settings: Any) -> Dataset:
    given = {"drop": ("ward", "hospital", "species"), **settings}
    return Table(target, str(path), **given).load(Files())


def rows_of(data: Dataset) -> np.ndarray:
    """All inputs of both splits, by the first one."""
    x = np.concatenate([data.train.x, data.test.x])
    return x[np.argsort(x[:, 0])]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_and_truth_values_are_inputs_in_the_order_of_the_file(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"clinic.{ending}"
    if ending == "csv":
        frame().to_csv(path, index=False)
    else:
        frame().to_parquet(path)
    data = read(path)
    assert (data.shape, data.targets, data.train.x.dtype) == ((3,), Targets("real", 1), np.float32)
    number = np.arange(ROWS)
    expected = np.stack([20 + number, number / 2, number % 2 == 0], axis=1)
    np.testing.assert_array_equal(rows_of(data), expected)
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.y[:, 0], (split.x[:, 0] - 20) * np.float32(1.5))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
@pytest.mark.parametrize(
    ("separator", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ",")]
)
def test_a_table_as_excel_writes_it_is_read_without_settings(
    encoding: str, separator: str, decimal: str, tmp_path: Path
) -> None:
    path = tmp_path / "excel.csv"
    frame().to_csv(path, index=False, sep=separator, decimal=decimal, encoding=encoding)
    np.testing.assert_array_equal(rows_of(read(path))[:, 1], np.arange(ROWS) / 2)


def test_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    frame().rename(columns={"age": "größe"}).to_csv(path, index=False, encoding="latin-1")
    with pytest.raises(DataError, match=r"latin.csv: .*encoding: latin-1$"):
        read(path)
    assert read(path, encoding="latin-1").shape == (3,)


@pytest.mark.parametrize(
    ("target", "changed", "targets", "names"),
    [
        ("species", {}, Targets("classes", 2), ("cat", "lynx")),
        ("smoker", {}, Targets("classes", 2), ("False", "True")),
        ("species", {"species": [30, 4] * 12}, Targets("classes", 2), ("4", "30")),
        ("species", {"species": [1.0, 2.0] * 12}, Targets("real", 1), ()),
        (("species", "price"), {"species": [1, 2] * 12}, Targets("real", 2), ()),
        (("species", "smoker"), {"species": [1, 0] * 12}, Targets("multi-label", 2), ()),
    ],
)
def test_the_columns_say_what_the_targets_are(
    target: Any, changed: dict[str, Any], targets: Targets, names: tuple[str, ...], tmp_path: Path
) -> None:
    frame(**changed).to_csv(tmp_path / "clinic.csv", index=False)
    data = read(tmp_path / "clinic.csv", target, columns=("age", "bmi"))
    assert (data.targets, data.names) == (targets, names)


def test_classes_have_the_numbers_of_their_sorted_values_or_of_the_given_ones(file: Path) -> None:
    for classes in (None, ("lynx", "cat", "dog")):
        data = read(file, "species", columns=("age",), classes=classes)
        odd = (data.train.x[:, 0] % 2).astype(int)  # cats have an odd age
        cat = (classes or ("cat", "lynx")).index("cat")
        np.testing.assert_array_equal(data.train.y == cat, odd == 1)
        assert data.targets.classes == len(classes or "12")


def test_text_becomes_an_input_for_each_value(file: Path) -> None:
    by_name = {"columns": ("age", "ward")}
    for given, order in (("one-hot", "abc"), ({"ward": ("c", "a", "b", "d")}, "cabd")):
        x = rows_of(read(file, categories=given, **by_name))
        shown = [[float(one == ward) for one in order] for ward in frame()["ward"]]
        np.testing.assert_array_equal(x[:, 1:], shown)


def test_what_is_missing_is_filled_from_the_training_rows_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    split = ["test", "train", "train", "train"] * 6
    frame(bmi=[1000.0, 2.0, 4.0, None] * 6, split=split).to_csv(path, index=False)
    given = {"columns": ("age", "bmi"), "split": "split"}
    for missing, filled in (("mean", 3.0), ("zero", 0.0)):
        data = read(path, missing=missing, **given)
        assert sorted({*data.train.x[:, 1].tolist()}) == sorted({2.0, 4.0, filled})
    assert len(read(path, missing="drop-rows", **given).train) == 12


def test_whole_numbers_with_a_gap_are_classes(tmp_path: Path) -> None:
    species = pandas.array([None, *[0, 1, 2] * 7, 0, 1], dtype="Int64")
    frame(species=species).to_csv(tmp_path / "gaps.csv", index=False)
    data = read(tmp_path / "gaps.csv", "species", columns=("age",), missing="drop-rows")
    assert data.targets == Targets("classes", 3)


def test_a_column_says_whose_rows_they_are_and_each_client_has_its_share_for_testing(
    file: Path,
) -> None:
    settings = {"client": "hospital", "drop": ("ward", "species"), "test": 0.25}
    data = read(file, **settings)
    assert data.shape == (3,)
    assert np.bincount(data.train.users).tolist() == [12, 6]
    assert np.bincount(data.test.users).tolist() == [4, 2]
    old = data.test.x[data.test.users == 0, 0]
    assert sorted(old.tolist()) != [32, 33, 34, 35], "not only the last rows"
    np.testing.assert_array_equal(
        read(file, client="hospital", drop=("ward", "species"), test=0.25).test.x, data.test.x
    )


def test_each_class_has_its_share_for_testing_and_a_column_may_say_it(tmp_path: Path) -> None:
    path = tmp_path / "sorted.csv"
    split = ["test", "train"] * 12
    frame(species=["a"] * 12 + ["b"] * 12, split=split).to_csv(path, index=False)
    data = read(path, "species", columns=("age",), test=0.25)
    assert np.bincount(data.test.y).tolist() == [3, 3]
    said = read(path, "species", columns=("age",), split="split")
    np.testing.assert_array_equal(said.test.x[:, 0], 20 + np.arange(0, ROWS, 2))


@pytest.mark.parametrize(
    ("changed", "settings", "reason"),
    [
        ({}, {"drop": ()}, r"ward holds text such as 'a'; .*one-hot, or drop: \[ward\]"),
        ({"day": pandas.date_range("2026", periods=ROWS)}, {"columns": ("day",)}, r"day holds "),
        ({"age": ["?", "20"] * 12}, {}, r"age holds text such as '\?'"),
        ({"bmi": [None, 1.0] * 12}, {}, "bmi is missing in 12 of 24 rows; .*drop-rows, .*mean"),
        ({"price": [None, 1.5] * 12}, {"missing": "mean"}, "price is missing in 12.*drop-rows"),
        ({}, {"target": "prise"}, "'prise'; did you mean 'price'"),
        ({}, {"drop": ("wards",)}, "'wards'"),
        ({}, {"target": "species", "targets": "real"}, "species holds 'lynx'"),
        ({}, {"target": ("age", "price"), "targets": "multi-label"}, "0 or 1"),
        ({}, {"target": ("age", "price"), "targets": "classes"}, "in one column"),
        ({}, {"target": "species", "classes": ("cat", "dog")}, "species is 'lynx'"),
        ({}, {"columns": ("ward",), "categories": {"ward": ("a", "b")}}, "ward is 'c'"),
        ({}, {"split": "ward", "drop": ("hospital", "species")}, "ward says 'a'"),
        ({}, {"columns": ()}, "no column besides"),
        ({}, {"columns": ("age",), "separator": ":"}, "unknown column 'price'"),
        ({"bmi": [np.inf, 1.0] * 12}, {}, "NaN or infinity"),
    ],
)
def test_what_is_no_number_is_refused_with_its_column_and_a_remedy(
    changed: dict[str, Any], settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "clinic.csv"
    frame(**changed).to_csv(path, index=False)
    with pytest.raises(DataError, match=f"^{path}: .*{reason}") as caught:
        read(path, **settings)
    assert "\n" not in str(caught.value)


def test_text_of_very_many_values_makes_no_columns(tmp_path: Path) -> None:
    path, many = tmp_path / "names.csv", range(MOST_VALUES + 1)
    pandas.DataFrame({"name": map(hex, many), "price": [*many]}).to_csv(path, index=False)
    with pytest.raises(DataError, match=r"name has 1,001 .*drop: \[name\]"):
        read(path, drop=(), targets="real", categories="one-hot")


def test_many_different_whole_numbers_are_not_taken_for_classes(tmp_path: Path) -> None:
    path, many = tmp_path / "houses.csv", np.arange(MOST_CLASSES + 1)
    pandas.DataFrame({"size": many, "price": many * 1000}).to_csv(path, index=False)
    with pytest.raises(DataError, match=r"price has 101 .*targets: real"):
        read(path, drop=())
    assert read(path, drop=(), targets="real").targets == Targets("real", 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read"),
        ("age,price\n", "no rows"),
        ("1,2.5\n3,4.5\n", "must name the columns"),
        ('age,price\n1,"2', "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "clinic.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=f"^{path}: .*{reason}"):
        read(path, drop=())
    damaged = tmp_path / "clinic.parquet"
    damaged.write_text(text)
    with pytest.raises(DataError, match=f"^{damaged}: cannot be read"):
        read(damaged, drop=())


def test_a_sheet_and_a_target_among_the_inputs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "clinic.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"clinic\.xlsx: .*as CSV"):
        read(tmp_path / "clinic.xlsx")
    with pytest.raises(DataError, match="price is a target and in columns"):
        Table("price", columns=("age", "price"))


def test_a_file_that_is_not_there_or_named_by_a_server_is_not_opened(tmp_path: Path) -> None:
    table = Table("price", str(tmp_path / "none.csv"))
    with pytest.raises(DataError, match="no such file"):
        table.load(Files())
    with pytest.raises(DataError, match="cannot come from a server"):
        table.load(Files(named=False))


OF_CLIENTS = Table(
    "species",
    columns=("age", "bmi", "ward"),
    classes=("cat", "dog", "lynx"),
    categories={"ward": ("a", "b", "c", "d")},
    client="hospital",
)


def test_without_a_path_the_settings_say_what_samples_are() -> None:
    data = OF_CLIENTS.load(Files())
    assert (data.has_samples, data.shape, data.names) == (False, (6,), ("cat", "dog", "lynx"))
    assert data.targets == Targets("classes", 3)
    real = Table(("a", "b"), columns=("c",), targets="real").load(Files())
    assert (real.shape, real.targets) == ((1,), Targets("real", 2))
    for few in (Table("a"), Table("a", columns=("b",)), Table("a", targets="real")):
        with pytest.raises(DataError, match="without a path"):
            few.load(Files())


def test_a_clients_own_file_has_the_order_of_the_experiment_not_its_own(tmp_path: Path) -> None:
    """Another order of columns, and fewer classes and categories, change no number."""
    path = tmp_path / "own.csv"
    own = frame(species=["lynx"] * ROWS, ward=["c"] * ROWS, hospital=None)
    own[["bmi", "ward", "species", "age"]].to_csv(path, index=False)
    data = OF_CLIENTS.load(Files())
    arrays = OF_CLIENTS.own(path, data.targets)
    train = own_split(str(path), arrays, data.shape, data.targets, "train")
    test = own_split(str(path), arrays, data.shape, data.targets, "test")
    assert train is not None
    assert test is not None
    assert len(train) + len(test) == ROWS
    assert {*train.y, *test.y} == {2}
    np.testing.assert_array_equal(train.x[:, 0], 20 + 2 * train.x[:, 1])
    assert (train.x[:, 2:] == [0, 0, 1, 0]).all()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"columns": ("age",)}, r"add classes: \[cat, lynx\]"),
        ({"classes": ("cat", "lynx"), "drop": ("ward", "hospital")}, r"add columns: \[age, bmi, "),
        (
            {"classes": ("cat", "lynx"), "columns": ("ward",), "categories": "one-hot"},
            r"categories: \{ward: \[a, b, c\]\}",
        ),
    ],
)
def test_an_experiment_must_say_the_order_in_which_clients_read_their_files(
    settings: dict[str, Any], reason: str, file: Path
) -> None:
    with pytest.raises(DataError, match=f"^{file}: .*{reason}"):
        Table("species", "of-the-server.csv", **settings).own(file, Targets("classes", 2))


def test_a_clients_only_row_is_for_training(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    frame()[:1].to_csv(path, index=False)
    arrays = OF_CLIENTS.own(path, Targets("classes", 3))
    assert sorted(arrays) == ["users_train", "x_train", "y_train"]
