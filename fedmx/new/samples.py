"""Sample data for a project: real samples, from those that come with scikit-learn."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

_COLUMNS = ("sepal_length", "sepal_width", "petal_length", "petal_width", "species")
_IMAGES_PER_LABEL = 30
_INK = 16  # the largest value of a pixel in scikit-learn's digits


def write_flowers(folder: Path) -> None:
    """Write `flowers.csv`: 150 flowers (Fisher's iris), four lengths in cm and the species."""
    from sklearn.datasets import load_iris

    flowers = load_iris()
    with (folder / "flowers.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        for lengths, label in zip(flowers.data, flowers.target, strict=True):
            table.writerow([*(float(one) for one in lengths), flowers.target_names[label]])


def write_images(folder: Path) -> None:
    """Write `images/LABEL/NUMBER.png`: 8 x 8 images of handwritten digits, 30 of each."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for label in range(10):
        to = folder / "images" / str(label)
        to.mkdir(parents=True)
        for number, index in enumerate(np.flatnonzero(digits.target == label)[:_IMAGES_PER_LABEL]):
            pixels = np.rint(digits.images[index] * (255 / _INK)).astype(np.uint8)
            Image.fromarray(pixels).save(to / f"{number:02}.png")
