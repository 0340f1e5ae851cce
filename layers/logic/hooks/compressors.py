"""Hooks that encode updates, and changes of the model, with a codec.

Both ends have error feedback: a client keeps its residual over rounds in which it is not selected,
and the server has a residual of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layers.logic.compression.codecs import (
    Codec,
    QuantisedCodec,
    SignCodec,
    SparseCodec,
    TernaryCodec,
)
from layers.logic.compression.sides import CodecHook
from layers.logic.errors import LogicError
from layers.settings import PositiveShare


@dataclass(frozen=True)
class Quantise(CodecHook):
    """8 or 16 bits a value, rounded at random so that the mean is right.

    Source: Alistarh et al. 2017 (QSGD), section 3.1.

    Attributes:
        bits: 8 or 16.
        up: whether updates are sent quantised; if not, dense.
        down: whether the changes of the model are sent quantised; if not, the model is sent
            dense.
        feedback: whether what rounding left out is added to the next update, or change.
    """

    name = "quantise"

    bits: Literal[8, 16] = 8
    up: bool = True
    down: bool = False
    feedback: bool = False

    def __post_init__(self) -> None:
        if not (self.up or self.down):
            raise LogicError("quantise with neither up nor down does nothing; set one to true")

    def codecs(self) -> tuple[Codec | None, Codec | None]:
        codec = QuantisedCodec(self.bits)
        return codec if self.up else None, codec if self.down else None


@dataclass(frozen=True)
class SignSgd(CodecHook):
    """Signs, and the mean absolute value of each tensor (Karimireddy et al. 2019, algorithm 2).

    With the aggregator `majority-vote` this is signSGD with majority vote (Bernstein et al. 2018).

    Attributes:
        down: whether the changes of the model are sent as signs; if not, the model is sent dense.
        feedback: whether the error of the signs is added to the next update, or change.
    """

    name = "sign-sgd"

    down: bool = True
    feedback: bool = True

    def codecs(self) -> tuple[Codec, Codec | None]:
        return SignCodec(), SignCodec() if self.down else None


@dataclass(frozen=True)
class Stc(CodecHook):
    """Sparse ternary compression with error feedback (Sattler et al. 2019).

    Source: Sattler et al. 2019, algorithms 1 and 2.

    Of each tensor the share p of largest values travels. Each becomes -mu or mu, where mu is their
    mean absolute value; positions are Golomb-coded.

    Attributes:
        p_up: share of an update's values that are sent; None sends updates dense.
        p_down: share of the model's values that are sent; None sends the model dense.
        flat: whether the whole vector counts as one tensor, with one threshold and one mu.
        exact_k: whether exactly k values are kept; among values at the threshold, the first ones.
        literal: whether mu is what algorithm 1 says when it is read literally (see `ternarise`).
        ternary: whether mu takes the place of the values; if not, the values themselves travel,
            and with p 1.0 nothing is compressed.
    """

    name = "stc"

    p_up: PositiveShare | None = 0.1
    p_down: PositiveShare | None = 0.1
    flat: bool = False
    exact_k: bool = False
    literal: bool = False
    ternary: bool = True

    def __post_init__(self) -> None:
        if self.p_up is None and self.p_down is None:
            raise LogicError("stc with neither p_up nor p_down compresses nothing; set one of them")
        if not self.ternary and self.literal:
            raise LogicError("literal is about mu, and ternary: false has no mu; leave out one")

    @property
    def share_sent(self) -> float:
        """`p_up`; 1 where updates are sent dense."""
        return 1.0 if self.p_up is None else self.p_up

    def codecs(self) -> tuple[Codec | None, Codec | None]:
        return self._codec(self.p_up), self._codec(self.p_down)

    def _codec(self, p: float | None) -> Codec | None:
        if p is None:
            return None
        if self.ternary:
            return TernaryCodec(p, self.exact_k, self.literal)
        return SparseCodec(p)


@dataclass(frozen=True)
class TopK(CodecHook):
    """The share p of largest values of each tensor; the rest is fed back (Aji and Heafield 2017).

    Attributes:
        p: share of an update's values that are sent.
        p_down: share of the values of the model's change that are sent; None sends the model dense.
        flat: whether the whole vector counts as one tensor.
    """

    name = "top-k"

    p: PositiveShare = 0.01
    p_down: PositiveShare | None = None
    flat: bool = False

    @property
    def share_sent(self) -> float:
        return self.p

    def codecs(self) -> tuple[Codec, Codec | None]:
        return SparseCodec(self.p), None if self.p_down is None else SparseCodec(self.p_down)
