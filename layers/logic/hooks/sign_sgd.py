"""One bit a value, with error feedback (Bernstein et al. 2018; Karimireddy et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic.compression.codecs import SignCodec
from layers.logic.compression.sides import CodecClientSide, CodecServerSide
from layers.logic.core.hook import ClientSide, Hook, ServerSide


@dataclass(frozen=True)
class SignSgd(Hook):
    """Signs, and the mean absolute value of each tensor (Karimireddy et al. 2019, algorithm 2).

    With the aggregator `majority-vote` this is signSGD with majority vote (Bernstein et al. 2018).

    Attributes:
        down: whether the changes of the model go down as signs; if not, the model goes down dense.
        feedback: whether what the signs left out is added to the next update, or change.
    """

    down: bool = True
    feedback: bool = True

    @property
    def encodes_update(self) -> bool:
        """Always true: updates go up encoded."""
        return True

    @property
    def encodes_model(self) -> bool:
        """Whether the model goes down encoded."""
        return self.down

    def server(self) -> ServerSide:
        """Return the half that decodes updates and encodes the changes of the model."""
        down = SignCodec() if self.down else None
        return CodecServerSide(SignCodec(), down, feedback=self.feedback)

    def client(self) -> ClientSide:
        """Return the half that encodes updates, and keeps the residual and the model."""
        down = SignCodec() if self.down else None
        return CodecClientSide(SignCodec(), down, feedback=self.feedback)
