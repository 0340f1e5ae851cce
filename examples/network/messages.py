"""The messages of this example: what may travel, by number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.network import MessageCodec


@dataclass(frozen=True)
class Ready:
    """A control message: the client asks for work."""

    cores: int


@dataclass(frozen=True)
class Work:
    """An object from the server, and the file that follows it."""

    weights: npt.NDArray[np.float32]
    file: str
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True)
class Result:
    """An object from the client."""

    change: npt.NDArray[np.float32]
    loss: float


CODEC = MessageCodec({1: Ready, 2: Work, 3: Result})
