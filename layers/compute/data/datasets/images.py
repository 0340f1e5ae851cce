"""Data sets of images: MNIST, Fashion-MNIST, CIFAR-10, SVHN and scikit-learn's digits.

Files are read where they are, and never unpacked. A file is checked for its exact length, so that a
damaged or wrong one is an error that names it.
"""

from __future__ import annotations

import gzip
import lzma
import math
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, FromSettings, Raw, held_out
from layers.compute.data.datasets.arrays import DAMAGED, read_npz, take
from layers.compute.data.files import Files, Remote, damaged
from layers.compute.data.targets import Targets
from layers.compute.errors import DataError, one_line
from layers.settings import Decay

_CLASSES = 10
_TARGETS = Targets("classes", _CLASSES)
_GREY = (28, 28)
_COLOUR = (3, 32, 32)

Checksum = tuple[str, int]
"""A file's SHA-256 in hex and its length in bytes."""


class IdxSet:
    """A data set of four IDX files: images of 28 x 28 and labels, for training and for testing.

    Attributes:
        name: of the data set, and of its folder.
        mirrors: the addresses that serve its files.
        train_x, train_y, test_x, test_y: the files' checksums.
    """

    name: ClassVar[str]
    mirrors: ClassVar[tuple[str, ...]]
    train_x: ClassVar[Checksum]
    train_y: ClassVar[Checksum]
    test_x: ClassVar[Checksum]
    test_y: ClassVar[Checksum]

    def load(self, files: Files) -> Dataset:
        """Return both splits, and download the files that are missing; see `DatasetSource.load`."""
        return Dataset(
            name=self.name,
            train=self._split(files, "train", self.train_x, self.train_y),
            test=self._split(files, "t10k", self.test_x, self.test_y),
            targets=_TARGETS,
            shape=(1, *_GREY),
        )

    def _split(self, files: Files, split: str, x_sum: Checksum, y_sum: Checksum) -> Raw:
        images = self._find(files, f"{split}-images-idx3-ubyte", x_sum)
        labels = self._find(files, f"{split}-labels-idx1-ubyte", y_sum)
        x, y = read_idx(images, _GREY), read_idx(labels, ())
        if len(x) != len(y):
            raise DataError(
                f"{images} has {len(x)} images, but {labels} has {len(y)} labels; "
                "delete both and fetch them again"
            )
        return Raw(x[:, np.newaxis], y.astype(np.int64))

    def _find(self, files: Files, stem: str, checksum: Checksum) -> Path:
        packed = f"{stem}.gz"
        remote = Remote(packed, tuple(mirror + packed for mirror in self.mirrors), *checksum)
        return files.find(self.name, (packed, stem), remote)


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Return the array of an IDX file of unsigned bytes, with or without gzip, uint8 (n, *shape).

    Format: http://yann.lecun.com/exdb/mnist/

    Raises:
        DataError: the file has another header, or another number of bytes than its header says.
    """
    dimensions = 1 + len(shape)
    expected_magic = 0x0800 | dimensions  # 8 means unsigned bytes
    try:
        with _open(path) as file:
            header = file.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions:
                raise DataError(f"{path}: {len(header)} bytes are too few for an IDX file")
            magic, count, *rest = struct.unpack(f">{1 + dimensions}I", header)
            if magic != expected_magic:
                raise DataError(
                    f"{path}: begins with {magic:#010x}, not with the IDX magic number "
                    f"{expected_magic:#010x} of {dimensions}-dimensional bytes"
                )
            if tuple(rest) != shape:
                raise DataError(f"{path}: holds samples of shape {tuple(rest)}, not {shape}")
            expected_bytes = count * math.prod(shape)
            # One byte more, to see whether the file is too long.
            body = _read_at_most(file, expected_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"cannot be read ({error})") from error
    if len(body) != expected_bytes:
        found = "more" if len(body) > expected_bytes else str(len(body))
        raise damaged(path, f"announces {expected_bytes} bytes and holds {found}")
    return np.frombuffer(body, dtype=np.uint8).reshape((count, *shape))


def _read_at_most(file: IO[bytes], limit_bytes: int) -> bytearray:
    # Piece by piece: memory is not allocated for a length that the header only claims.
    body = bytearray()
    while piece := file.read(min(1 << 20, limit_bytes - len(body))):
        body += piece
    return body


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if compressed else path.open("rb")


@dataclass(frozen=True)
class Mnist(IdxSet):
    """Samples of shape (1, 28, 28), uint8 from 0 (paper) to 255 (ink); 10 classes.

    60,000 and 10,000 handwritten digits (LeCun et al., 1998).
    """

    name = "mnist"
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    train_x = ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422)
    train_y = ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881)
    test_x = ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877)
    test_y = ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542)


@dataclass(frozen=True)
class FashionMnist(IdxSet):
    """Samples of shape (1, 28, 28), uint8 from 0 (background) to 255; 10 classes.

    60,000 and 10,000 photographs of garments (Xiao et al., 2017).
    """

    name = "fashion-mnist"
    mirrors = (
        # Without TLS, as its authors serve it; the SHA-256 shows whether it is the right file.
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    )
    train_x = ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880)
    train_y = ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515)
    test_x = ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102)
    test_y = ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148)


_RECORDS = 10_000
_RECORD_BYTES = 1 + 3 * 32 * 32
_FOLDER = "cifar-10-batches-bin"
_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_CIFAR10 = Remote(
    "cifar-10-binary.tar.gz",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
    ),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170_052_171,
)


@dataclass(frozen=True)
class Cifar10:
    """Samples of shape (3, 32, 32), red, green, blue, uint8 from 0 to 255; 10 classes.

    50,000 and 10,000 photographs (Krizhevsky, 2009). The files are the binary version: the folder
    `cifar-10-batches-bin`, or an archive of it, `cifar-10-binary.tar.gz` or `.tar.xz`.
    Format: https://www.cs.toronto.edu/~kriz/cifar.html
    """

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        names = (_FOLDER, _CIFAR10.name, "cifar-10-binary.tar.xz")
        path = files.find("cifar-10", names, _CIFAR10)
        x = np.empty((len(_BATCHES), _RECORDS, *_COLOUR), dtype=np.uint8)
        y = np.empty((len(_BATCHES), _RECORDS), dtype=np.int64)
        missing = set(_BATCHES)
        for name, content in _in_folder(path) if path.is_dir() else _in_archive(path):
            _check_bytes(len(content), f"{path}: {name}")
            records = np.frombuffer(content, dtype=np.uint8).reshape(_RECORDS, _RECORD_BYTES)
            number = _BATCHES.index(name)
            y[number] = records[:, 0]
            x[number] = records[:, 1:].reshape(-1, *_COLOUR)
            missing.discard(name)
        if missing:
            raise damaged(path, f"lacks {', '.join(sorted(missing))}")
        return Dataset(
            name="cifar-10",
            train=Raw(x[:-1].reshape(-1, *_COLOUR), y[:-1].reshape(-1)),
            test=Raw(x[-1], y[-1]),
            targets=_TARGETS,
            shape=_COLOUR,
        )


def _check_bytes(found: int, where: str) -> None:
    if found != _RECORDS * _RECORD_BYTES:
        raise damaged(where, f"has {found} bytes, not {_RECORDS * _RECORD_BYTES}")


def _in_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in _BATCHES:
        if not (folder / name).exists():
            continue
        try:
            with (folder / name).open("rb") as file:
                _check_bytes(os.fstat(file.fileno()).st_size, f"{folder}: {name}")
                content = file.read()
        except OSError as error:
            raise DataError(f"{folder / name}: cannot be read ({error.strerror})") from error
        yield name, content


def _in_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    # Members are read into memory one by one, and nothing is written to disk.
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name not in _BATCHES or not member.isfile():
                    continue
                _check_bytes(member.size, f"{path}: {member.name}")
                file = archive.extractfile(member)
                yield name, file.read() if file is not None else b""
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise damaged(path, f"cannot be read ({error})") from error


_SVHN_FROM = "http://ufldl.stanford.edu/housenumbers/"
_SVHN_TRAIN = Remote(
    "train_32x32.mat",
    (f"{_SVHN_FROM}train_32x32.mat",),
    "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    182_040_794,
)
_SVHN_TEST = Remote(
    "test_32x32.mat",
    (f"{_SVHN_FROM}test_32x32.mat",),
    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    64_275_384,
)


@dataclass(frozen=True)
class Svhn(FromSettings):
    """Samples of shape (3, 32, 32), red, green, blue, uint8 from 0 to 255; 10 classes, the digits.

    73,257 and 26,032 cropped digits of house numbers (Netzer et al., 2011). The files are
    `train_32x32.mat` and `test_32x32.mat` as they are published (their label 10 is the digit 0), or
    `svhn_train_first1083.npz` (x, y), the first 1,083 training images. The latter has no test
    images, so `hold_out` must be set.

    Attributes:
        hold_out: the share of each digit's training images, the last ones, that is tested on
            instead of the published test images; 0: the published split.
    """

    hold_out: Decay = 0.0

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        path = files.find("svhn", (_SVHN_TRAIN.name, "svhn_train_first1083.npz"), _SVHN_TRAIN)
        train = _svhn_excerpt(path) if path.suffix == ".npz" else _svhn_mat(path)
        if self.hold_out:
            test = held_out(train.y, self.hold_out)
            splits = Raw(train.x[~test], train.y[~test]), Raw(train.x[test], train.y[test])
        elif path.suffix == ".npz":
            raise DataError(
                f"{path}: has no test images; set hold_out, e.g. data: {{name: svhn, "
                f"hold_out: 0.2}}, or put {_SVHN_TRAIN.name} and {_SVHN_TEST.name} of "
                f"{_SVHN_FROM} beside it"
            )
        else:
            splits = train, _svhn_mat(files.find("svhn", (_SVHN_TEST.name,), _SVHN_TEST))
        return Dataset("svhn", *splits, targets=_TARGETS, shape=_COLOUR)


def _svhn_mat(path: Path) -> Raw:
    # Imported here: no other data set needs it.
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        arrays = loadmat(path, variable_names=["X", "y"])
    except (*DAMAGED, IndexError, AttributeError, MatReadError) as error:
        raise damaged(path, f"cannot be read ({one_line(error)})") from error
    arrays = {name: array for name, array in arrays.items() if not name.startswith("__")}
    x = take(arrays, "X", "u", (32, 32, 3, None), str(path))
    y = take(arrays, "y", "uif", (None, 1), str(path))[:, 0].astype(np.int64)
    return _svhn_split(x.transpose(3, 2, 0, 1), y, 1, 10, path)


def _svhn_excerpt(path: Path) -> Raw:
    arrays = read_npz(path)
    x = take(arrays, "x", "u", (None, 32, 32, 3), str(path))
    y = take(arrays, "y", "ui", (None,), str(path)).astype(np.int64)
    return _svhn_split(x.transpose(0, 3, 1, 2), y, 0, 9, path)


def _svhn_split(
    x: npt.NDArray[Any], y: npt.NDArray[np.int64], lowest: int, highest: int, path: Path
) -> Raw:
    if x.dtype != np.uint8 or len(x) != len(y) or not len(x):
        raise damaged(
            path,
            f"has {len(x)} images of {x.dtype} and {len(y)} labels; the images must be uint8, and "
            "as many as the labels",
        )
    if y.min() < lowest or y.max() > highest:
        raise damaged(path, f"labels go from {y.min()} to {y.max()}, not {lowest} to {highest}")
    return Raw(np.ascontiguousarray(x), y % 10)


@dataclass(frozen=True)
class Digits:
    """Samples of shape (1, 28, 28), uint8 from 0 (paper) to 16 (ink); 10 classes.

    The handwritten digits that come with scikit-learn, without a download. Each pixel of the 8 x 8
    originals becomes a square of 3 x 3, inside a margin of 2, so that the samples fit models for
    MNIST. Every fifth sample of a class is for testing: 1,442 training and 355 test samples.

    Source: E. Alpaydin and C. Kaynak, UCI's Optical Recognition of Handwritten Digits, 1998.
    """

    def load(self, files: Files) -> Dataset:
        """Return both splits; `files` is not used."""
        small, y = _of_scikit_learn()
        square = np.ones((1, 3, 3), dtype=np.uint8)
        large = np.kron(small, square)
        x = np.pad(large, ((0, 0), (2, 2), (2, 2)))[:, np.newaxis]
        test = np.zeros(len(y), dtype=bool)
        for label in range(_CLASSES):
            test[np.flatnonzero(y == label)[4::5]] = True
        return Dataset(
            name="digits",
            train=Raw(x[~test], y[~test]),
            test=Raw(x[test], y[test]),
            targets=_TARGETS,
            shape=x.shape[1:],
        )


def _of_scikit_learn() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the digits (n, 8, 8), uint8, and their labels (n,), int64.

    The file is read without scikit-learn, whose import takes longer than a short run.

    Raises:
        DataError: scikit-learn is not installed, or has no such file.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("digits: scikit-learn, which brings them, is not installed")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    except OSError as error:
        raise DataError(f"digits: {path} cannot be read: {error.strerror or error}") from None
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
