"""The data of the tasks: each function returns arrays, made or from scikit-learn's own files."""

from __future__ import annotations

import numpy as np
from sklearn import datasets

Arrays = dict[str, np.ndarray]
PLACES = 64  # characters of a sample


def split(x: np.ndarray, y: np.ndarray, users: np.ndarray, every: int = 5) -> Arrays:
    """Return every fifth sample as test samples, and the others as training samples."""
    test = np.arange(len(x)) % every == 0
    given = {"x": x, "y": y, "users": users}
    return {
        f"{name}_{part}": array[rows]
        for name, array in given.items()
        for part, rows in (("train", ~test), ("test", test))
    }


def diabetes() -> Arrays:
    """A disease's progression after a year, of 442 patients; each of 4 sites has an age group."""
    x, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    age = np.argsort(np.argsort(x[:, 0], kind="stable"))
    sites = age * 4 // len(x)
    return split(x.astype("f"), (y / 100).astype("f"), sites)


def topics() -> Arrays:
    """Texts as counts of 40 words, each with some of 6 topics."""
    x, y = datasets.make_multilabel_classification(
        1200, 40, n_classes=6, n_labels=2, random_state=3
    )
    return split(np.sqrt(x).astype("f"), y, np.arange(len(x)) // 5 % 10)


def rare_digits() -> Arrays:
    """Handwritten digits; each class has fewer samples than the one before, 170 down to 10."""
    digits = datasets.load_digits()
    wanted = np.linspace(170, 10, 10).astype(int)
    rows = np.concatenate([np.flatnonzero(digits.target == k)[:n] for k, n in enumerate(wanted)])
    rows = np.random.default_rng(0).permutation(rows)
    x = digits.images[rows, None].astype(np.uint8)
    return split(x, digits.target[rows], np.arange(len(rows)) // 5 % 10)


def characters() -> Arrays:
    """The descriptions of scikit-learn's data sets, as sequences of characters and the next ones.

    Each description is a user: its client has text about one subject.
    """
    loaders = [getattr(datasets, f"load_{name}") for name in NAMES]
    texts = [
        "".join(one if " " <= one <= "~" else "\n" for one in load().DESCR) for load in loaders
    ]
    x, users = [], []
    for user, text in enumerate(texts):
        numbers = np.array([CHARACTERS.index(one) for one in text])
        starts = range(0, len(numbers) - PLACES - 1, PLACES // 2)
        x += [numbers[start : start + PLACES + 1] for start in starts]
        users += [user] * len(starts)
    both = np.stack(x)
    return split(both[:, :-1].astype(np.int32), both[:, 1:], np.array(users))


NAMES = ("iris", "digits", "wine", "breast_cancer", "diabetes", "linnerud")
CHARACTERS = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
