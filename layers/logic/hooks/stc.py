"""Sparse ternary compression, up and down (Sattler et al. 2019, algorithms 1 and 2).

Of each tensor the share p of largest values travels, as -mu or mu with mu their mean absolute
value; positions are Golomb-coded. Error feedback at both ends: the client keeps its residual across
rounds in which it was not selected, the server has one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic.compression.codec import Codec
from layers.logic.compression.halves import CodecClientHalf, CodecServerHalf
from layers.logic.compression.sparse import SparseCodec
from layers.logic.compression.ternary import TernaryCodec
from layers.logic.core.hook import ClientHalf, Hook, ServerHalf
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class Stc(Hook):
    """Sparse ternary compression with error feedback (Sattler et al. 2019).

    Attributes:
        p_up: share of the values that go up; None sends updates dense.
        p_down: share of the values that go down; None sends the model dense.
        flat: the whole vector counts as one tensor, with one threshold and one mu.
        exact_k: of values that are equal at the threshold only the first are kept.
        literal: mu as algorithm 1 has it when it is taken literally (see `ternarise`).
        ternary: false keeps the values instead of mu; with p 1.0 that is no compression.
    """

    p_up: float | None = 0.1
    p_down: float | None = 0.1
    flat: bool = False
    exact_k: bool = False
    literal: bool = False
    ternary: bool = True

    def __post_init__(self) -> None:
        if self.p_up is None and self.p_down is None:
            raise LogicError("stc with neither p_up nor p_down compresses nothing; give one")
        if not self.ternary and self.literal:
            raise LogicError("literal is about mu, which ternary: false leaves out; drop one")
        self._codecs()

    @property
    def encodes_update(self) -> bool:
        """Whether updates go up encoded."""
        return self.p_up is not None

    @property
    def encodes_model(self) -> bool:
        """Whether the model goes down encoded."""
        return self.p_down is not None

    def server(self) -> ServerHalf:
        """Return the half that decodes updates and encodes the model's changes."""
        return CodecServerHalf(*self._codecs(), flat=self.flat)

    def client(self) -> ClientHalf:
        """Return the half that encodes updates and keeps the residual and the model."""
        return CodecClientHalf(*self._codecs(), flat=self.flat)

    def _codecs(self) -> tuple[Codec | None, Codec | None]:
        return self._codec(self.p_up), self._codec(self.p_down)

    def _codec(self, p: float | None) -> Codec | None:
        if p is None:
            return None
        if self.ternary:
            return TernaryCodec(p, self.exact_k, self.literal)
        return SparseCodec(p)
