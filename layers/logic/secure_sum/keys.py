"""Keys that two clients agree on, and what a key makes: masks, sealed texts, signatures.

X25519 (RFC 7748), HKDF with SHA-256 (RFC 5869), AES-256 in counter mode as a stream of words,
ChaCha20-Poly1305 and Ed25519. The library is imported where it is used: a simulation needs none.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16
PAIR_MASK = b"fedmx pair mask"
"""What the key of two clients' mask is derived for."""
BLOCK_BYTES = 16
START = bytes(BLOCK_BYTES)


def public_of(private: bytes) -> bytes:
    """Return the public key of a private one, 32 bytes each."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes) -> bytes:
    """Return the 32 bytes that the owners of two key pairs have in common.

    Raises:
        ValueError: `public` is not the public key of a pair.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PrivateKey,
        X25519PublicKey,
    )

    own = X25519PrivateKey.from_private_bytes(private)
    return own.exchange(X25519PublicKey.from_public_bytes(public))


def derived(secret: bytes, purpose: bytes, salt: bytes = b"", size: int = KEY_BYTES) -> bytes:
    """Return a key for one purpose."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), size, salt, purpose).derive(secret)


def pair_key(private: bytes, public: bytes) -> bytes:
    """Return the key of the mask that two clients have in common.

    Raises:
        ValueError: `public` is not the public key of a pair.
    """
    return derived(agreed(private, public), PAIR_MASK)


def mask(key: bytes, size: int, dtype: str = "<u4", start: bytes = START) -> np.ndarray:
    """Return the mask of a key, (size,): a stream of words, little-endian.

    Args:
        key: 32 bytes.
        size: the number of words.
        dtype: their type.
        start: the block from which the cipher counts; another one makes another mask.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    words = np.zeros(size, dtype)
    stream = Cipher(AES256(key), CTR(start)).encryptor()
    stream.update_into(words.data.cast("B"), words.data.cast("B"))
    return words


def sealed(key: bytes, nonce: bytes, content: bytes, label: bytes) -> bytes:
    """Return a text that only the key opens, with `TAG_BYTES` more.

    Args:
        key: 32 bytes.
        nonce: 12 bytes, for which the key seals one text.
        content: the text.
        label: what whoever opens it must expect.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(nonce, content, label)


def unsealed(key: bytes, nonce: bytes, box: bytes, label: bytes) -> bytes | None:
    """Return the text that was sealed; None: it was not, with this key, nonce and label."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    with suppress(InvalidTag):
        return ChaCha20Poly1305(key).decrypt(nonce, box, label)
    return None


def verifying_key(signing: bytes) -> bytes:
    """Return the public key of a private one for signatures, 32 bytes each."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(signing).public_key().public_bytes_raw()


def signed(signing: bytes, content: bytes) -> bytes:
    """Return the signature of a text, `SIGNATURE_BYTES`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(signing).sign(content)


def is_signed(public: bytes, signature: bytes, content: bytes) -> bool:
    """Return whether the owner of a public key has signed a text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    with suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
        return True
    return False
