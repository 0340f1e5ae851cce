"""Data sets of images are read as published; damaged files are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.datasets import DATASETS
from layers.compute.data.datasets.images import Cifar10, Digits, FashionMnist, Mnist, read_idx
from layers.compute.data.files import Files
from layers.compute.errors import DataError

HEADER = struct.pack(">4I", 0x0803, 2, 3, 3)
BODY = bytes(range(18))


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    return tmp_path / "images-idx3-ubyte"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_idx_file_is_read_with_and_without_gzip(idx: Path, pack) -> None:
    idx.write_bytes(pack(HEADER + BODY))
    np.testing.assert_array_equal(read_idx(idx, (3, 3)), np.arange(18).reshape(2, 3, 3))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes are too few"),
        (HEADER[:10], "10 bytes are too few"),
        (b"\0\0\x09\x03" + HEADER[4:] + BODY, "begins with 0x00000903"),
        (struct.pack(">2I", 0x0801, 8) + BODY, "begins with 0x00000801"),
        (struct.pack(">4I", 0x0803, 2, 3, 4) + BODY, r"samples of shape \(3, 4\), not \(3, 3\)"),
        (HEADER + BODY[:-1], "announces 18 bytes and holds 17"),
        (HEADER + BODY + b"x", "announces 18 bytes and holds more"),
        (struct.pack(">4I", 0x0803, 2**32 - 1, 3, 3) + BODY, "announces 38654705655 bytes"),
    ],
)
def test_a_damaged_idx_file_is_refused_by_name(
    idx: Path, content: bytes, reason: str, pack
) -> None:
    idx.write_bytes(pack(content))
    with pytest.raises(DataError, match=reason) as caught:
        read_idx(idx, (3, 3))
    assert str(idx) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(cut=st.integers(2, 60), flip=st.integers(0, 60), bit=st.integers(0, 7))
def test_a_damaged_gzip_file_never_gives_other_pixels(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("idx") / "images"
    content = bytearray(gzip.compress(HEADER + BODY, mtime=0))
    # Neither the magic number nor the unused bytes of the header.
    if flip >= 10:
        content[flip % (len(content) - 10) + 10] ^= 1 << bit
    path.write_bytes(content[:cut] if flip < 10 else content)
    try:
        pixels = read_idx(path, (3, 3))
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert pixels.tobytes() == BODY


def test_digits_fit_a_model_for_mnist_and_keep_all_pixels() -> None:
    from sklearn.datasets import load_digits

    data = Digits().load(Files())
    assert (data.shape, data.targets.classes) == ((1, 28, 28), 10)
    assert (len(data.train), len(data.test)) == (1442, 355)
    small = np.concatenate([data.train.x, data.test.x])[:, 0, 3:26:3, 3:26:3]
    labels = np.concatenate([data.train.y, data.test.y])
    original, original_labels = load_digits(return_X_y=True)

    def rows(x: np.ndarray, y: np.ndarray) -> list[list[int]]:
        return sorted(np.column_stack([x.reshape(len(x), -1).astype(int), y]).tolist())

    assert rows(small, labels) == rows(original, original_labels)
    assert data.train.x[:, :, :2].max() == 0
    assert data.train.x.max() == 16
    assert np.bincount(data.test.y).min() >= 34


def test_different_numbers_of_images_and_labels_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    images = struct.pack(">4I", 0x0803, 2, 28, 28) + bytes(2 * 784)
    (folder / "train-images-idx3-ubyte").write_bytes(images)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x0801, 3) + bytes(3))
    with pytest.raises(DataError, match=r"has 2 images, but .* has 3 labels"):
        Mnist().load(Files(tmp_path, tmp_path, download=False))


def test_mnist_is_the_published_one(data_root: Path) -> None:
    data = DATASETS["mnist"]().load(Files(data_root, download=False))
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(data.train.y).tolist() == train
    assert np.bincount(data.test.y).tolist() == test
    assert data.train.x.mean() == pytest.approx(33.3184, abs=1e-4)
    assert (data.shape, data.train.x.dtype) == ((1, 28, 28), np.uint8)


def test_fashion_mnist_is_the_published_one(data_root: Path) -> None:
    data = FashionMnist().load(Files(data_root, download=False))
    assert np.bincount(data.train.y).tolist() == [6000] * 10
    assert np.bincount(data.test.y).tolist() == [1000] * 10
    assert data.train.x.mean() / 255 == pytest.approx(0.28604, abs=1e-5)
    assert data.train.x.std() / 255 == pytest.approx(0.35302, abs=1e-5)


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
def batches(tmp_path: Path) -> Path:
    """Batches of black images; the first has the batch's number as label, and a red value of 7."""
    batches = tmp_path / "data" / "cifar-10" / "cifar-10-batches-bin"
    batches.mkdir(parents=True)
    for number, name in enumerate(BATCHES):
        with (batches / name).open("wb") as file:
            file.write(bytes([number, 7]))
            file.truncate(SIZE)
    return batches


