"""MNIST: 60,000 and 10,000 handwritten digits of 28 x 28 grey pixels (LeCun et al., 1998)."""

from __future__ import annotations

from dataclasses import dataclass

from layers.compute.data.dataset import Dataset
from layers.compute.data.datasets.idx_set import IdxSet
from layers.compute.data.files import Files

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

FILES = IdxSet(
    name="mnist",
    mirrors=_MIRRORS,
    train_x=("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
    train_y=("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
    test_x=("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
    test_y=("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
)


@dataclass(frozen=True)
class Mnist:
    """Samples of shape (1, 28, 28), uint8 from 0 (paper) to 255 (ink); 10 classes."""

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        return FILES.load(files)
