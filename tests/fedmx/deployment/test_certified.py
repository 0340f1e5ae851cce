"""What a client signs counts for its own number, in its own run."""

from __future__ import annotations

import pytest

from fedmx.deployment.certified import Certified
from layers.network import make_client_certificate
from tests.network.conftest import Certificates


def of(certificates: Certificates, name: str, run: str = "a", *, sites: bool = True) -> Certified:
    found = Certified(certificates.client(name), name if sites else None)
    found.run = run
    return found


def test_a_signature_counts_in_its_run_and_for_its_number(certificates: Certificates) -> None:
    content = b"keys"
    two, three = (of(certificates, f"client-{one}", sites=False) for one in (2, 3))
    proof = two.sign(content)
    three.verify(2, proof, content)
    other_run = of(certificates, "client-2", "b", sites=False).sign(content)
    for number, given, what in ((3, proof, content), (2, proof, b"else"), (2, other_run, content)):
        with pytest.raises(ValueError, match="sign"):
            three.verify(number, given, what)


def test_a_site_is_one_client_and_a_number_one_site(certificates: Certificates) -> None:
    content = b"keys"
    bonn, jena, ulm = (of(certificates, name) for name in ("bonn", "jena", "ulm"))
    bonn.verify(1, jena.sign(content), content)
    bonn.verify(1, jena.sign(content), content)
    for number, who in ((2, jena), (1, ulm), (0, bonn)):
        with pytest.raises(ValueError, match=r"another|which is"):
            bonn.verify(number, who.sign(content), content)
    bonn.verify(2, ulm.sign(content), content)
    make_client_certificate(certificates.folder, "anna", role="operator")
    with pytest.raises(ValueError, match="role"):
        bonn.verify(3, of(certificates, "anna").sign(content), content)
