"""Certificates that end while they are used: warnings before, and peers that wait for new ones."""

import datetime
import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from layers.network import (
    CertificateExpires,
    Connected,
    Connector,
    Joined,
    Listener,
    Retrying,
    make_ca,
    make_client_certificate,
    make_server_certificate,
    tls,
)
from layers.network.certificates import authority_of
from layers.network.expiry import REVOCATION_LIST, Expiry, Reminder
from tests.network.conftest import Authority
from tests.network.test_certificate_renewal import another_certificate
from tests.network.wire_messages import CODEC, QUICK, await_event

NOW = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.timezone.utc)


def days(number: float) -> datetime.timedelta:
    return datetime.timedelta(days=number)


def ending(folder: Path, *, in_days: int) -> Authority:
    """An authority whose files all end soon."""
    make_ca(folder, days=in_days)
    make_server_certificate(folder, days=in_days)
    make_client_certificate(folder, "client-1", days=in_days)
    return Authority(folder)


def test_an_end_is_told_from_fourteen_days_before_once_a_day_and_when_it_has_come() -> None:
    end, reminder = Expiry("certificate", Path("server.pem"), NOW), Reminder()
    told = [
        [event.expiry for event in reminder.due([end], NOW - days(left))]
        for left in (14.1, 14, 13.9, 13.5, 12.9, 0.5, 0.1, -0.1, -0.5, -1.1)
    ]
    assert [len(one) for one in told] == [0, 1, 1, 0, 1, 1, 0, 1, 0, 1]
    for left, words in ((12.5, "in 12 days"), (1.5, "in 1 day"), (0.5, "in less than a day")):
        assert f"expires {words} (2026-11-25 12:00 UTC)" in (end.warning(NOW - days(left)) or "")
    assert "expired on 2026-11-25 12:00" in (end.warning(NOW + days(0.1)) or "")


def test_a_replaced_file_is_a_new_end() -> None:
    reminder = Reminder()
    for at in (NOW, NOW + days(1), NOW + days(400)):
        told = reminder.due([Expiry("certificate", Path("server.pem"), at)], NOW - days(5))
        assert len(told) == (at < NOW + days(9))


def test_both_ends_tell_which_of_their_files_end_soon(tmp_path: Path) -> None:
    authority = ending(tmp_path / "pki", in_days=10)
    with Listener("127.0.0.1:0", CODEC, tls=authority.server) as listener:
        found = [await_event(listener, CertificateExpires) for _ in range(3)]
        assert [one.expiry.what for one in found] == ["certificate", "authority", REVOCATION_LIST]
        assert [one.expiry.path.name for one in found] == ["server.pem", "ca.pem", "crl.pem"]
        assert {one.expiry for one in found} == set(listener.ends)
        mine = authority.client("client-1")
        with Connector(listener.address, "client-1", CODEC, tls=mine) as connector:
            told = await_event(connector, CertificateExpires)
            assert (told.expiry.what, told.expiry.path) == ("certificate", mine.certificate)


def test_files_that_end_later_are_not_told(tmp_path: Path) -> None:
    authority = ending(tmp_path / "pki", in_days=20)
    with Listener("127.0.0.1:0", CODEC, tls=authority.server) as listener:
        assert len(listener.ends) == 3
        mine = authority.client("client-1")
        with Connector(listener.address, "client-1", CODEC, tls=mine) as connector:
            events: list[object] = []
            while not isinstance(event := listener.next_event(60), Joined):
                events.append(event)
            while not isinstance(event := connector.next_event(60), Connected):
                events.append(event)
            assert events == []


def expired_server(authority: Authority, folder: Path) -> Path:
    """A folder with a certificate of the server that was valid until yesterday."""
    own = x509.load_pem_x509_certificate((authority.folder / "server.pem").read_bytes())
    _, ca_key = authority_of(authority.folder)
    builder = x509.CertificateBuilder(own.issuer, own.subject, own.public_key(), 7)
    builder = builder.not_valid_before(own.not_valid_before_utc - days(9))
    builder = builder.not_valid_after(own.not_valid_before_utc - days(1))
    for one in own.extensions:
        builder = builder.add_extension(one.value, one.critical)
    folder.mkdir()
    shutil.copy(authority.folder / "server.key", folder)
    (folder / "server.pem").write_bytes(
        builder.sign(ca_key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    return folder


def test_a_client_waits_for_a_server_whose_certificate_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "pki")
    fresh = another_certificate(authority, tmp_path / "fresh")
    authority.put("server", expired_server(authority, tmp_path / "late"))
    # A server that began before the end goes on with what it has.
    monkeypatch.setattr(tls, "_valid", lambda certificate, *_: certificate)
    with Listener("127.0.0.1:0", CODEC, tls=authority.server) as listener:
        assert "expired on" in await_event(listener, CertificateExpires).reason
        mine = authority.client("client-1")
        with Connector(listener.address, "client-1", CODEC, tls=mine, backoff=QUICK) as connector:
            for _ in range(2):
                assert "has expired" in await_event(connector, Retrying).reason
            authority.put("server", fresh)
            await_event(connector, Connected)
            assert await_event(listener, Joined).peer == "client-1"


def test_the_dates_are_those_of_the_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    own, ca, crl = authority.server.ends()
    certificate = x509.load_pem_x509_certificate((authority.folder / "server.pem").read_bytes())
    assert own.at == certificate.not_valid_after_utc
    assert ca.at == crl.at > own.at
