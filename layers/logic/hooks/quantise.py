"""8 or 16 bits a value with stochastic rounding (QSGD: Alistarh et al. 2017, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layers.logic.compression.codecs import Codec, QuantisedCodec
from layers.logic.compression.sides import CodecClientSide, CodecServerSide
from layers.logic.core.hook import ClientSide, Hook, ServerSide
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class Quantise(Hook):
    """8 or 16 bits a value, rounded at random so that the mean is right (Alistarh et al. 2017).

    Attributes:
        bits: 8 or 16.
        up: whether updates go up quantised; if not, they go up dense.
        down: whether the changes of the model go down quantised; if not, the model goes down
            dense.
        feedback: whether what rounding left out is added to the next update, or change.
    """

    bits: Literal[8, 16] = 8
    up: bool = True
    down: bool = False
    feedback: bool = False

    def __post_init__(self) -> None:
        if not (self.up or self.down):
            raise LogicError("quantise with neither up nor down does nothing; set one to true")
        QuantisedCodec(self.bits)

    @property
    def encodes_update(self) -> bool:
        """Whether updates go up encoded."""
        return self.up

    @property
    def encodes_model(self) -> bool:
        """Whether the model goes down encoded."""
        return self.down

    def server(self) -> ServerSide:
        """Return the half that decodes updates and encodes the changes of the model."""
        return CodecServerSide(*self._codecs(), feedback=self.feedback)

    def client(self) -> ClientSide:
        """Return the half that encodes updates and decodes the changes of the model."""
        return CodecClientSide(*self._codecs(), feedback=self.feedback)

    def _codecs(self) -> tuple[Codec | None, Codec | None]:
        codec = QuantisedCodec(self.bits)
        return codec if self.up else None, codec if self.down else None
