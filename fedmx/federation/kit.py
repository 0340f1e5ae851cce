"""The startup kit of a site: one archive with what its machine needs to connect and to stay."""

from __future__ import annotations

import io
import os
import shlex
import tarfile
import time
from importlib import resources
from pathlib import Path
from string import Template

from fedmx.errors import FedmxError
from fedmx.version import __version__
from layers.network import ClientTLS, make_client_certificate
from layers.network.address import Address
from layers.network.certificates import client_name

_ENDING = ".template"
_FILLED = ("README.md", "client.env", "compose.yaml")  # a `$` of the others is a script's own
_PRIVATE, _SCRIPT, _FILE = 0o600, 0o755, 0o644


def write_kit(folder: Path, site: str, address: str, *, request: bool = False) -> Path:
    """Write the archive FOLDER/SITE.tar.gz (mode 0600), and return its path.

    Args:
        folder: of the authority. The site's certificate and key are made there unless they exist.
        site: the name of the site.
        address: of the federation, HOST:PORT.
        request: leave the certificate and the key out; the site makes its own key.

    Raises:
        FedmxError: the archive exists already or cannot be written, or a certificate is unusable.
        NetworkError: the name or the address is unusable.
    """
    Address.parse(address)
    if site.isdigit():
        raise FedmxError(f"{site}: a number is the name of no site; take another one")
    path, authority = folder / f"{client_name(site)}.tar.gz", folder / "ca.pem"
    if path.exists():
        raise FedmxError(f"{path} exists already: move it away first")
    certificates = {"ca.pem": authority}
    own, key = folder / f"{site}.pem", folder / f"{site}.key"
    if not request:
        if not own.exists():
            make_client_certificate(folder, site)
        certificates |= {own.name: own, key.name: key}
    ClientTLS(None if request else own, None if request else key, authority).context()
    try:
        files = {f"certs/{name}": one.read_bytes() for name, one in certificates.items()}
        archive = _archive(site, {**_from_templates(site, address), **files})
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as file:
            file.write(archive)
    except OSError as error:
        raise FedmxError(f"{error.filename}: {error.strerror}") from None
    return path


def _from_templates(site: str, address: str) -> dict[str, bytes]:
    given = {"site": site, "address": address, "version": __version__}
    quoted = {name: shlex.quote(value) for name, value in given.items()}
    files = {}
    for template in (resources.files("fedmx.federation") / "templates").iterdir():
        name, text = template.name.removesuffix(_ENDING), template.read_text(encoding="utf-8")
        if name in _FILLED:
            text = Template(text).substitute(quoted if name == "client.env" else given)
        files[name] = text.encode()
    return files


def _archive(site: str, files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{site}/{name}")
            member.size, member.mtime = len(content), int(time.time())
            member.mode = {".key": _PRIVATE, ".sh": _SCRIPT}.get(Path(name).suffix, _FILE)
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()
