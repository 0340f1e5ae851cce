"""Fashion-MNIST: 60,000 and 10,000 garments of 28 x 28 grey pixels (Xiao et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from layers.compute.data.dataset import Dataset
from layers.compute.data.datasets.idx_set import IdxSet
from layers.compute.data.files import Files

_MIRRORS = (
    # Without TLS, as its authors serve it; the SHA-256 shows whether it is the right file.
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)

FILES = IdxSet(
    name="fashion-mnist",
    mirrors=_MIRRORS,
    train_x=("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880),
    train_y=("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
    test_x=("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
    test_y=("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
)


@dataclass(frozen=True)
class FashionMnist:
    """Samples of shape (1, 28, 28), uint8 from 0 (background) to 255; 10 classes."""

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        return FILES.load(files)
