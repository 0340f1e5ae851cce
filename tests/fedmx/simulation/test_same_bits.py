"""One seed gives one model, however many threads numpy's linear algebra may use."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys

PROGRAM = """
import hashlib
import numpy as np
rng = np.random.default_rng(0)
from fedmx import Experiment, simulate
def data():
    x = rng.normal(size=(400, 1, 28, 28)).astype(np.float32)
    y = np.arange(400) % 10
    return {"x_train": x, "y_train": y, "x_test": x[:40], "y_test": y[:40]}
experiment = Experiment(
    rounds=2, clients=4,
    compute={"model": "cnn3", "data": data, "train": {"batch_size": 50}},
    logic={"preset": {"name": "projected-stc", "fraction": 1.0, "p": 0.1}},
)
simulation = simulate(experiment)
list(simulation)
print(hashlib.sha256(simulation.weights.tobytes()).hexdigest())
"""


def test_the_number_of_threads_changes_no_bit() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "4"}
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    with contextlib.redirect_stdout(io.StringIO()) as here:  # on one thread
        exec(PROGRAM, {})  # noqa: S102
    assert said.stdout == here.getvalue()
    assert len(said.stdout.strip()) == len(hashlib.sha256().hexdigest())
