"""A deployed client's certificate as its identity among the clients of a run."""

from __future__ import annotations

from dataclasses import dataclass

from fedmx.deployment.client_sessions import identity
from layers.network import ClientTLS
from layers.network.signing import signed_with, signer_of


@dataclass(frozen=True)
class Certified:
    """What a client signs with its certificate, and verifies of the others; see `Identity`.

    The files are read each time, since they may be renewed.

    Attributes:
        tls: the client's files.
    """

    tls: ClientTLS

    def sign(self, content: bytes) -> bytes:
        """Return a proof that this client has signed this."""
        assert self.tls.certificate is not None
        assert self.tls.key is not None
        return signed_with(self.tls.certificate, self.tls.key, content)

    def verify(self, client: int, proof: bytes, content: bytes) -> None:
        """Check that a client of this number has signed this.

        Raises:
            ValueError: it has not.
        """
        if (name := signer_of(proof, content, self.tls.ca)) != identity(client):
            raise ValueError(f"signed by {name}")
