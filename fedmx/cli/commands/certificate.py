"""The description of a certificate, or of a list of revoked ones, in words."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedmx.errors import FedmxError

_PURPOSES = {
    ExtendedKeyUsageOID.SERVER_AUTH: "a server",
    ExtendedKeyUsageOID.CLIENT_AUTH: "a client",
}


def describe(path: Path) -> dict[str, str]:
    """Return the facts in a certificate or a revocation list (PEM), each with its label.

    Raises:
        FedmxError: the file cannot be read, or is neither.
    """
    try:
        content = path.read_bytes()
        if b"BEGIN X509 CRL" in content:
            return _describe_list(x509.load_pem_x509_crl(content))
        certificate = x509.load_pem_x509_certificate(content)
    except OSError as error:
        raise FedmxError(f"{path}: cannot be read ({error.strerror}); give a .pem file") from None
    except ValueError:
        hint = "; give the .pem beside it" if path.suffix == ".key" else ""
        raise FedmxError(f"{path}: not a certificate in PEM format{hint}") from None
    facts = {"subject": _name(certificate.subject), "purpose": _purpose(certificate)}
    names = _names(certificate)
    if names:
        facts["names"] = ", ".join(names)
    return {
        **facts,
        "serial": f"{certificate.serial_number:X}",
        "signed by": _name(certificate.issuer),
        "valid": _validity(certificate),
    }


def _describe_list(crl: x509.CertificateRevocationList) -> dict[str, str]:
    revoked = [
        f"{entry.serial_number:X} ({entry.revocation_date_utc:%Y-%m-%d %H:%M} UTC)" for entry in crl
    ]
    return {
        "purpose": "the list of the revoked certificates",
        "signed by": _name(crl.issuer),
        "written": f"{crl.last_update_utc:%Y-%m-%d}",
        "revoked": ", ".join(revoked) or "nobody",
    }


def _name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _purpose(certificate: x509.Certificate) -> str:
    extensions = certificate.extensions
    try:
        if extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return "an authority, which signs certificates"
    except x509.ExtensionNotFound:
        pass
    try:
        usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return "any"
    return " and ".join(_PURPOSES.get(usage, usage.dotted_string) for usage in usages)


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in found.value]


def _validity(certificate: x509.Certificate) -> str:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = datetime.datetime.now(datetime.timezone.utc)
    days = (ends - now).days
    state = "not yet" if now < begins else "expired" if now > ends else f"{days:,} days left"
    return f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d} ({state})"
