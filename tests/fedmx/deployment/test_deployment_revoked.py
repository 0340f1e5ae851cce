"""A client whose certificate is revoked in the middle of a round: it is lost, and no more."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from layers.network import revoke
from tests.fedmx.command_line import fedmx
from tests.fedmx.scripted import Scripted, after_one_round, fleet, honest, listening, update_of
from tests.network.conftest import Authority


def test_the_update_of_a_revoked_client_does_not_count_and_nobody_waits(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    half_sent = threading.Event()

    def half_an_update(client: Scripted) -> None:
        whole = client.frames(update_of(client.task()))
        client.raw(whole[: len(whole) // 2])
        half_sent.set()
        client.until_told()

    def revoke_it() -> None:
        half_sent.wait(60)
        revoke(authority.folder, [authority.folder / "client-2.pem"])

    # So long that the test would end first if anybody waited for the client to come back.
    server = listening(authority, last=3, wait_for=3, rejoin_s=3600.0)
    start = server.weights.copy()
    revoking = threading.Thread(target=revoke_it)
    revoking.start()
    with server, fleet(server, authority, {0: honest, 1: honest, 2: half_an_update}) as clients:
        rounds = server.rounds()
        first = next(rounds)
        (reported,) = [one for one in first.report.clients if one.client == 2]
        assert (reported.status, "revoked" in reported.reason) == ("rejected", True)
        assert first.participants == (0, 1)
        assert np.array_equal(server.weights, after_one_round(start, (0, 1)))
        clients[2].wait()
        assert "revoked" in clients[2].over
        # It is no client of the run any more, until it has another certificate.
        assert [one.client for one in next(rounds).report.clients] == [0, 1]
        for kind in ("pem", "key"):
            (authority.folder / f"client-2.{kind}").rename(authority.folder / f"old.{kind}")
        with fleet(server, authority, {2: honest}):
            while len(server.network.open_round(server.state)[1]) < 3:
                pass  # it joins
            assert next(rounds).participants == (0, 1, 2)
    revoking.join()


def test_the_command_revokes_a_client_by_its_number_or_its_certificate(tmp_path: Path) -> None:
    made = fedmx("certs", "all", "pki", "--clients", "3", cwd=tmp_path)
    assert (made.code, "--crl crl.pem" in made.out) == (0, True)
    assert "nobody" in fedmx("certs", "show", "pki/crl.pem", cwd=tmp_path).out
    done = fedmx("certs", "revoke", "pki", "1", "pki/client-2.pem", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "pki/client-1.pem, pki/client-2.pem" in done.out
    shown = fedmx("certs", "show", "pki/crl.pem", cwd=tmp_path).out
    for number, listed in ((0, False), (1, True), (2, True)):
        text = fedmx("certs", "show", f"pki/client-{number}.pem", cwd=tmp_path).out
        (serial,) = [line.split()[1] for line in text.splitlines() if line.startswith("serial:")]
        assert (serial in shown) is listed
    assert "pki/client-7.pem cannot be read" in (
        fedmx("certs", "revoke", "pki", "7", cwd=tmp_path).error_text
    )
    assert "only servers read the list" in (
        fedmx("certs", "revoke", "pki", "pki/server.pem", cwd=tmp_path).error_text
    )
