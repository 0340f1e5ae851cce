"""Image files in folders of classes, and an image as an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, FromSettings, drawn_out
from layers.compute.data.datasets.arrays import from_arrays
from layers.compute.data.files import Files
from layers.compute.errors import DataError, one_line
from layers.extras import install
from layers.settings import Count, Fraction

if TYPE_CHECKING:
    from PIL.Image import Image

Size = tuple[Count, Count]
_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_DEEP = ("I", "I;16", "I;16B", "I;16L", "F")


@dataclass(frozen=True)
class ImageFolder(FromSettings):
    """The images of a folder that has a folder for each class, as PyTorch's `ImageFolder`.

    Samples are uint8 (1, height, width) if all images are grey, and (3, height, width) if not. The
    sorted names of the folders are the classes. A folder that has `train` and `test` has the
    classes in each of these. Needs the extra `images`.

    Attributes:
        path: of the folder.
        size: height and width that all images get; null: all images have one size.
        test: the share of each class that is for testing, drawn once, unless there is a `test`.
    """

    path: str
    size: Size | None = None
    test: Fraction = 0.2

    def load(self, files: Files) -> Dataset:
        """Return both splits, if `files` allows to name a file. See `DatasetSource.load`."""
        path = files.chosen("images", self.path)
        published = (path / "train").is_dir() and (path / "test").is_dir()
        splits = [path / "train", path / "test"] if published else [path]
        names = _folders(splits[0])
        if not names:
            raise DataError(f"{splits[0]}: has no folders; put the images of each class into one")
        for other in sorted({*_folders(splits[-1])} - {*names}):
            raise DataError(f"{splits[-1] / other}: there is no class {other} in {splits[0]}")
        found = [
            [
                (label, file)
                for label, name in enumerate(names)
                for file in sorted((split / name).rglob("*"))
                if file.suffix.lower() in _ENDINGS
            ]
            for split in splits
        ]
        y = [np.array([label for label, _ in split], np.int64) for split in found]
        for label, name in enumerate(names):
            if label not in y[0]:
                raise DataError(f"{splits[0] / name}: has no image ({', '.join(_ENDINGS)})")
        x = stacked([_read(file, self.size) for split in found for _, file in split], str(path))
        if published:
            cut = len(y[0])
            parts = x[:cut], y[0], x[cut:], y[1]
        else:
            test = drawn_out(y[0], self.test)
            parts = x[~test], y[0][~test], x[test], y[0][test]
        dataset = from_arrays(*parts, classes=len(names), name=str(path))
        return replace(dataset, names=tuple(names))


def _folders(path: Path) -> list[str]:
    if not path.is_dir():
        raise DataError(f"{path}: is not a folder; give one with a folder for each class")
    return sorted(one.name for one in path.iterdir() if one.is_dir() and one.name[0] != ".")


def _read(file: Path, size: Size | None) -> npt.NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            f"{file}: images need Pillow, which cannot be imported ({error}); " + install("images")
        ) from None
    try:
        with Image.open(file) as image:
            return pixels(image, size, str(file))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{file}: cannot be read ({one_line(error)})") from error


def pixels(image: Image, size: Size | None, what: str) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, (1, height, width) if it is grey, and (3, ...) if not.

    Args:
        image: the image.
        size: height and width that it gets; None: it keeps its own.
        what: what messages call it.

    Raises:
        DataError: its pixels have more than 8 bits.
    """
    if image.mode in _DEEP:
        raise DataError(f"{what}: has pixels of more than 8 bits; convert it to 8 bits")
    plain = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    if size is not None:
        plain = plain.resize((size[1], size[0]))
    array = np.asarray(plain, np.uint8)
    return array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)


def stacked(images: Sequence[npt.NDArray[np.uint8]], what: str) -> npt.NDArray[Any]:
    """Return images as one array; grey ones get three channels if others have them.

    Args:
        images: (channels, height, width) each.
        what: what messages call them.

    Raises:
        DataError: they differ in their size.
    """
    channels = max((len(one) for one in images), default=1)
    sizes = sorted({one.shape[1:] for one in images})
    if len(sizes) > 1:
        raise DataError(
            f"{what}: has images of {len(sizes):,} sizes, from {sizes[0]} to {sizes[-1]}; give "
            "size: [HEIGHT, WIDTH]"
        )
    return np.stack([np.broadcast_to(one, (channels, *sizes[0])) for one in images])
