"""The LSTM for Sentiment140, and its word vectors: random, or from a GloVe text file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.errors import ComputeError

UNITS = 100


def lstm(
    classes: int = 2,
    words: tuple[str, ...] = (),
    vocabulary: int = 10_000,
    glove: str | None = None,
    dimensions: int = 300,
    seed: int = 0,
) -> Any:
    """Return an LSTM for inputs (25,) of tokens: one output, with sigmoid cross-entropy.

    Word vectors, two LSTM layers of 100 units, and, on the output of the last token, a dense layer
    of 30 with ReLU and a dense layer of one unit. 244,661 parameters are trainable, with Gluon's
    two biases for each gate. The word vectors are a constant, which server and clients build and
    never send. In MXNet, training of recurrent layers can take longer than in PyTorch: where that
    matters, write them as a PyTorch module, and use ``compute.engine: torch``.

    Source: the setting of Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx),
    2020, appendix C.1.

    Args:
        classes: must be 2; set from the data set.
        words: the word of each token, which `glove` needs; set from the data set.
        vocabulary: how many tokens have a vector.
        glove: a GloVe text file, with a word and its numbers on each line. Words that are not in
            the file get random vectors; without a file, all words do.
        dimensions: how many numbers a word's vector has.
        seed: for the random vectors.

    Raises:
        ComputeError: a setting is not allowed, the data have more words than `vocabulary`, or
            `glove` cannot be read or used.
    """
    if classes != 2:
        raise ComputeError(f"model lstm: it is for two classes, but the data have {classes}")
    if vocabulary < 2 or dimensions < 1:
        raise ComputeError(
            f"model lstm: vocabulary={vocabulary} must be at least 2, "
            f"dimensions={dimensions} at least 1"
        )
    if len(words) > vocabulary:
        raise ComputeError(
            f"model lstm: vocabulary={vocabulary} is less than the data's {len(words)} words; "
            "raise it, or lower the data set's vocabulary"
        )
    vectors = random_vectors(vocabulary, dimensions, seed)
    if glove is not None:
        if not words:
            raise ComputeError(
                "model lstm: glove needs the word of each token, which this data set does not have "
                "(sentiment140 has them); leave glove out"
            )
        for token, vector in read_glove(glove, words, dimensions).items():
            vectors[token] = vector
    return _block(vectors)


def _block(table: Vectors) -> Any:
    import mxnet as mx
    from mxnet.gluon import nn, rnn

    rows, columns = table.shape

    class Lstm(mx.gluon.HybridBlock):  # type: ignore[misc]
        """Word vectors, LSTM layers and two dense layers."""

        loss = "sigmoid"

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.vectors = self.params.get_constant("vectors", table)
                self.lstm = rnn.LSTM(UNITS, num_layers=2, layout="NTC", input_size=columns)
                self.hidden = nn.Dense(30, activation="relu")
                self.output = nn.Dense(1)

        def hybrid_forward(self, F: Any, tokens: Any, *, vectors: Any) -> Any:
            x = F.Embedding(tokens, vectors, input_dim=rows, output_dim=columns)
            last = F.slice_axis(self.lstm(x), axis=1, begin=-1, end=None)
            return self.output(self.hidden(last))

    return Lstm()


PADDING = 0
DEVIATION = 0.4  # about that of GloVe's numbers
_LONGEST_LINE = 1 << 16

Vectors = npt.NDArray[np.float32]


def random_vectors(words: int, dimensions: int, seed: int) -> Vectors:
    """Return random normal vectors, float32 (words, dimensions), with deviation 0.4.

    The vector of token 0, the padding, is zero. A word's vector does not depend on the number of
    words.
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
        ComputeError: the file cannot be read, the line of a word has another format, or the file
            has none of the words.
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
