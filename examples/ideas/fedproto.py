"""FedProto (Tan et al. 2022, algorithm 1): prototypes of classes travel in place of weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientSide, Hook, ServerSide, Trainer, Trait

LAST = ""  # the layer of the representation: the input of the last one


@dataclass(frozen=True)
class OwnModel(Trainer):
    def train(self, job):
        engine, data, shared = job.engine, job.data, job.context.round_memory
        self.personal(job)
        if "prototypes" not in shared:  # the first round has none
            first = engine.outputs(data, [LAST])
            shared["prototypes"] = np.nan * first.logits[:1].T * first.layers[LAST][:1]
        known = {"prototypes": shared["prototypes"]}
        batches = engine.batches(data, job.task.training, job.task.seed, arrays=known)
        for batch in batches:
            engine.step(batch, job.correct)
        job.context.keep(weights=engine.weights.copy(), buffers=engine.buffers.copy())
        values = engine.outputs(data, [LAST]).layers[LAST]
        is_class = np.arange(len(shared["prototypes"]))[:, None] == data.y
        shared["counts"] = is_class.sum(axis=1)
        shared["sums"] = is_class.astype(np.float32) @ values
        return batches.report()

    def personal(self, job):
        own, task = job.context.memory, job.task
        job.engine.load(own.get("weights", task.weights), own.get("buffers", task.buffers))


@dataclass(frozen=True)
class Prototypes(Hook):
    provides = frozenset({Trait.ENCODES_UPDATE, Trait.SUMS})

    class Client(ClientSide):
        def receive(self, task, context):
            context.round_memory.update(context.slot)
            return task

        def send(self, update, context):
            shared = context.round_memory
            context.slot.update(counts=shared["counts"], sums=shared["sums"])
            return replace(update, delta=update.delta[:0])

    class Server(ServerSide):
        counts = sums = 0

        def send(self, task, context):
            context.slot.update(context.memory)
            return task

        def receive(self, update, context):
            return replace(update, delta=np.zeros_like(context.start))

        def on_accepted(self, update, context):
            self.counts = self.counts + context.slot["counts"][:, None]
            self.sums = self.sums + context.slot["sums"]

        def conclude(self, state, context):  # equation 6: the mean over the samples of all clients
            if np.any(self.counts):
                before = context.memory.get("prototypes", np.nan)
                means = np.where(self.counts, self.sums / np.maximum(self.counts, 1), before)
                context.keep(prototypes=means.astype(np.float32))
            return state
