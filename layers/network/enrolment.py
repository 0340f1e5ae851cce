"""Signing requests (PKCS #10, RFC 2986): keys stay where they are made, and requests travel."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from layers.network.certificates import (
    SERVER_NAME,
    client_name,
    issue,
    load_pem,
    locked,
    replace,
    server_names,
    write_with_key,
)
from layers.network.errors import CertificateError

CURVES = (ec.SECP256R1, ec.SECP384R1)


@dataclass(frozen=True)
class RequestFiles:
    """Where a signing request and its private key (mode 0600) were written, as PEM.

    Attributes:
        request: the request.
        key: the private key, which stays on this machine.
        fingerprint: SHA-256 of the public key, in hexadecimal digits.
    """

    request: Path
    key: Path
    fingerprint: str


@dataclass(frozen=True)
class Signed:
    """A signed request.

    Attributes:
        certificate: the certificate's file.
        names: the names and addresses of a server; empty for a client.
        fingerprint: SHA-256 of the public key, in hexadecimal digits.
        replaced: the file of the certificate before, which stays valid; None: there was none.
    """

    certificate: Path
    names: tuple[str, ...]
    fingerprint: str
    replaced: Path | None


def request_client(folder: Path, identity: str) -> RequestFiles:
    """Make a client's key and its signing request: FOLDER/IDENTITY.key and .csr.

    Raises:
        CertificateError: a bad identity, or one of the files exists already.
    """
    return _request(Path(folder), identity, client_name(identity), None)


def request_server(folder: Path, names: Sequence[str]) -> RequestFiles:
    """Make a server's key and its signing request: FOLDER/server.key and .csr.

    Raises:
        CertificateError: no or bad names, or one of the files exists already.
    """
    alternatives = server_names(names)
    return _request(Path(folder), SERVER_NAME, names[0][:64], alternatives)


def sign_client(
    folder: Path, request: Path, identity: str, *, again: bool = False, days: int = 825
) -> Signed:
    """Sign a client's request with the authority in a folder: FOLDER/IDENTITY.pem.

    Args:
        folder: the folder of the authority and of the certificates that it has signed.
        request: the request; it must be for `identity`.
        identity: the name of the client.
        again: whether the client may have a certificate already; it is kept under another name.
        days: the validity of the certificate.

    Raises:
        CertificateError: the request is damaged, for another name, or has a weak key or that of
            another certificate; the client has a certificate; or there is no authority.
    """
    asked, key = _verified(request)
    found = [str(one.value) for one in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if found != [client_name(identity)] or len(list(asked.subject)) != 1:
        raise CertificateError(
            f"{request} asks for the name {asked.subject.rfc4514_string()!r}, not for {identity}: "
            f"make it with fedmx certs request, or rename it if the name is right"
        )
    return _sign(Path(folder), request, identity, identity, key, None, again, days)


def sign_server(folder: Path, request: Path, *, again: bool = False, days: int = 825) -> Signed:
    """Sign a server's request with the authority in a folder: FOLDER/server.pem.

    The names and addresses are those of the request; see `sign_client` for the rest.
    """
    asked, key = _verified(request)
    names = _names_in(asked)
    return _sign(
        Path(folder), request, SERVER_NAME, (names or ("",))[0][:64], key, names, again, days
    )


def _request(
    folder: Path, file_name: str, common_name: str, names: x509.SubjectAlternativeName | None
) -> RequestFiles:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    content = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    paths = folder / f"{file_name}.csr", folder / f"{file_name}.key"
    write_with_key(paths[0], content, paths[1], key)
    return RequestFiles(*paths, fingerprint(key.public_key()))


def _verified(path: Path) -> tuple[x509.CertificateSigningRequest, ec.EllipticCurvePublicKey]:
    """Return a request and its key, whose owner has signed the request."""
    kind, advice = "a signing request", "make it with fedmx certs request"
    request = load_pem(path, x509.load_pem_x509_csr, kind, advice)
    key = request.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, CURVES):
        raise CertificateError(
            f"{path} has a key of another kind than P-256 or P-384: make it with fedmx certs "
            "request"
        )
    if not request.is_signature_valid:
        raise CertificateError(f"{path} was not signed with its own key, or has changed since")
    return request, key


def _names_in(request: x509.CertificateSigningRequest) -> tuple[str, ...]:
    with contextlib.suppress(x509.ExtensionNotFound):
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return tuple(str(name.value) for name in found)
    return ()


def _sign(
    folder: Path,
    request: Path,
    file_name: str,
    common_name: str,
    key: ec.EllipticCurvePublicKey,
    names: tuple[str, ...] | None,
    again: bool,
    days: int,
) -> Signed:
    path = folder / f"{file_name}.pem"
    with locked(folder):
        before = None
        for known, certificate in _certificates_in(folder):
            if known == path:
                before = certificate
            elif certificate.public_key() == key and not known.name.startswith(f"{file_name}."):
                raise CertificateError(
                    f"{request} has the key of {known}: each machine makes its own with fedmx "
                    "certs request"
                )
        if path.exists() and not again:
            raise CertificateError(
                f"{path} exists already, and stays valid: give --again to sign another one, and "
                "revoke the old one if its key may be in other hands"
            )
        alternatives = None if names is None else server_names(names)
        signed = issue(folder, common_name, key, alternatives, days)
        kept = None
        if before is not None:  # so that it can be revoked
            kept = folder / f"{file_name}.{before.serial_number:X}.pem"
            replace(kept, before.public_bytes(Encoding.PEM))
        replace(path, signed.public_bytes(Encoding.PEM))
    return Signed(path, names or (), fingerprint(key), kept)


def _certificates_in(folder: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    for path in sorted(folder.glob("*.pem")):
        with contextlib.suppress(OSError, ValueError):
            yield path, x509.load_pem_x509_certificate(path.read_bytes())


def fingerprint(key: Any) -> str:
    """Return the SHA-256 of a public key, in hexadecimal digits."""
    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(content).hexdigest()
