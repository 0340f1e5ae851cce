"""Digits: 1,797 handwritten digits that come with scikit-learn, without any download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.files import Files

_CLASSES = 10
_EVERY = 5
_ENLARGE = 3
_MARGIN = 2


@dataclass(frozen=True)
class Digits:
    """Samples of shape (1, 28, 28), uint8 from 0 (paper) to 16 (ink); 10 classes.

    Each pixel of the 8 x 8 originals becomes a square of 3 x 3, inside a margin of 2, so that the
    samples fit models made for MNIST. Every fifth sample of a class is for testing: 1,442 training
    and 355 test samples.

    Source: E. Alpaydin and C. Kaynak, UCI's Optical Recognition of Handwritten Digits, 1998.
    """

    def load(self, files: Files) -> Dataset:
        """Return both splits; `files` is not used."""
        # Imported here: scikit-learn takes a second, and no other data set needs it.
        from sklearn.datasets import load_digits

        small, y = load_digits(return_X_y=True)
        square = np.ones((1, _ENLARGE, _ENLARGE), dtype=np.uint8)
        large = np.kron(small.reshape(-1, 8, 8).astype(np.uint8), square)
        x = np.pad(large, ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN)))[:, np.newaxis]
        y = y.astype(np.int64)
        test = np.zeros(len(y), dtype=bool)
        for label in range(_CLASSES):
            test[np.flatnonzero(y == label)[_EVERY - 1 :: _EVERY]] = True
        return Dataset(
            name="digits",
            train=Raw(x[~test], y[~test]),
            test=Raw(x[test], y[test]),
            classes=_CLASSES,
            shape=x.shape[1:],
        )
