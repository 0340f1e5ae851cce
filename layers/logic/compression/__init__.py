"""Codecs, pure functions between vectors and bytes, and the sides of hooks that use them.

No hook is defined here: those are in `hooks`.
"""

from __future__ import annotations

from layers.logic.compression.codec import Codec, parts_of
from layers.logic.compression.quantised import QuantisedCodec
from layers.logic.compression.signs import SignCodec
from layers.logic.compression.sparse import SparseCodec
from layers.logic.compression.ternary import Ternary, TernaryCodec

__all__ = [
    "Codec",
    "QuantisedCodec",
    "SignCodec",
    "SparseCodec",
    "Ternary",
    "TernaryCodec",
    "parts_of",
]
