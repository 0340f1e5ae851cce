"""Data drawn from the seed, without files: FedProx's synthetic(alpha, beta), and blobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from layers.arithmetic import exp, power
from layers.compute.data.dataset import Dataset, FromSettings, Raw
from layers.compute.data.files import Files
from layers.compute.data.targets import Targets
from layers.compute.errors import DataError
from layers.settings import Count, NotNegative, WholeNumber

FEATURES, CLASSES = 60, 10
LEAST = 50  # samples of a client; the drawn number is added
TRAINED = 0.9  # the share of a client's samples that is for training
CLIENT, SHARED = 0, 1  # random streams
MOST_SIZES = 10_000_000  # of blobs, of 8 bytes each

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Source:
    """The distribution of a client's samples.

    Attributes:
        mean: v, the mean of the inputs, float64 (60,).
        weights: W of the labelling model, float64 (60, 10).
        bias: b of the labelling model, float64 (10,).
    """

    mean: Values
    weights: Values
    bias: Values


@dataclass(frozen=True)
class Synthetic(FromSettings):
    """Samples of 60 numbers in 10 classes; each client has its own inputs and labelling model.

    Client k labels x with argmax(softmax(W_k x + b_k)). Each number of W_k and b_k is drawn from
    N(u_k, 1), u_k from N(0, alpha^2); x from N(v_k, Sigma), where Sigma is diagonal with
    Sigma_jj = j^-1.2, and each number of v_k from N(B_k, 1), B_k from N(0, beta^2). So the clients'
    models differ with alpha, and their inputs with beta. A client has 50 + floor(e^z) samples, z
    from N(4, 2^2): few clients have most of the samples.

    The first 90 % of a client's samples are for training, the others for testing; the users are the
    clients. With the partition `by-user` each client has its own samples, and the server tests on
    the test samples of all clients. A client's samples depend only on the seed and its number.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx), 2020, section
    5.1, and the authors' `generate_synthetic.py`. The paper writes N(0, alpha) and N(0, beta);
    here, as in the code, alpha and beta are deviations. The paper calls the numbers of samples a
    power law; here they are the code's. q-FFL (Li et al., 2020) has 100 such clients.

    Attributes:
        alpha: the deviation of the mean of a client's model.
        beta: the deviation of the mean of a client's inputs.
        iid: whether all clients share one model, W and b from N(0, 1), and inputs have mean 0;
            alpha and beta are not used then.
        clients: how many clients there are; set from the experiment.
        seed: of all draws; derived from the experiment's.
    """

    alpha: NotNegative = 1.0
    beta: NotNegative = 1.0
    iid: bool = False
    clients: Count = 30
    seed: WholeNumber = 0

    def load(self, files: Files) -> Dataset:
        """Return both splits, client after client; `files` is not used."""
        made = [self.client(number) for number in range(self.clients)]
        trained = [_trained(y) for _, y in made]
        return Dataset(
            name="synthetic",
            train=_joined([(x[:n], y[:n]) for (x, y), n in zip(made, trained, strict=True)]),
            test=_joined([(x[n:], y[n:]) for (x, y), n in zip(made, trained, strict=True)]),
            targets=Targets("classes", CLASSES),
            shape=(FEATURES,),
        )

    def training(self, number: int) -> Raw:
        """Return a client's training samples, without those of others."""
        x, y = self.client(number)
        return Raw(x[: _trained(y)], y[: _trained(y)])

    def client(self, number: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return a client's samples, float32 (n, 60), and labels, int64 (n,), both splits."""
        size, source, rng = self._begun(number)
        features = np.arange(1, FEATURES + 1, dtype=np.float64)
        x = rng.standard_normal((size, FEATURES))
        x *= np.sqrt(power(features, -1.2))
        x += source.mean
        # No matrix product: its order of summation depends on the CPU.
        outputs = np.tile(source.bias, (size, 1))
        for inputs, weights in zip(x.T, source.weights, strict=True):
            outputs += inputs[:, np.newaxis] * weights
        return x.astype(np.float32), outputs.argmax(axis=1)

    def source(self, number: int) -> Source:
        """Return the distribution of a client's samples."""
        return self._begun(number)[1]

    def _begun(self, number: int) -> tuple[int, Source, np.random.Generator]:
        """Return a client's number of samples, their source, and the generator for the rest."""
        rng = np.random.default_rng([self.seed, CLIENT, number])
        size = LEAST + int(exp(4 + 2 * rng.standard_normal(1))[0])
        if self.iid:
            shared = np.random.default_rng([self.seed, SHARED])
            return size, Source(np.zeros(FEATURES), *_model(0.0, shared)), rng
        of_model, of_inputs = rng.standard_normal(2) * (self.alpha, self.beta)
        model = _model(of_model, rng)
        return size, Source(of_inputs + rng.standard_normal(FEATURES), *model), rng


def _trained(labels: npt.NDArray[np.int64]) -> int:
    return int(TRAINED * len(labels))


def _model(mean: float, rng: np.random.Generator) -> tuple[Values, Values]:
    """Return W, (60, 10), and b, (10,), whose numbers are drawn from N(mean, 1)."""
    weights = rng.standard_normal((FEATURES, CLASSES))
    return mean + weights, mean + rng.standard_normal(CLASSES)


def _joined(parts: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]) -> Raw:
    """Return the samples of all clients as one split; its users are the clients."""
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Raw(x, y, np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts]))


