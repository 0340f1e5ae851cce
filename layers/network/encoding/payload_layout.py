"""The layout of a payload, for its writer and its reader; docs/protocol.md describes it."""

from __future__ import annotations

import struct

ALIGNMENT = 64
MAX_DEPTH = 24
MAX_VALUES = 1 << 20
MAX_DIMENSIONS = 16

LENGTH = struct.Struct("<I")
ARRAY = struct.Struct("<BBQ")  # dtype code, number of dimensions, offset; the dimensions follow
ARRAY_EXT = 1
HEAD_BYTES = LENGTH.size + 3  # what says which type of message it is
ZEROS = memoryview(bytes(ALIGNMENT))
