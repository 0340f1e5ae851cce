"""MOON (Li et al. 2021, algorithm 1): local models stay near the received one, not the old one."""

from __future__ import annotations

from dataclasses import dataclass

from fedmx import Trainer


@dataclass(frozen=True)
class Moon(Trainer):
    """Gives the loss `moon` the received model and the one that this client trained before."""

    def train(self, job):
        task, engine, context = job.task, job.engine, job.context
        received = task.weights, task.buffers
        previous = context.memory.get("weights"), context.memory.get("buffers")
        references = {
            "received": received,
            "previous": received if previous[0] is None else previous,  # then both cancel out
        }
        batches = engine.batches(job.data, task.training, task.seed, references=references)
        for batch in batches:
            engine.step(batch, job.correct)
        context.keep(weights=engine.weights.copy(), buffers=engine.buffers.copy())
        return batches.report()