@dataclass(frozen=True)
class Blobs(FromSettings):
    """Samples of a class lie around its centre, with standard deviation `spread` in each number.

    The centres are drawn from a standard normal distribution. A client has samples of `labels`
    random classes, drawn by a generator that is seeded with its number, so only the samples of
    selected clients are ever made.

    This is for measurements and tests with any number of clients (scikit-learn's `make_blobs`, by
    client). It takes no partition.

    Attributes:
        clients: how many clients there are; set from the experiment.
        seed: of all draws; derived from the experiment's.
        samples: how many samples a client has; or the least and the most, drawn uniformly.
        classes: how many classes there are.
        labels: how many classes a client has; 0: all.
        shape: the shape of a sample, channels first.
        spread: the standard deviation of a class in each number.
        tests: how many samples the server evaluates on.
    """

    clients: Count = 100
    seed: WholeNumber = 0
    samples: Count | tuple[Count, Count] = 20
    classes: Count = 10
    labels: WholeNumber = 2
    shape: tuple[Count, ...] = (1, 8, 8)
    spread: NotNegative = 1.0
    tests: Count = 1000

    def __post_init__(self) -> None:
        low, high = self._bounds
        if low > high:
            raise DataError(
                f"blobs: samples must be the least and the most, the least first, not {low} {high}"
            )
        if low < high and self.clients > MOST_SIZES:
            raise DataError(
                f"blobs: clients must be at most {MOST_SIZES} where samples has two numbers, as "
                f"all sizes are drawn together, not {self.clients}"
            )
        if self.labels > self.classes:
            raise DataError(f"blobs: labels must be 0 to {self.classes}, not {self.labels}")
        if not self.shape:
            raise DataError("blobs: shape must have one number or more")

    def sizes(self) -> npt.NDArray[np.int64] | int:
        """Return each client's number of samples; see `FederatedData.sizes`."""
        low, high = self._bounds
        if low == high:
            return low
        rng = self._generator("sizes")
        return np.asarray(rng.integers(low, high, self.clients, endpoint=True), np.int64)

    def client(self, number: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return a client's samples and labels; see `FederatedData.client`."""
        rng = self._generator("client", number)
        kinds = rng.permutation(self.classes)[: self.labels or self.classes]
        sizes = self._sizes
        return self._draw(rng, kinds, sizes if isinstance(sizes, int) else int(sizes[number]))

    def test(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return samples of all classes; see `FederatedData.test`."""
        return self._draw(self._generator("test"), np.arange(self.classes), self.tests)

    @property
    def _bounds(self) -> tuple[int, int]:
        return (self.samples, self.samples) if isinstance(self.samples, int) else self.samples

    @cached_property
    def _sizes(self) -> npt.NDArray[np.int64] | int:
        return self.sizes()

    @cached_property
    def _centres(self) -> npt.NDArray[np.float32]:
        rng = self._generator("centres")
        return rng.standard_normal((self.classes, *self.shape), np.float32)

    def _draw(
        self, rng: np.random.Generator, kinds: npt.NDArray[np.int64], number: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        y = kinds[rng.integers(len(kinds), size=number)]
        x = rng.standard_normal((number, *self.shape), np.float32)
        x *= np.float32(self.spread)
        x += self._centres[y]
        return x, y

    def _generator(self, purpose: str, number: int = 0) -> np.random.Generator:
        place = ("sizes", "client", "test", "centres").index(purpose)
        return np.random.default_rng([self.seed, place, number])
