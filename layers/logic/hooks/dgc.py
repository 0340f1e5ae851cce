"""Deep gradient compression (Lin et al. 2018, algorithm 1).

On the client, for each update g: u = m u + g, v = v + u (momentum correction; with Nesterov
u = m (u + g), v = v + u + g). The client sends the share p of largest |v| of each tensor, and u and
v start again at zero there (momentum factor masking). The first rounds send more (warm-up).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.logic.compression.codecs import (
    Codec,
    SparseCodec,
    encode_sparse,
    largest_positions,
    parts_of,
)
from layers.logic.compression.sides import CodecHook, send_payload
from layers.logic.core.hook import ClientContext
from layers.logic.core.messages import Update
from layers.logic.numeric.vectors import norm
from layers.settings import Bound, Count, Decay, PositiveShare, WholeNumber

EVERYTHING = SparseCodec(1.0)  # every value that is not zero; the payload says how many there are


@dataclass(frozen=True)
class Dgc(CodecHook):
    """Deep gradient compression: momentum correction and masking, warm-up (Lin et al. 2018).

    Attributes:
        p: the share of each tensor's values that is sent after the warm-up.
        threshold: if given, every |v| above it is sent, instead of a share.
        momentum: m of the correction; it is independent of the clients' `train.momentum`.
        nesterov: whether the correction has Nesterov's form.
        masking: whether the momentum starts again at zero where a value was sent.
        clip: the largest Euclidean norm of an update; None sets no limit.
        clients: N, how many clients a round has; each clips its update to clip / sqrt(N).
        warmup: number of rounds of warm-up; in the r-th of them the share is warmup_factor^r, but
            at least p.
        warmup_factor: the share of the first round; None takes p^(1 / (warmup + 1)), so that the
            shares fall evenly to p.
        down: whether the server sends only the changed values of the model, without loss; if
            not, it sends the whole model.
    """

    name = "dgc"

    p: PositiveShare = 0.001
    threshold: Bound | None = None
    momentum: Decay = 0.9
    nesterov: bool = False
    masking: bool = True
    clip: Bound | None = None
    clients: Count = 1
    warmup: WholeNumber = 4
    warmup_factor: PositiveShare | None = 0.25
    down: bool = True

    def codecs(self) -> tuple[Codec, Codec | None]:
        """Every changed value, encoded without loss."""
        return EVERYTHING, EVERYTHING if self.down else None

    def density(self, round: int) -> float:
        """Return the share of the values that are sent in `round`, from 1."""
        if round > self.warmup:
            return self.p
        factor = self.warmup_factor
        if factor is None:
            factor = self.p ** (1 / (self.warmup + 1))
        return max(factor**round, self.p)

    @property
    def share_sent(self) -> float:
        """`p`; 0 with a threshold, with which any share may travel."""
        return 0.0 if self.threshold is not None else self.p

    class Client(CodecHook.Client):
        hook: Dgc

        def send(self, update: Update, context: ClientContext) -> Update:
            hook, memory = self.hook, context.memory
            gradient = self._clipped(update.delta)
            if not np.isfinite(gradient).all():
                return update  # unchanged: the server rejects it and says why
            m = np.float32(hook.momentum)
            if hook.nesterov:
                u = m * (memory.get("u", np.float32(0)) + gradient)
                v = memory.get("v", np.float32(0)) + (u + gradient)
            else:
                u = m * memory.get("u", np.float32(0)) + gradient
                v = memory.get("v", np.float32(0)) + u
            if hook.threshold is None:
                parts = parts_of(context.layout)
                positions = largest_positions(v, parts, hook.density(context.round))
            else:
                positions = np.flatnonzero(np.abs(v) > hook.threshold)
            payload = encode_sparse(positions, v[positions], v.size)
            v[positions] = 0
            if hook.masking:
                u[positions] = 0
            context.keep(u=u, v=v)
            return send_payload(update, context, payload)

        def _clipped(self, gradient: np.ndarray) -> np.ndarray:
            if self.hook.clip is None:
                return gradient
            most = self.hook.clip / self.hook.clients**0.5
            length = norm(gradient)
            return gradient * np.float32(most / length) if length > most else gradient
