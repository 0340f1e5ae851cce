"""The initial model is evaluated once, and a curve begins with it as round 0."""

from __future__ import annotations

from fedmx import Experiment, simulate
from fedmx.report.summary import Curve, points_of

EXPERIMENT = {
    "rounds": 2,
    "clients": 3,
    "compute": {
        "engine": "numpy",
        "model": "logistic",
        "data": "digits",
        "normalise": {"scale": 16},
        "train": {"steps": 1, "batch_size": 10, "learning_rate": 0.01},
    },
}


def test_a_curve_begins_with_the_initial_model_which_counts_for_nothing() -> None:
    simulation = simulate(Experiment.from_dict(EXPERIMENT))
    before = dict(simulation.evaluate())
    records = [round.record() for round in simulation]
    first, second = records
    assert first["initial"] == before
    assert "initial" not in second

    curve = Curve(points_of(records, simulation.quantities), simulation.quantities)
    start, *rounds = curve.drawn
    assert (start.round, start.bytes, start.elapsed_s, start.local_steps) == (0, 0, 0, 0)
    assert (start.accuracy, start.loss) == (before["accuracy"], before["loss"])
    assert rounds == list(curve.points)
    assert [point.round for point in curve.evaluated] == [1, 2]
    assert curve.best in rounds
