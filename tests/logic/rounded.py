"""A hook with error feedback: a lost or doubled memory of a client shows in its updates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic import ClientContext, ClientSide, Hook, Update


@dataclass(frozen=True)
class Rounded(Hook):
    """Updates are rounded; what rounding takes away is added to the client's next update."""

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            wanted = update.delta + context.memory.get("residual", np.float32(0))
            sent = np.round(wanted, 1).astype(np.float32)
            context.keep(residual=wanted - sent, sent=context.memory.get("sent", 0) + 1)
            return replace(update, delta=sent)
