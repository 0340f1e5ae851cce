"""Your own hook: sends updates as 8-bit integers and adds the rounding error to the next update."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmx import (
    ClientContext,
    ClientSide,
    Hook,
    Rejected,
    ServerContext,
    ServerSide,
    Trait,
    Update,
)


@dataclass(frozen=True)
class EightBit(Hook):
    feedback: bool = True  # a typed field is a setting; an experiment file can give it
    provides = frozenset({Trait.ENCODES_UPDATE})  # the update travels in this hook's slot

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            wanted = update.delta + context.memory.get("residual", np.float32(0))
            scale = np.float32(max(np.abs(wanted).max(), 1e-12) / 127)
            codes = np.rint(wanted / scale).astype(np.int8)
            if self.hook.feedback:
                context.keep(residual=wanted - codes * scale)  # this client's, for later rounds
            context.slot.update(codes=codes, scale=float(scale))  # the server side reads it
            return replace(update, delta=update.delta[:0])

    class Server(ServerSide):
        def receive(self, update: Update, context: ServerContext) -> Update:
            match context.slot:
                case {"codes": np.ndarray() as codes, "scale": float(scale)}:
                    return replace(update, delta=codes * np.float32(scale))
            raise Rejected("an update without codes and scale")
