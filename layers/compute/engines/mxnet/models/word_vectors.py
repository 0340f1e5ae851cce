"""Word vectors: from a GloVe text file, or random ones that are the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layers.compute.errors import ComputeError

PADDING = 0
# About the deviation of GloVe's numbers.
DEVIATION = 0.4
_LONGEST_LINE = 1 << 16

Vectors = npt.NDArray[np.float32]


def random_vectors(words: int, dimensions: int, seed: int) -> Vectors:
    """Return random normal vectors, float32 (words, dimensions), with deviation 0.4.

    The vector of token 0, the padding, is zero. A word's vector does not depend on how many words
    there are.
    """
    rng = np.random.default_rng([seed, dimensions])
    vectors = (DEVIATION * rng.standard_normal((words, dimensions))).astype(np.float32)
    vectors[PADDING] = 0
    return vectors


def read_glove(path: str, words: Sequence[str], dimensions: int) -> dict[int, Vectors]:
    """Return the vector, float32 (dimensions,), of each token whose word is in the file.

    A line of the file is a word and `dimensions` numbers, separated by spaces
    (https://nlp.stanford.edu/projects/glove/).

    Raises:
        ComputeError: the file cannot be read, the line of one of the words is something else, or
            it has none of the words.
    """
    file = Path(path).expanduser()
    tokens = {word: token for token, word in enumerate(words) if token != PADDING}
    found: dict[int, Vectors] = {}
    try:
        with file.open("rb") as lines:
            number = 0
            while line := lines.readline(_LONGEST_LINE):
                number += 1
                word, *numbers = line.decode("utf-8").rstrip("\n").split(" ")
                if word not in tokens:
                    continue
                vector = _vector(numbers)
                if vector is None or len(vector) != dimensions:
                    raise ComputeError(
                        f"{file}: line {number} is not a word and {dimensions} numbers; "
                        "give a GloVe text file, and its dimensions"
                    )
                found[tokens[word]] = vector
    except OSError as error:
        raise ComputeError(
            f"{file}: the word vectors cannot be read ({error.strerror}); download them from "
            "https://nlp.stanford.edu/projects/glove/, or leave glove out"
        ) from error
    except UnicodeDecodeError as error:
        raise ComputeError(f"{file}: line {number} is not UTF-8; give a GloVe text file") from error
    if not found:
        raise ComputeError(
            f"{file}: has a vector for none of the {len(words)} words; give another file, or leave "
            "glove out"
        )
    return found


def _vector(numbers: Sequence[str]) -> Vectors | None:
    try:
        vector = np.array([float(number) for number in numbers], np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None
