"""Certificates for the network tests: of a CA, a server and clients, and of another CA."""

import os
import shutil
from pathlib import Path

import pytest

from layers.network import (
    ClientTLS,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_crl,
    make_server_certificate,
)


class Certificates:
    """A folder of certificates made by the project's own functions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "ca.key").exists():
            make_ca(folder)
            make_server_certificate(folder)

    @property
    def server(self) -> ServerTLS:
        return ServerTLS(
            self.folder / "server.pem", self.folder / "server.key", self.folder / "ca.pem"
        )

    @property
    def files(self) -> dict[str, str]:
        """The server's, as `network.tls` names them."""
        tls = self.server
        return {"ca": str(tls.ca), "certificate": str(tls.certificate), "key": str(tls.key)}

    def client(self, identity: str) -> ClientTLS:
        if not (self.folder / f"{identity}.pem").exists():
            make_client_certificate(self.folder, identity)
        return ClientTLS(
            self.folder / f"{identity}.pem", self.folder / f"{identity}.key", self.folder / "ca.pem"
        )


class Authority(Certificates):
    """A folder with changing certificates and a revocation list."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        make_crl(folder)

    @property
    def server(self) -> ServerTLS:
        tls = super().server
        return ServerTLS(tls.certificate, tls.key, tls.ca, crl=self.folder / "crl.pem")

    def put(self, name: str, source: Path) -> None:
        """Replace NAME.pem and NAME.key by those of another folder, one after the other."""
        for kind in ("key", "pem"):
            shutil.copy(source / f"{name}.{kind}", self.folder / f"new.{kind}")
            os.replace(self.folder / f"new.{kind}", self.folder / f"{name}.{kind}")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("strangers"))
