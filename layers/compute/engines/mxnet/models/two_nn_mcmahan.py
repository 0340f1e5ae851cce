"""2NN as McMahan et al. have it: two hidden layers of 200 units; 199,210 parameters."""

from __future__ import annotations

from typing import Any

from layers.compute.engines.mxnet.models.two_nn import two_nn


def two_nn_mcmahan(classes: int = 10) -> Any:
    """Return 784-200-200-10 for inputs (1, 28, 28), with rectified units.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.
    """
    return two_nn(classes, hidden=(200, 200))
