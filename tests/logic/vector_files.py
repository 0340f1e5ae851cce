"""The files of numbers that were worked out independently, and the clients that they describe."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.logic.quadratic import Quadratic

CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # float32


def vectors(name: str) -> dict:
    """Return the contents of one file; skip the test where there are none."""
    named, data = os.environ.get("FEDMX_VECTORS"), os.environ.get("FEDMX_DATA")
    folder = Path(named) if named else Path(data).parent / "vectors" if data else None
    file = folder / f"{name}.json" if folder else None
    if file is None or not file.exists():
        pytest.skip(f"needs {name}.json: set FEDMX_VECTORS to the folder of test vectors")
    return json.loads(file.read_text())


def quadratics(given: dict, steps: Sequence[int] | None = None) -> dict[int, Quadratic]:
    """Return the clients of a file's inputs, with its numbers of local steps or these."""
    steps = given["local_steps"] if steps is None else steps
    return {
        k: Quadratic(np.array(A), np.array(b), n=n, c=c, steps_per_epoch=steps[k])
        for k, (A, b, n, c) in enumerate(
            zip(given["A"], given["b"], given["n"], given["c"], strict=True)
        )
    }
