"""Signatures with a client's certificate, which other clients of the same authority verify."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from layers.network.certificates import has_signed
from layers.network.expiry import utc_now

LENGTH = struct.Struct("<H")
ALGORITHM = ec.ECDSA(hashes.SHA256())


def signed_with(certificate: Path, key: Path, content: bytes) -> bytes:
    """Return a proof that the owner of a certificate has signed this: signature and certificate."""
    own = x509.load_pem_x509_certificate(certificate.read_bytes())
    private = load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    signature = private.sign(content, ALGORITHM)
    return LENGTH.pack(len(signature)) + signature + own.public_bytes(Encoding.DER)


def signer_of(proof: bytes, content: bytes, ca: Path, role: str | None = None) -> str:
    """Return the common name of the client that has signed this.

    Args:
        proof: the result of `signed_with`.
        content: what is signed.
        ca: the authorities that may have certified the client.
        role: the role that the certificate must have; None: it has none, as that of a client.

    Raises:
        ValueError: none has, the certificate is not valid now, is that of a server or has another
            role, or its owner has not signed this.
    """
    signature, der = _parts(proof)
    certificate = x509.load_der_x509_certificate(der)
    authorities = x509.load_pem_x509_certificates(ca.read_bytes())
    if not any(has_signed(authority, certificate) for authority in authorities):
        raise ValueError("a certificate of another authority")
    if not certificate.not_valid_before_utc <= utc_now() <= certificate.not_valid_after_utc:
        raise ValueError("a certificate that is not valid now")
    with contextlib.suppress(x509.ExtensionNotFound):
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
            raise ValueError("a certificate that is not a client's")
    roles = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    if [str(one.value) for one in roles] != ([] if role is None else [role]):
        wanted = "with a role, as an operator's" if role is None else f"without the role {role}"
        raise ValueError(f"a certificate {wanted}")
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("a key of another kind")
    try:
        key.verify(signature, content, ALGORITHM)
    except InvalidSignature:
        raise ValueError("another signature") from None
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def certificate_in(proof: bytes) -> bytes:
    """Return the certificate (DER) of a proof, of which nothing is verified yet.

    Raises:
        ValueError: it is too short.
    """
    return _parts(proof)[1]


def _parts(proof: bytes) -> tuple[bytes, bytes]:
    if len(proof) < LENGTH.size:
        raise ValueError("no signature")
    (length,) = LENGTH.unpack_from(proof)
    return proof[LENGTH.size :][:length], proof[LENGTH.size + length :]
