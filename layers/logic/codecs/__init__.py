"""Codecs: pure functions between vectors and the bytes that travel for them."""

from __future__ import annotations

from layers.logic.codecs.accounting import compression_ratio
from layers.logic.codecs.codec import Codec, parts_of
from layers.logic.codecs.quantised import QuantisedCodec
from layers.logic.codecs.signs import SignCodec
from layers.logic.codecs.sparse import SparseCodec
from layers.logic.codecs.ternary import Ternary, TernaryCodec

__all__ = [
    "Codec",
    "QuantisedCodec",
    "SignCodec",
    "SparseCodec",
    "Ternary",
    "TernaryCodec",
    "compression_ratio",
    "parts_of",
]
