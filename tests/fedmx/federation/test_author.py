"""A site takes part in experiments of listed authors, and no server can make one up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from fedmx import Experiment
from fedmx.errors import FedmxError
from fedmx.federation.author import author_of, sign
from fedmx.federation.messages import JobOffer, JobReply, Presence, Submit
from layers.network import make_client_certificate
from layers.network.certificates import CertificateFiles, issue
from layers.network.signing import certificate_in
from tests.fedmx.federation.test_hostile_server import Server
from tests.fedmx.standing import Standing, experiment
from tests.network.conftest import Certificates

TEXT = experiment()


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


def certified(pki: Certificates, name: str, role: str | None = "operator") -> CertificateFiles:
    return make_client_certificate(pki.folder, name, role=role)


def signed_by(files: CertificateFiles, text: str = TEXT) -> bytes:
    return sign(text, files.certificate, files.key)


def test_a_signature_is_of_one_text_one_operator_and_one_authority(tmp_path: Path) -> None:
    here, elsewhere = Certificates(tmp_path / "here"), Certificates(tmp_path / "elsewhere")
    ca = here.folder / "ca.pem"
    anna, reader = certified(here, "anna"), certified(here, "looks", "reader")
    proof = signed_by(anna)
    assert author_of(proof, TEXT, ca) == "anna"
    bonn = certified(here, "bonn", None)
    stranger = certified(elsewhere, "anna")
    key = load_pem_private_key(anna.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    same_key = issue(elsewhere.folder, "anna", key.public_key(), None, 9, "operator")
    signature = proof.removesuffix(certificate_in(proof))
    replayed = signature + same_key.public_bytes(Encoding.DER)
    with pytest.raises(ValueError, match="signature"):  # in a federation that she is in, too
        author_of(replayed, TEXT, elsewhere.folder / "ca.pem")
    refused = {
        "another text": (proof, f"{TEXT}\n"),
        "a reader": (signed_by(reader), TEXT),
        "a site": (signed_by(bonn), TEXT),
        "another authority": (signed_by(stranger), TEXT),
        "nothing": (b"", TEXT),
        "no certificate": (proof[:80], TEXT),
        "noise": (bytes(range(256)), TEXT),
    }
    for what, (wrong, text) in refused.items():
        with pytest.raises(ValueError, match=r"\w"):
            pytest.fail(f"{what}: {author_of(wrong, text, ca)}")


def test_a_site_accepts_what_a_listed_operator_has_signed(standing: Standing) -> None:
    standing.serve()
    standing.site("ulm", "authors: [anna]\n")
    with standing.operator("otto") as otto:
        found = standing.over(otto, otto.submit(experiment(clients=1), ("ulm",)))
        assert found["state"] == "failed"
        for word in ("authors", "otto"):
            assert word in found["reason"]
    with standing.operator("anna") as anna:
        job = anna.submit(experiment(clients=1), ("ulm",))
        assert standing.over(anna, job)["state"] == "done"


def test_a_server_cannot_change_or_make_up_an_experiment(standing: Standing) -> None:
    server = Server(standing)
    standing.site("ulm", "authors: [anna]\n")
    server.received(Presence)
    anna = certified(standing.certificates, "anna")
    abroad = certified(Certificates(standing.folder / "abroad"), "anna")
    mine = standing.certificates.client("mallory")
    assert mine.certificate is not None
    assert mine.key is not None
    offers = {
        experiment(rounds=1): signed_by(anna),  # the proof of another experiment
        TEXT: signed_by(abroad),  # of another federation
        experiment(rounds=3): sign(experiment(rounds=3), mine.certificate, mine.key),
        experiment(rounds=4): b"",
    }
    for number, (text, proof) in enumerate(offers.items(), 1):
        digest = Experiment.parse(text, "experiment").digest()
        server.listener.send("ulm", JobOffer(f"{number:06}", text, digest, "anna", proof))
        said = server.received(JobReply)
        assert (said.reply, "authors" in said.reason) == ("refused", True)
    good = JobOffer(
        "000009", TEXT, Experiment.parse(TEXT, "experiment").digest(), "anna", signed_by(anna)
    )
    server.listener.send("ulm", good)
    assert server.received(JobReply).reply == "accepted"
    server.listener.close(0.0)


def test_an_operator_cannot_submit_in_the_name_of_another(standing: Standing) -> None:
    standing.serve()
    with standing.operator("anna"), standing.operator("otto") as otto:
        folder = standing.certificates.folder
        proof = sign(TEXT, folder / "anna.pem", folder / "anna.key")
        for text, sent, word in ((TEXT, proof, "anna"), (experiment(rounds=1), proof, "signature")):
            with pytest.raises(FedmxError, match=word):
                otto._said(Submit(text, (), sent))
        assert otto.order("jobs")["all"] == 0
