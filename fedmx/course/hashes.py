"""Hashes of models and messages."""

from __future__ import annotations

import hashlib

import numpy as np

from fedmx.protocol.messages import CODEC


def model_hash(weights: np.ndarray, buffers: np.ndarray) -> str:
    """Return the SHA-256 (hex) of a model: its float32 values, little-endian, buffers last.

    Args:
        weights: float32 (d,).
        buffers: float32 (b,).
    """
    digest = hashlib.sha256()
    for vector in (weights, buffers):
        digest.update(np.ascontiguousarray(vector, "<f4").data)
    return digest.hexdigest()


def message_hash(message: object) -> str:
    """Return the SHA-256 (hex) of a message as it is encoded for the network."""
    digest = hashlib.sha256()
    for buffer in CODEC.encode(message).buffers:
        digest.update(buffer)
    return digest.hexdigest()
