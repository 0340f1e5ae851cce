"""Deployed runs whose clients are held up, and what their journals must give again."""

from __future__ import annotations

from fedmx import RunFolder
from fedmx.history import rerun
from tests.fedmx.timeless import timeless

EXPERIMENT = """
name: journal
seed: 5
compute:
  model: logistic
  data: digits
  normalise: {scale: 16}
  train: {steps: 5, batch_size: 10, learning_rate: 0.05}
"""


def assert_replayed(run: RunFolder) -> None:
    """The journal of a run ends each round in the deployed model, with the recorded clients."""
    with rerun(run, modules=None) as server:
        rounds = list(server)
    records = run.rounds()
    assert [one.model_sha256 for one in rounds] == [one["model_sha256"] for one in records]
    assert timeless(one.record() for one in rounds) == timeless(records, "chain")
    for one in rounds:
        assert timeless(one.client_records()) == timeless(run.clients(one.round))