def read_cifar10(batches: Path):
    return Cifar10().load(Files(batches.parent.parent, batches.parent / "c", download=False))


def packed(batches: Path, name: str, prefix: str = "cifar-10-batches-bin/") -> Path:
    """Replace the folder by an archive."""
    path = batches.parent / name
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for batch in BATCHES:
            archive.add(batches / batch, prefix + batch)
    shutil.rmtree(batches)
    return path


def check_cifar10(data) -> None:
    assert (data.train.x.shape, data.test.x.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert data.train.x.dtype == np.uint8
    assert data.train.y[::10_000].tolist() == [0, 1, 2, 3, 4]
    assert data.test.y[0] == 5
    assert data.train.x[::10_000, 0, 0, 0].tolist() == [7] * 5
    assert int(data.train.x.sum(dtype=np.int64)) == 35


def test_a_folder_is_read_in_the_order_of_its_batches(batches: Path) -> None:
    check_cifar10(read_cifar10(batches))


def test_an_archive_is_read_in_place_and_writes_nothing(batches: Path) -> None:
    # Its members' names lead out of the folder, where nothing may be written.
    path = packed(batches, "cifar-10-binary.tar.gz", "../../../")
    check_cifar10(read_cifar10(batches))
    assert os.listdir(path.parent) == [path.name]
    assert os.listdir(path.parent.parent.parent) == ["data"]


def no_file(batch: Path) -> None:
    batch.unlink()
    batch.mkdir()


def other_label(batch: Path) -> None:
    with batch.open("r+b") as file:
        file.write(bytes([10]))


def archive_of(content: bytes, name: str = "cifar-10-binary.tar.xz") -> Callable[[Path], None]:
    def instead(batch: Path) -> None:
        shutil.rmtree(batch.parent)
        (batch.parent.parent / name).write_bytes(content)

    return instead


def truncated_archive(batch: Path) -> None:
    path = packed(batch.parent, "cifar-10-binary.tar.gz")
    os.truncate(path, path.stat().st_size // 2)


HUGE = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
HUGE.size = 1 << 40  # refused before it is read


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (Path.unlink, r"lacks data_batch_2\.bin"),
        (no_file, r"data_batch_2\.bin: cannot be read"),
        (other_label, "labels go from 0 to 10"),
        *(
            (partial(os.truncate, length=size), rf"data_batch_2\.bin: has {size} bytes, not {SIZE}")
            for size in (SIZE - 1, SIZE + 1, SIZE + 5000)
        ),
        (truncated_archive, r"cifar-10-binary\.tar\.gz"),
        (archive_of(b""), r"cifar-10-binary\.tar\.xz"),
        (archive_of(b"nonsense" * 100), r"cifar-10-binary\.tar\.xz"),
        (archive_of(gzip.compress(HUGE.tobuf()), "cifar-10-binary.tar.gz"), f"has {HUGE.size} "),
    ],
)
def test_damaged_batches_are_refused_by_name(
    spoil: Callable[[Path], object], named: str, batches: Path
) -> None:
    spoil(batches / BATCHES[1])
    with pytest.raises(DataError, match=named) as caught:
        read_cifar10(batches)
    assert "\n" not in str(caught.value)


def test_the_real_archive_has_the_published_bytes(data_root: Path) -> None:
    data = Cifar10().load(Files(data_root, download=False))
    for number, expected in enumerate(SHA1):
        raw, start = (data.train, number * 10_000) if number < 5 else (data.test, 0)
        x, y = raw.x[start : start + 10_000], raw.y[start : start + 10_000]
        records = np.concatenate([y[:, None].astype(np.uint8), x.reshape(10_000, -1)], axis=1)
        assert hashlib.sha1(io.BytesIO(records).getbuffer()).hexdigest() == expected
    mean = data.train.x.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(mean, [0.49140, 0.48216, 0.44653], atol=1e-5)
