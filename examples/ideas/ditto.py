"""Ditto (Li et al. 2021, algorithm 1): FedAvg, and a personal model near the received one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx import LocalSgd


@dataclass(frozen=True)
class Ditto(LocalSgd):
    lam: float = 0.1

    def train(self, job):
        task, engine, context = job.task, job.engine, job.context
        engine.load(context.memory.get("v", task.weights), task.buffers)

        def pull(gradient, weights):  # v <- v - rate (g(v) + lam (v - w))
            gradient += np.float32(self.lam) * (weights - task.weights)

        for batch in engine.batches(job.data, task.training, task.seed):
            engine.step(batch, pull)
        context.keep(v=engine.weights.copy())
        engine.load(task.weights, task.buffers)
        return super().train(job)

    def personal(self, job):
        job.engine.load(job.context.memory.get("v", job.task.weights), job.task.buffers)
