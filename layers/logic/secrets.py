"""Secrets: draws that nobody can foresee without the key of an end, in place of the seed's.

The seed of an experiment is public: every client has it. Privacy depends on noise and cohorts,
which therefore follow a secret of the server or of a client. The draws are the output of SHAKE-256
for the key and the purpose, so every machine with the key has the same draws.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layers.logic.errors import LogicError

KEY_BYTES = 32


class SecretMissing(LogicError):
    """The secret of an end that is elsewhere would be needed here."""


@dataclass(frozen=True, repr=False)
class Secret:
    """The secret of one end, or a part of it for one purpose.

    Attributes:
        read: returns the key, `KEY_BYTES` bytes; called at the first draw.
    """

    read: Callable[[], bytes]

    @classmethod
    def of_key(cls, key: bytes) -> Secret:
        """Return the secret with a key of at least `KEY_BYTES` bytes."""
        return cls(lambda: key)

    @classmethod
    def fresh(cls) -> Secret:
        """Return a secret that the operating system draws; it ends with this process."""
        return cls.of_key(os.urandom(KEY_BYTES))

    @classmethod
    def of_seed(cls, seed: int, *end: str | int) -> Secret:
        """Return the secret of a simulation; anyone who knows the seed can foresee its draws.

        Args:
            seed: of the experiment.
            end: ``"server"``, or ``"client"`` and its number.
        """
        return cls.of_key(_digest(b"seed", f"{int(seed)}", *end))

    @classmethod
    def elsewhere(cls, whose: str) -> Secret:
        """Return the secret of an end that is not here: a draw raises `SecretMissing`.

        Args:
            whose: what has it, for the message.
        """

        def missing() -> bytes:
            raise SecretMissing(
                f"the run draws from a secret of {whose}, which is not here; follow the run again "
                "where that secret is"
            )

        return cls(missing)

    @cached_property
    def _key(self) -> bytes:
        key = self.read()
        if len(key) < KEY_BYTES:
            raise LogicError(f"a secret of {len(key)} bytes; it must have {KEY_BYTES}")
        return key

    def part(self, *label: str | int) -> Secret:
        """Return the secret for one purpose; two labels never share a draw."""
        return Secret(lambda: _digest(self._key, *label))

    def draws(self, purpose: str, *covered: np.ndarray) -> SecretDraws:
        """Return the draws for one purpose; each call starts the same draws again.

        Args:
            purpose: what they are for.
            covered: the values that they hide; other values get other draws. So a round that is
                repeated with the same values repeats its noise, and one with other values does not:
                two results with the same noise would tell their difference.
        """
        digest = hashlib.sha256()
        for values in covered:
            digest.update(f"{values.dtype.str}{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).view(np.uint8).data)
        return SecretDraws(_digest(self._key, "draws", purpose, digest.hexdigest()))


class SecretDraws:
    """Draws from one key, one after the other.

    Args:
        key: the key.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._calls = 0

    def bytes(self, size: int) -> bytes:
        """Return random bytes."""
        self._calls += 1
        return hashlib.shake_256(self._key + self._calls.to_bytes(8, "big")).digest(size)

    def words(self, size: int) -> np.ndarray:
        """Return random whole numbers of 64 bits, uint64 (size,)."""
        return np.frombuffer(self.bytes(8 * size), "<u8").astype(np.uint64, copy=False)

    def uniform(self, size: int) -> np.ndarray:
        """Return numbers from 0 to below 1, float64 (size,): multiples of 2^-53."""
        return np.asarray((self.words(size) >> np.uint64(11)) * 2.0**-53)

    def below(self, chance: float | np.ndarray, size: int) -> np.ndarray:
        """Return for each of `size` draws whether an event of this probability happens.

        Its error is that of a float64 as a share of the probability, and 2^-63 at most otherwise.
        """
        bound = np.minimum(np.asarray(chance, np.float64), 1.0) * 2.0**63
        return np.asarray((self.words(size) >> np.uint64(1)) < bound.astype(np.uint64))


def _digest(key: bytes, *label: str | int) -> bytes:
    """Return a key that depends on another key and each part of the label."""
    digest = hashlib.shake_256(len(key).to_bytes(8, "big") + key)
    for one in label:
        text = f"{type(one).__name__} {one}".encode()
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.digest(KEY_BYTES)
