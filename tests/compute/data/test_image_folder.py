"""Folders of images: a folder for each class, channels first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from layers.compute.data.datasets import Dataset, Files
from layers.compute.data.datasets.image_folder import ImageFolder
from layers.compute.errors import DataError

RED = (255, 0, 10)


def write(folder: Path, colour: Any, number: int = 5, size: tuple[int, int] = (9, 6)) -> None:
    """Write images of one colour, of this width and height."""
    folder.mkdir(parents=True, exist_ok=True)
    mode = "RGB" if isinstance(colour, tuple) else "L"
    for one in range(number):
        Image.new(mode, size, colour).save(folder / f"{one}.png")


def read(path: Path, **settings: Any) -> Dataset:
    return ImageFolder(str(path), **settings).load(Files())


def test_a_folder_is_a_class_and_its_share_of_images_is_for_testing(tmp_path: Path) -> None:
    write(tmp_path / "dogs" / "outdoors", 200)
    write(tmp_path / "cats", 10)
    (tmp_path / "cats" / "notes.txt").write_text("not an image")
    data = read(tmp_path)
    assert (data.shape, data.names, data.train.x.dtype) == ((1, 6, 9), ("cats", "dogs"), np.uint8)
    for split, number in ((data.train, 4), (data.test, 1)):
        assert np.bincount(split.y).tolist() == [number, number]
        np.testing.assert_array_equal(split.x[:, 0, 0, 0], np.where(split.y == 0, 10, 200))


def test_colours_are_channels_and_come_first(tmp_path: Path) -> None:
    write(tmp_path / "grey", 7)
    write(tmp_path / "red", RED, size=(20, 30))
    data = read(tmp_path, size=(4, 5))
    assert data.shape == (3, 4, 5)
    for x, label in zip(data.train.x, data.train.y, strict=True):
        assert x[:, 0, 0].tolist() == [[7, 7, 7], [*RED]][label]


def test_folders_of_both_splits_are_the_published_split(tmp_path: Path) -> None:
    for split, number in (("train", 3), ("test", 2)):
        for name in ("a", "b"):
            write(tmp_path / split / name, 1, number)
    data = read(tmp_path)
    assert (len(data.train), len(data.test), data.names) == (6, 4, ("a", "b"))
    write(tmp_path / "test" / "c", 1)
    with pytest.raises(DataError, match=r"test/c: .*no class c"):
        read(tmp_path)


def test_what_are_no_images_of_classes_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "none")
    with pytest.raises(DataError, match="cannot come from a server"):
        ImageFolder(str(tmp_path)).load(Files(named=False))
    with pytest.raises(DataError, match="has no folders"):
        read(tmp_path)
    write(tmp_path / "a", 1)
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match="b: has no image"):
        read(tmp_path)
    write(tmp_path / "b", 1, size=(8, 8))
    with pytest.raises(DataError, match=r"\(6, 9\) to \(8, 8\); give size: "):
        read(tmp_path)
    (tmp_path / "b" / "9.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"9\.png: cannot be read"):
        read(tmp_path, size=(4, 4))
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "b" / "9.png")
    with pytest.raises(DataError, match=r"9\.png: has pixels of more than 8 bits"):
        read(tmp_path, size=(4, 4))
