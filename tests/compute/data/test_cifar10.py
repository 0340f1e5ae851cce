"""CIFAR-10: the folder and its archives are read in order, and what is damaged is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from layers.compute.data.datasets.images import Cifar10
from layers.compute.data.files import Files
from layers.compute.errors import DataError

SIZE = 30_730_000
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]

# The sums that the data set's readers have compared for years.
SHA1 = [
    "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "67eb016db431130d61cd03c7ad570b013799c88c",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Batches of black pictures, of which the first is of class `number`, with red 7 in it."""
    folder = tmp_path / "data" / "cifar-10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for number, name in enumerate(BATCHES):
        with (folder / name).open("wb") as file:
            file.write(bytes([number, 7]))
            file.truncate(SIZE)
    return folder


def read(folder: Path):
    return Cifar10().load(Files(folder.parent.parent, folder.parent / "c", download=False))


def packed(folder: Path, name: str, prefix: str = "cifar-10-batches-bin/") -> Path:
    """Put an archive where the folder was."""
    path = folder.parent / name
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for batch in BATCHES:
            archive.add(folder / batch, prefix + batch)
    shutil.rmtree(folder)
    return path


def check(data) -> None:
    assert (data.train.x.shape, data.test.x.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert data.train.x.dtype == np.uint8
    assert data.train.y[::10_000].tolist() == [0, 1, 2, 3, 4]
    assert data.test.y[0] == 5
    assert data.train.x[::10_000, 0, 0, 0].tolist() == [7] * 5
    assert int(data.train.x.sum(dtype=np.int64)) == 35


def test_a_folder_is_read_in_the_order_of_its_batches(folder: Path) -> None:
    check(read(folder))


def test_an_archive_is_read_where_it_is_and_writes_nothing(folder: Path) -> None:
    # Its members' names lead out of the folder, to where nothing may be written.
    path = packed(folder, "cifar-10-binary.tar.gz", "../../../")
    check(read(folder))
    assert os.listdir(path.parent) == [path.name]
    assert os.listdir(path.parent.parent.parent) == ["data"]


def test_an_archive_that_is_cut_off_is_refused_by_name(folder: Path) -> None:
    path = packed(folder, "cifar-10-binary.tar.gz")
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz") as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_lacks_a_batch_is_refused_with_its_name(folder: Path) -> None:
    (folder / BATCHES[3]).unlink()
    with pytest.raises(DataError, match=r"lacks data_batch_4\.bin"):
        read(folder)


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_a_batch_of_another_size_is_refused(folder: Path, size: int) -> None:
    os.truncate(folder / BATCHES[1], size)
    with pytest.raises(DataError, match=r"data_batch_2\.bin has \d+ bytes, not 30730000"):
        read(folder)


def test_a_member_of_another_size_is_refused_before_it_is_read(folder: Path) -> None:
    shutil.rmtree(folder)
    member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    member.size = 1 << 40
    (folder.parent / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(member.tobuf()))
    with pytest.raises(DataError, match=f"has {1 << 40} bytes"):
        read(folder)


def test_a_label_out_of_range_is_refused(folder: Path) -> None:
    with (folder / BATCHES[0]).open("r+b") as file:
        file.write(bytes([10]))
    with pytest.raises(DataError, match="labels go from 0 to 10"):
        read(folder)


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100])
def test_a_file_that_is_no_archive_is_refused(folder: Path, content: bytes) -> None:
    shutil.rmtree(folder)
    (folder.parent / "cifar-10-binary.tar.xz").write_bytes(content)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.xz"):
        read(folder)


def test_the_real_archive_holds_the_published_bytes_in_order(data_root: Path) -> None:
    data = Cifar10().load(Files(data_root, download=False))
    for number, expected in enumerate(SHA1):
        raw, start = (data.train, number * 10_000) if number < 5 else (data.test, 0)
        x, y = raw.x[start : start + 10_000], raw.y[start : start + 10_000]
        records = np.concatenate([y[:, None].astype(np.uint8), x.reshape(10_000, -1)], axis=1)
        assert hashlib.sha1(io.BytesIO(records).getbuffer()).hexdigest() == expected
    mean = data.train.x.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(mean, [0.49140, 0.48216, 0.44653], atol=1e-5)
