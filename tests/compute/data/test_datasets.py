"""Data sets: read as they were published, found where they are, refused when damaged."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.datasets import DATASETS, Dataset, Raw
from layers.compute.data.datasets.images import Digits, FashionMnist, Mnist, read_idx
from layers.compute.data.files import Files, default_cache
from layers.compute.errors import DataError

HEADER = struct.pack(">4I", 0x0803, 2, 3, 3)
BODY = bytes(range(18))


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    return tmp_path / "images-idx3-ubyte"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_idx_file_is_read_with_and_without_gzip(idx: Path, pack) -> None:
    idx.write_bytes(pack(HEADER + BODY))
    np.testing.assert_array_equal(
        read_idx(idx, (3, 3)), np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    )


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
    # Not the first bytes, which say that it is gzip, and not the header's unused ones.
    if flip >= 10:
        content[flip % (len(content) - 10) + 10] ^= 1 << bit
    path.write_bytes(content[:cut] if flip < 10 else content)
    try:
        pixels = read_idx(path, (3, 3))
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert pixels.tobytes() == BODY


def test_digits_fit_a_model_made_for_mnist_and_lose_nothing() -> None:
    from sklearn.datasets import load_digits

    data = Digits().load(Files())
    assert (data.shape, data.classes) == ((1, 28, 28), 10)
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


def test_a_data_folder_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"FEDMX_DATA is .*nowhere, which is not a folder"):
        Mnist().load(Files(download=False))
    with pytest.raises(DataError, match=r"the data folder is .*gone, which is not a folder"):
        Mnist().load(Files(tmp_path / "gone", download=False))


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMX_CACHE", "/cache/mine")
    assert default_cache() == Path("/cache/mine")
    monkeypatch.delenv("FEDMX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_cache() == Path("/cache/fedmx")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "fedmx"


def test_images_and_labels_of_unequal_number_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    images = struct.pack(">4I", 0x0803, 2, 28, 28) + bytes(2 * 784)
    (folder / "train-images-idx3-ubyte").write_bytes(images)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x0801, 3) + bytes(3))
    with pytest.raises(DataError, match=r"has 2 images, but .* has 3 labels"):
        Mnist().load(Files(tmp_path, tmp_path, download=False))


def test_a_split_whose_parts_do_not_fit_cannot_be_made() -> None:
    x, y = np.zeros((3, 4)), np.zeros(3, np.int64)
    with pytest.raises(DataError, match="y has shape"):
        Raw(x, y[:2])
    with pytest.raises(DataError, match="users has shape"):
        Raw(x, y, y[:1])
    with pytest.raises(DataError, match=r"a test sample has shape \(4,\), not \(2, 2\)"):
        Dataset("mine", Raw(x.reshape(3, 2, 2), y), Raw(x, y), 1, (2, 2))


def test_data_are_loaded_without_mxnet() -> None:
    script = (
        "import sys; import layers.compute.data.datasets, layers.compute.data.partitions, "
        "layers.compute.data.dataset; assert 'mxnet' not in sys.modules; "
        "assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


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
