"""Ditto (Li et al. 2021, algorithm 1): FedAvg, and a personal model near the received one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx import LocalSgd


@dataclass(frozen=True)
class Ditto(LocalSgd):
    lam: float = 0.1

    def train(self, task, engine, data, correct, context):
        engine.load(context.memory.get("v", task.weights), task.buffers)

        def pull(gradient, weights):  # v <- v - rate (g(v) + lam (v - w))
            gradient += np.float32(self.lam) * (weights - task.weights)

        for batch in engine.batches(data, task.training, task.seed):
            engine.step(batch, pull)
        context.keep(v=engine.weights.copy())
        engine.load(task.weights, task.buffers)
        return super().train(task, engine, data, correct, context)

    def personal(self, task, engine, data, context):
        engine.load(context.memory.get("v", task.weights), task.buffers)
