"""A toy of secure aggregation (Bonawitz et al. 2017): pairwise masks that cancel in the sum.

Its keys are small numbers, so it protects nobody. A client that falls out after the keys leaves its
masks in the sum; the others then tell what they share with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic import ClientSide, Hook, Rejected, ServerSide, Trait

PRIME, BASE = 2**61 - 1, 7
MODULUS = 2**30
CLIP, BITS = 1.0, 16
UNIT = 2 * CLIP / (2**BITS - 1)
NO_KEY = "sent no key"
SILENT = "did not help to open the sum"


def quantised(values: np.ndarray, clip: float = CLIP, bits: int = BITS) -> np.ndarray:
    """Return whole numbers from 0 to 2^bits - 1 for values from -clip to clip."""
    unit = 2 * clip / (2**bits - 1)
    return np.rint((np.clip(values.astype(np.float64), -clip, clip) + clip) / unit).astype(np.int64)


def dequantised(total: np.ndarray, number: int) -> np.ndarray:
    """Return the sum of values whose whole numbers have this sum."""
    return total * UNIT - number * CLIP


def is_key(value: object) -> bool:
    """Return whether a client's answer is a key."""
    return isinstance(value, int) and 0 < value < PRIME


def mask(mine: int, other: int, seed: int, size: int) -> np.ndarray:
    """Return the mask that one client adds and the other takes away."""
    words = np.random.default_rng(seed).integers(0, MODULUS, size)
    return words if mine < other else -words


@dataclass(frozen=True)
class SecureSum(Hook):
    provides = frozenset({Trait.ENCODES_UPDATE})

    class Client(ClientSide):
        def answer(self, phase, question, context):
            shared = context.round_memory
            if phase == "cohort" and "keys" not in question:
                shared["private"] = int(context.rng("private").integers(2, PRIME - 1))
                return {"key": pow(BASE, shared["private"], PRIME)}
            if phase == "cohort":
                shared["clients"] = question["clients"]
                keys = map(int, question["keys"])
                shared["seeds"] = np.array([pow(key, shared["private"], PRIME) for key in keys])
                return {"ready": True}
            if "returned" in question:
                return {"returned": question["returned"]}
            gone = np.isin(shared["clients"], question["gone"])
            return {"seeds": shared["seeds"][gone]}

        def receive(self, task, context):
            self.buffers = task.buffers
            return task

        def send(self, update, context):
            shared, me = context.round_memory, update.client
            words = quantised(np.concatenate([update.delta, update.buffers - self.buffers]))
            clients, seeds = shared["clients"].tolist(), shared["seeds"].tolist()
            for other, seed in zip(clients, seeds, strict=True):
                if other != me:
                    words = words + mask(me, other, seed, words.size)
            context.slot["words"] = (words % MODULUS).astype(np.uint32)
            return replace(update, delta=update.delta[:0], buffers=update.buffers[:0])

    class Server(ServerSide):
        asks = frozenset({"cohort", "returned"})

        def __init__(self, hook):
            super().__init__(hook)
            self.keys = {}
            self.opened = {}  # the seeds that each client shares with those that are gone
            self.asked = self.gone = ()
            self.sum, self.number, self.buffers = 0, 0, 0

        def ask(self, phase, clients, context):
            if phase == "cohort":
                if not self.keys:
                    return {}
                keys = np.array(list(self.keys.values()))
                return {"clients": np.array(list(self.keys)), "keys": keys}
            if not self.asked:
                self.asked = tuple(clients)
                return {"returned": np.array(clients)}
            self.asked = tuple(clients)
            self.gone = tuple(one for one in self.keys if one not in clients)
            return {"gone": np.array(self.gone, np.int64)}

        def on_answers(self, phase, answers, context):
            if phase == "cohort":
                first = not self.keys
                if first:
                    told = {one: slot.get("key") for one, slot in answers.items()}
                    self.keys = {one: key for one, key in told.items() if is_key(key)}
                return first
            if "returned" in next(iter(answers.values()), {}):
                asked = list(self.asked)
                return all(slot["returned"].tolist() == asked for slot in answers.values())
            self.opened = {one: slot["seeds"].tolist() for one, slot in answers.items()}
            return len(answers) < len(self.asked)  # those that are silent now are gone, too

        def discard(self, phase, clients, context):
            if phase == "cohort":
                return {one: NO_KEY for one in clients if one not in self.keys}
            return {one: SILENT for one in clients if one not in self.opened}

        def send(self, task, context):
            self.buffers = task.buffers.size
            return task

        def receive(self, update, context):
            words, size = context.slot.get("words"), context.start.size + self.buffers
            form = (np.uint32, (size,))
            if not isinstance(words, np.ndarray) or (words.dtype, words.shape) != form:
                raise Rejected(f"words that are not {size} numbers of 32 bits")
            if words.max() >= MODULUS:
                raise Rejected(f"a word of {words.max()}; it must be below {MODULUS}")
            return update

        def on_accepted(self, update, context):
            self.sum = self.sum + context.slot["words"].astype(np.int64)
            self.number += 1

        def reveal(self, state, context):
            left = [
                mask(mine, other, seed, self.sum.size)
                for mine, seeds in self.opened.items()
                for other, seed in zip(self.gone, seeds, strict=True)
            ]
            total = (self.sum - sum(left)) % MODULUS
            mean = (dequantised(total, self.number) / self.number).astype(np.float32)
            return mean[: state.weights.size], state.buffers + mean[state.weights.size :]
