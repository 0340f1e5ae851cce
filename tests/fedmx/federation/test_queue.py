"""The queue of a federation goes on whatever one of its jobs is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx.federation.ledger import Ledger
from fedmx.federation.messages import JobOffer
from fedmx.federation.offers import EXPERIMENT, PROOF, Offers, Site
from tests.fedmx.standing import experiment

TEXT = experiment(clients=1)


@pytest.mark.parametrize(
    ("text", "proof", "word"),
    [
        (TEXT.replace("engine: numpy", "engin: numpy"), b"x", "engin"),
        ("", b"x", EXPERIMENT),
        (TEXT, None, PROOF),
    ],
    ids=["another version's key", "empty", "no proof"],
)
def test_a_queued_job_that_cannot_be_read_fails_and_the_next_one_is_offered(
    tmp_path: Path, text: str, proof: bytes | None, word: str
) -> None:
    ledger, offered = Ledger(tmp_path), []
    failed: dict[str, str] = {}
    for name, words, signed in (("000001", text, proof), ("000002", TEXT, b"x")):
        folder = tmp_path / "jobs" / name
        folder.mkdir(parents=True)
        (folder / EXPERIMENT).write_text(words)
        if signed is not None:
            (folder / PROOF).write_bytes(signed)
        ledger.add("anna", "submit", job=name, name="one", digest="", asked=[])

    def send(site: str, message: object) -> bool:
        assert isinstance(message, JobOffer)
        offered.append(message.job)
        return True

    sites = {"ulm": Site("ulm", "127.0.0.1:5")}
    offers = Offers(tmp_path / "jobs", (), ledger, sites, send, failed.__setitem__)
    assert [*offers.ready(lambda: True)] == []
    assert (offered, [*failed]) == (["000002"], ["000001"])
    assert word in failed["000001"]
