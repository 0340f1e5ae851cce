"""A deployed client's certificate as its identity among the clients of a run."""

from __future__ import annotations

from fedmx.deployment.names import identity
from layers.network import ClientTLS
from layers.network.signing import signed_with, signer_of


class Certified:
    """What a client signs with its certificate, and verifies of the others; see `Identity`.

    The files are read each time, since they may be renewed. What is signed names the run, so that
    it counts in no other one.

    Args:
        tls: the client's files.
        site: the client's name, where clients have the names of sites; None: they are client-N.

    Attributes:
        run: name of the run, from the server's setup.
    """

    def __init__(self, tls: ClientTLS, site: str | None = None) -> None:
        self._tls = tls
        self.run = ""
        self._named = None if site is None else {site: -1}  # the number of each site, -1: this one

    def sign(self, content: bytes) -> bytes:
        """Return a proof that this client has signed this."""
        assert self._tls.certificate is not None
        assert self._tls.key is not None
        return signed_with(self._tls.certificate, self._tls.key, self._in_run(content))

    def verify(self, client: int, proof: bytes, content: bytes) -> None:
        """Check that a client of this number has signed this.

        The number of a site is known from the server alone. So a number counts for the first site
        that has signed as it, and a site for one number: a server cannot be two clients by one
        certificate, nor be this client.

        Raises:
            ValueError: it has not.
        """
        name = signer_of(proof, self._in_run(content), self._tls.ca)
        if self._named is None:
            if name != identity(client):
                raise ValueError(f"signed by {name}")
        elif self._named.setdefault(name, client) != client:
            raise ValueError(f"signed by {name}, which is another client")
        elif list(self._named.values()).count(client) > 1:
            del self._named[name]
            raise ValueError(f"signed by {name}, and this client is another site")

    def _in_run(self, content: bytes) -> bytes:
        return f"fedmx run {self.run}: ".encode() + content
