"""The author of an experiment: the operator who has signed it, so that no server can make one up.

The signature (ECDSA, SHA-256) covers the whole text of the experiment and the operator's
certificate, which one authority has issued. So it counts for no other experiment, and not in a
federation of another authority, even if the operator has the same key there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fedmx.federation.messages import OPERATOR
from layers.network.signing import certificate_in, signed_with, signer_of


def sign(text: str, certificate: Path, key: Path) -> bytes:
    """Return the proof that an operator has signed an experiment.

    Args:
        text: of the experiment, as it is submitted.
        certificate, key: of the operator (PEM).
    """
    own = x509.load_pem_x509_certificate(certificate.read_bytes())
    return signed_with(certificate, key, _covered(own.public_bytes(Encoding.DER), text))


def author_of(proof: bytes, text: str, ca: Path) -> str:
    """Return the name of the operator who has signed an experiment.

    Args:
        proof: the result of `sign`.
        text: of the experiment.
        ca: the authorities that may have certified the operator.

    Raises:
        ValueError: nobody with the role of an operator has; the text says what is wrong.
    """
    return signer_of(proof, _covered(certificate_in(proof), text), ca, OPERATOR)


def _covered(certificate: bytes, text: str) -> bytes:
    return b"fedmx experiment: " + hashlib.sha256(certificate).digest() + text.encode()
