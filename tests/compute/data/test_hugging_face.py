"""Data sets of Hugging Face in folders: images, class labels, numbers and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layers.compute.data.datasets import Dataset, Files
from layers.compute.data.datasets.hugging_face import HuggingFace
from layers.compute.data.targets import Targets
from layers.compute.errors import DataError

datasets = pytest.importorskip("datasets", reason="needs the package datasets")

ROWS = 20


def table(**changed: Any) -> Any:
    number = np.arange(ROWS)
    whole = {
        "image": [np.full((6, 9), one, np.uint8) for one in number],
        "label": number % 2,
        "kind": [("cat", "bee")[one % 2] for one in number],
        "writer": [("a", "b")[one // 10] for one in number],
        "width": number.astype(np.float32),
        "height": number.astype(np.float32) + 0.5,
        "vector": [[float(one), 2.0] for one in number],
    }
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["even", "odd"]),
            "kind": datasets.Value("string"),
            "writer": datasets.Value("string"),
            "width": datasets.Value("float32"),
            "height": datasets.Value("float32"),
            "vector": datasets.List(datasets.Value("float32"), length=2),
        }
    )
    return datasets.Dataset.from_dict({**whole, **changed}, features=features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "both"
    both = datasets.DatasetDict({"train": table(), "validation": table().select(range(4))})
    both.save_to_disk(path)
    return path


def read(path: Path, features: Any, target: Any, **settings: Any) -> Dataset:
    files = Files(cache=path.parent / "cache", download=False)
    return HuggingFace(str(path), features, target, **settings).load(files)


def test_images_have_channels_first_and_class_labels_keep_their_names(folder: Path) -> None:
    data = read(folder, "image", "label", test_split="validation")
    assert (data.shape, data.train.x.dtype, data.names) == ((1, 6, 9), np.uint8, ("even", "odd"))
    assert (len(data.train), len(data.test), data.targets) == (20, 4, Targets("classes", 2))
    np.testing.assert_array_equal(data.train.x[:, 0, 0, 0] % 2, data.train.y)
    assert read(folder, "image", "label", size=(4, 5)).shape == (1, 4, 5)


@pytest.mark.parametrize(
    ("features", "shape"), [("width", (1,)), (("height", "width"), (2,)), ("vector", (2,))]
)
@pytest.mark.parametrize(
    ("target", "targets", "names"),
    [
        ("kind", Targets("classes", 2), ("bee", "cat")),
        ("height", Targets("real", 1), ()),
        (("width", "height"), Targets("real", 2), ()),
    ],
)
def test_numbers_become_inputs_and_the_target_says_what_it_is(
    features: Any, shape: tuple[int, ...], target: Any, targets: Targets, names: Any, folder: Path
) -> None:
    data = read(folder, features, target)
    assert (data.shape, data.targets, data.names) == (shape, targets, names)
    assert (len(data.train), len(data.test)) == (16, 4)
    row = np.floor(data.train.x[:, 0])
    expected = {"kind": row % 2 == 0, "height": row + 0.5}.get(str(target), row)
    np.testing.assert_array_equal(data.train.y.reshape(16, -1)[:, 0], expected)


def test_a_column_says_whose_samples_they_are(folder: Path) -> None:
    data = read(folder, "width", "kind", client="writer", test=0.3)
    np.testing.assert_array_equal(data.train.users, data.train.x[:, 0] >= 10)
    assert data.test.users is not None
    assert np.bincount(data.test.users).tolist() == [3, 3]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_files_and_a_split_alone_are_read(ending: str, tmp_path: Path) -> None:
    plain = table().select_columns(["width", "kind"])
    (tmp_path / "files").mkdir()
    getattr(plain, f"to_{ending}")(tmp_path / "files" / f"train.{ending}")
    plain.save_to_disk(tmp_path / "alone")
    for name in ("files", "alone"):
        data = read(tmp_path / name, "width", "kind")
        assert (data.shape, data.names, len(data.train)) == ((1,), ("bee", "cat"), 16)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"features": "kind"}, "kind is .*string"),
        ({"features": "widht"}, "'widht'; did you mean 'width'"),
        ({"target": "kinds"}, "'kinds'"),
        ({"client": "wrter"}, "'wrter'; did you mean 'writer'"),
        ({"features": ("vector", "width")}, "vector has arrays"),
        ({"test_split": "test"}, "unknown split 'test'"),
    ],
)
def test_what_cannot_be_an_input_or_a_split_is_refused_by_name(
    given: dict[str, Any], reason: str, folder: Path
) -> None:
    with pytest.raises(DataError, match=f"^{folder}: .*{reason}"):
        read(folder, **{"features": "width", "target": "kind", **given})


def test_gaps_are_refused(tmp_path: Path) -> None:
    table(kind=[None, *["cat"] * 19], width=[None, *range(19)]).save_to_disk(tmp_path / "gaps")
    with pytest.raises(DataError, match="kind is missing"):
        read(tmp_path / "gaps", "height", "kind")
    with pytest.raises(DataError, match="NaN"):
        read(tmp_path / "gaps", "width", "label")


def test_nothing_is_read_that_is_not_there_or_that_a_server_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{tmp_path}/none: cannot be read"):
        read(tmp_path / "none", "width", "kind")
    with pytest.raises(DataError, match="cannot come from a server"):
        HuggingFace("of/the-hub", "width", "kind").load(Files(named=False))
