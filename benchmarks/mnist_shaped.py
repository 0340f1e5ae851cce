"""Random images of MNIST's shape: the time of a step does not depend on their content."""

from __future__ import annotations

import numpy as np


def images(clients: int = 100, per_client: int = 600) -> dict[str, np.ndarray]:
    """Return 8-bit images for all clients, and a few to test on."""
    rng = np.random.default_rng(0)
    number = clients * per_client
    x = rng.integers(0, 256, (number, 1, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, number)
    return {"x_train": x, "y_train": y, "x_test": x[:100], "y_test": y[:100]}
