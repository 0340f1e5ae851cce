"""An update's delta goes up as a codec's payload; what the codec leaves out is fed back.

Error feedback on the client (Seide et al. 2014; Sattler et al. 2019, algorithm 2):
acc = delta + residual is encoded, and residual = acc - decoded is kept for the client's next
update, however many rounds later that is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layers.logic.compression.codec import Codec
from layers.logic.core.hook import Context
from layers.logic.core.messages import EMPTY, Slot, Update
from layers.logic.errors import Rejected

PAYLOAD = "update"


def send_encoded(
    update: Update, context: Context, codec: Codec, parts: np.ndarray, feedback: bool
) -> Update:
    """Return the update without its delta, and put the delta's payload into the slot.

    An update that is not finite is returned unchanged.

    Args:
        codec: of the delta.
        parts: int64 (tensors + 1,), the tensors' boundaries.
        feedback: whether what the codec left out of one update is added to the next one.
    """
    wanted = update.delta
    if feedback and "residual" in context.memory:
        wanted = wanted + context.memory["residual"]
    if not np.isfinite(wanted).all():
        return update  # unchanged: the server rejects it and says why
    payload = codec.encode(wanted, parts, context.rng("upload"))
    if feedback:
        context.keep(residual=wanted - codec.decode(payload, parts))
    return send_payload(update, context, payload)


def send_payload(update: Update, context: Context, payload: np.ndarray) -> Update:
    """Return the update without its delta, and put `payload` into the slot."""
    context.slot[PAYLOAD] = payload
    return replace(update, delta=EMPTY)


def receive_encoded(update: Update, context: Context, codec: Codec, parts: np.ndarray) -> Update:
    """Return the update with the delta that its payload stands for.

    Raises:
        Rejected: there is no payload, or the codec cannot have made it.
    """
    if PAYLOAD not in context.slot and not np.isfinite(update.delta).all():
        return update  # the server's next check rejects it
    payload = payload_of(context.slot, PAYLOAD)
    return replace(update, delta=codec.decode(payload, parts))


def payload_of(slot: Slot, name: str) -> np.ndarray:
    """Return the payload with this name in a slot, uint8 (bytes,).

    Raises:
        Rejected: there are no bytes with this name.
    """
    payload = slot.get(name)
    if not isinstance(payload, np.ndarray) or payload.dtype != np.uint8 or payload.ndim != 1:
        raise Rejected(f"no bytes in the slot's {name!r}, where an encoded vector should be")
    return payload
