"""Keys that two clients agree on, and the masks that a key makes.

X25519 (RFC 7748), HKDF with SHA-256 (RFC 5869), and AES-256 in counter mode as a stream of words.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
PAIR_MASK = b"fedmx pair mask"
"""What the key of two clients' mask is derived for."""


def public_of(private: bytes) -> bytes:
    """Return the public key of a private one, 32 bytes each."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes) -> bytes:
    """Return the 32 bytes that the owners of two key pairs have in common.

    Raises:
        ValueError: `public` is not the public key of a pair.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    return own.exchange(X25519PublicKey.from_public_bytes(public))


def derived(secret: bytes, purpose: bytes, salt: bytes = b"", size: int = KEY_BYTES) -> bytes:
    """Return a key for one purpose."""
    return HKDF(SHA256(), size, salt, purpose).derive(secret)


BLOCK_BYTES = 16
START = bytes(BLOCK_BYTES)


def mask(key: bytes, size: int, dtype: str = "<u4", start: bytes = START) -> np.ndarray:
    """Return the mask of a key, (size,): a stream of words, little-endian.

    Args:
        key: 32 bytes.
        size: the number of words.
        dtype: their type.
        start: the block from which the cipher counts; another one makes another mask.
    """
    words = np.zeros(size, dtype)
    stream = Cipher(AES256(key), CTR(start)).encryptor()
    stream.update_into(words.data.cast("B"), words.data.cast("B"))
    return words
