"""Experiment files as texts, for the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx import Experiment, ExperimentError

ROOT = Path(__file__).resolve().parents[3]

WHOLE = """\
name: lenet5-mnist-shards
seed: 1
rounds: 150
clients: 100
stop: {accuracy: 0.98}
compute:
  model: lenet5
  data: mnist
  normalise: {scale: 255, mean: 0.1307, std: 0.3081}
  partition: {name: shards, per_client: 2}
  train:
    epochs: 5
    batch_size: 10
    learning_rate: 2e-2
    schedule: {name: step, every: 10, gamma: 0.5}
  evaluate: {every: 1, batch_size: 500, sample: null}
logic:
  preset: fedavg
  selector: {name: uniform, fraction: 0.1}
  aggregator: mean
  hooks: [clip, {name: "mine.hooks:Noise", deviation: 0.1}]
  min_updates: 1
network:
  address: 127.0.0.1:7070
  wait_for: all
run:
  folder: runs
  checkpoint: {every: 1, keep: 2}
"""
LEAST = "rounds: 5\nclients: 20\ncompute: {model: lenet5, data: digits}\n"


def refused(text: str, *overrides: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        Experiment.parse(text, "exp.yaml", overrides)
    message = str(caught.value)
    assert all(line.isprintable() for line in message.split("\n"))
    return message
