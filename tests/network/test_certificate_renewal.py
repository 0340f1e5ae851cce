"""Renewed certificates, and revoked clients."""

from __future__ import annotations

import datetime
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from layers.network import (
    CertificateError,
    CertificatesRefused,
    CertificatesRenewed,
    ClientTLS,
    Connected,
    ConnectionRejected,
    Connector,
    Disconnected,
    GaveUp,
    Joined,
    Left,
    Limits,
    Listener,
    Received,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_crl,
    make_server_certificate,
    revoke,
)
from layers.network.certificates import Newest, next_updates, read_crl, replace
from layers.network.errors import NotConnected
from layers.network.tls import Renewed, serial_number
from tests.network.conftest import Authority, Certificates
from tests.network.wire_messages import CODEC, QUICK, Note, await_event, joined, raw_session, until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def shown_by(connector: Connector) -> int | None:
    """The serial number of the server's certificate."""
    return serial_number(connector._open.certificate)  # type: ignore[union-attr]


def another_certificate(authority: Authority, folder: Path, identity: str = "") -> Path:
    """A folder with another certificate of the same authority, for the server or a client."""
    folder.mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.copy(authority.folder / name, folder / name)
    if identity:
        make_client_certificate(folder, identity)
    else:
        make_server_certificate(folder)
    return folder


def test_new_connections_see_a_new_certificate_and_old_sessions_continue(
    authority: Authority, tmp_path: Path
) -> None:
    fresh = another_certificate(authority, tmp_path / "fresh")
    with joined(tls=authority) as (listener, first):
        before = serial(authority.folder / "server.pem")
        assert shown_by(first) == before
        authority.put("server", fresh)
        assert await_event(listener, CertificatesRenewed).what == "certificate"
        tls = authority.client("client-2")
        with Connector(listener.address, "client-2", CODEC, tls=tls) as second:
            await_event(second, Connected)
            assert shown_by(second) == serial(fresh / "server.pem") != before
            first.send(Note("still here"))
            assert await_event(listener, Received).message == Note("still here")


@pytest.mark.parametrize("kind", ["garbage", "missing", "another CA's", "another key"])
def test_a_bad_new_certificate_is_refused_once_and_the_old_one_stays(
    kind: str, authority: Authority, strangers: Certificates
) -> None:
    path = authority.folder / "server.pem"
    before = serial(path)
    with Listener("127.0.0.1:0", CODEC, tls=authority.server) as listener:
        if kind == "garbage":
            path.write_text("no certificate")
        elif kind == "missing":
            path.unlink()
        elif kind == "another CA's":
            authority.put("server", strangers.folder)
        else:
            make_server_certificate(authority.folder, file_name="other")
            shutil.copy(authority.folder / "other.key", authority.folder / "server.key")
        reason = await_event(listener, CertificatesRefused).reason
        assert str(authority.folder / "server.") in reason
        assert "\n" not in reason
        listener.renew_certificates()  # nothing has changed, so nothing is reported
        with Connector(
            listener.address, "client-1", CODEC, tls=authority.client("client-1")
        ) as connector:
            await_event(connector, Connected)
            assert shown_by(connector) == before
            event = listener.next_event(20.0)
            assert isinstance(event, Joined), event


def test_files_replaced_one_after_the_other_are_not_reported() -> None:
    content = {"good": True}

    def make() -> int:
        if not content["good"]:
            raise CertificateError("they do not fit")
        return content["version"]

    content |= {"version": 1}
    stamps = {"now": 1}
    value = Renewed[int]((), make)
    value._used = 1  # type: ignore[assignment]
    value._stamps = lambda: stamps["now"]  # type: ignore[method-assign,assignment,return-value]
    assert not value.check()
    stamps["now"], content["good"] = 2, False  # the certificate is new, the key is not yet
    assert not value.check()
    stamps["now"], content["good"], content["version"] = 3, True, 2
    assert value.check()
    assert value.value == 2
    stamps["now"], content["good"] = 4, False
    assert not value.check()
    with pytest.raises(CertificateError, match="do not fit"):
        value.check()
    assert not value.check()  # it was reported
    assert value.value == 2


def test_a_client_reconnects_with_its_new_certificate(authority: Authority, tmp_path: Path) -> None:
    folder = another_certificate(authority, tmp_path / "fresh", "client-1")
    with joined(tls=authority) as (listener, connector):
        authority.put("client-1", folder)
        listener.disconnect("client-1", "come back", final=False)
        await_event(connector, Disconnected)
        assert await_event(connector, CertificatesRenewed).what == "certificate"
        await_event(listener, Joined)
        (connection,) = [one for one in listener._connections if not one.session.ended]
        assert serial_number(connection.certificate) == serial(folder / "client-1.pem")


def test_a_client_notices_a_new_certificate_while_it_stays_connected(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layers.network.connector.CERTIFICATE_CHECK_S", 0.02)
    folder = another_certificate(authority, tmp_path / "fresh", "client-1")
    with joined(tls=authority) as (listener, connector):
        address = listener._peers["client-1"].address
        authority.put("client-1", folder)
        assert await_event(connector, CertificatesRenewed).what == "certificate"
        listener.send("client-1", Note("for this connection"), str(address))
        assert await_event(connector, Received).message == Note("for this connection")


def test_a_client_keeps_its_certificate_when_the_new_one_is_bad(authority: Authority) -> None:
    with joined(tls=authority) as (listener, connector):
        (authority.folder / "client-1.pem").write_text("")
        listener.disconnect("client-1", "come back", final=False)
        assert "client-1.pem" in await_event(connector, CertificatesRefused).reason
        await_event(listener, Joined)


def test_two_authorities_in_one_file_are_both_trusted(
    authority: Authority, strangers: Certificates
) -> None:
    both = authority.folder / "both.pem"
    authorities = [one.folder / "ca.pem" for one in (strangers, authority)]
    both.write_bytes(b"".join(path.read_bytes() for path in authorities))
    own = authority.server
    tls = ServerTLS(own.certificate, own.key, both, crl=own.crl)
    with Listener("127.0.0.1:0", CODEC, tls=tls) as listener:
        for one, name in ((authority, "client-1"), (strangers, "client-2")):
            client = one.client(name)
            trusting = ClientTLS(client.certificate, client.key, both)
            with Connector(listener.address, name, CODEC, tls=trusting):
                assert await_event(listener, Joined).peer == name


def test_a_revoked_client_stays_disconnected_and_others_continue(authority: Authority) -> None:
    with joined(tls=authority) as (listener, other):
        bad = authority.client("client-2")
        with Connector(listener.address, "client-2", CODEC, tls=bad, backoff=QUICK) as thief:
            assert await_event(listener, Joined).peer == "client-2"
            revoke(authority.folder, [authority.folder / "client-2.pem"])
            rejected = await_event(listener, ConnectionRejected)
            assert (rejected.peer, rejected.final) == ("client-2", True)
            assert "revoked" in rejected.reason
            assert await_event(listener, Left) == Left("client-2", rejected.reason)
            gave_up = await_event(thief, GaveUp)
            assert (gave_up.final, "revoked" in gave_up.reason) == (True, True)
            with pytest.raises(NotConnected):
                listener.send("client-2", Note("a task"))
            other.send(Note("still here"))
            assert await_event(listener, Received).message == Note("still here")
        with Connector(listener.address, "client-2", CODEC, tls=bad) as again:
            assert "revoked" in await_event(again, GaveUp).reason
            rejected = await_event(listener, ConnectionRejected)
            assert (rejected.peer, "revoked" in rejected.reason) == ("client-2", True)


def test_queued_messages_of_a_revoked_client_are_dropped(authority: Authority) -> None:
    with joined("client-2", tls=authority) as (listener, thief):
        thief.send(Note("an update"))
        until(lambda: len(listener._events) == 1)
        revoke(authority.folder, [authority.folder / "client-2.pem"])
        await_event(thief, GaveUp)
        seen = list(iter(lambda: listener.next_event(0.0), None))
        assert not any(isinstance(event, Received) for event in seen)
        assert ConnectionRejected in {type(event) for event in seen}


def test_revoking_an_old_certificate_drops_no_message_of_the_new_one(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layers.network.listener.CERTIFICATE_CHECK_S", 3600.0)
    old = authority.client("client-1")
    folder = another_certificate(authority, tmp_path / "fresh", "client-1")
    new = ClientTLS(folder / "client-1.pem", folder / "client-1.key", old.ca)
    limits = Limits(linger_s=3600)  # the older connection stays until its client closes it
    with Listener("127.0.0.1:0", CODEC, tls=authority.server, limits=limits) as listener:
        raw = raw_session(listener, "client-1", tls=old)
        with Connector(listener.address, "client-1", CODEC, tls=new) as connector:
            await_event(connector, Connected)
            connector.send(Note("with the new certificate"))
            until(lambda: len(listener._events) == 3)  # left, joined, and the note
            assert len(listener._connections) == 2
            revoke(authority.folder, [authority.folder / "client-1.pem"])
            renewed = threading.Event()
            listener.renew_certificates()
            listener._soon(renewed.set)
            assert renewed.wait(60)
            seen = list(iter(lambda: listener.next_event(0.0), None))
            assert CertificatesRenewed("revocation list") in seen
            notes = [event.message for event in seen if isinstance(event, Received)]
            assert notes == [Note("with the new certificate")]
        raw.close()


def test_a_file_that_cannot_be_written_is_named_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, words in ((tmp_path / "absent" / "crl.pem", "No such file"), (folder, "Is a dir")):
        with pytest.raises(CertificateError, match=rf"{path} cannot be written: {words}"):
            replace(path, b"content")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("which", ["another authority's", "older"])
def test_a_list_of_another_authority_or_an_older_one_does_not_replace_the_one_in_use(
    authority: Authority, tmp_path: Path, which: str
) -> None:
    tls, older = authority.client("client-2"), (authority.folder / "crl.pem").read_bytes()
    revoke(authority.folder, [authority.folder / "client-2.pem"])
    with Listener("127.0.0.1:0", CODEC, tls=authority.server) as listener:
        other = Authority(tmp_path / "other").folder / "crl.pem"
        content = older if which == "older" else other.read_bytes()
        (authority.folder / "crl.pem").write_bytes(content)
        reason = await_event(listener, CertificatesRefused).reason
        for words in ("(number 1 of", "(number 2 of") if which == "older" else ("not signed",):
            assert words in reason
        with Connector(listener.address, "client-2", CODEC, tls=tls) as thief:
            assert "revoked" in await_event(thief, GaveUp).reason


def test_a_file_of_several_lists_is_not_extended(authority: Authority) -> None:
    authority.client("client-2")
    path = authority.folder / "crl.pem"
    path.write_bytes(both := 2 * path.read_bytes())
    with pytest.raises(CertificateError, match="has 2 lists"):
        revoke(authority.folder, [authority.folder / "client-2.pem"])
    assert path.read_bytes() == both


@pytest.mark.parametrize("order", [1, -1])
def test_revocation_lists_of_two_authorities_in_one_file_both_count(
    authority: Authority, tmp_path: Path, order: int
) -> None:
    theirs = (authority, "client-1"), (Authority(tmp_path / "other"), "client-2")
    clients = {one: one.client(name) for one, name in theirs}
    for one, name in theirs:
        revoke(one.folder, [one.folder / f"{name}.pem"])

    def joined(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join((one.folder / name).read_bytes() for one, _ in theirs[::order]))
        return path

    own, both = authority.server, joined("ca.pem")
    tls = ServerTLS(own.certificate, own.key, both, crl=joined("crl.pem"))
    with Listener("127.0.0.1:0", CODEC, tls=tls) as listener:
        for one, name in theirs:
            mine = ClientTLS(clients[one].certificate, clients[one].key, both)
            with Connector(listener.address, name, CODEC, tls=mine) as thief:
                assert "revoked" in await_event(thief, GaveUp).reason
    with pytest.raises(CertificateError, match=r"list \d of 2"):
        ServerTLS(own.certificate, own.key, own.ca, crl=tmp_path / "crl.pem").revoked()
    whole, wrong = (tmp_path / "crl.pem").read_bytes(), tmp_path / "wrong.pem"
    for content in (whole[:-60], whole + both.read_bytes(), both.read_bytes() + whole, b""):
        wrong.write_bytes(content)
        with pytest.raises(CertificateError, match="is not a revocation list"):
            ServerTLS(own.certificate, own.key, both, crl=wrong).revoked()


def test_each_of_two_authorities_with_one_name_has_its_own_newest_list(tmp_path: Path) -> None:
    folders, path = [tmp_path / "one", tmp_path / "other"], tmp_path / "crl.pem"
    for folder in folders:
        make_ca(folder)
        make_crl(folder)
    one, other = (x509.load_pem_x509_certificate((f / "ca.pem").read_bytes()) for f in folders)
    assert one.subject == other.subject
    older = (folders[1] / "crl.pem").read_bytes()
    files = [make_client_certificate(folders[1], f"client-{n}").certificate for n in (1, 2)]
    serials = [serial(file) for file in files]
    newest: Newest = {}

    def read(*lists: bytes, trusted: Sequence[x509.Certificate] = (one, other)) -> set[int]:
        path.write_bytes(b"".join(lists))
        return set(read_crl(path, trusted, newest))

    first = (folders[0] / "crl.pem").read_bytes()
    revoke(folders[1], files[:1])
    second = (folders[1] / "crl.pem").read_bytes()
    for lists in ((first, second), (second, first)):
        assert read(*lists) == set(serials[:1])
    assert sorted(number for number, _ in newest.values()) == [1, 2]
    revoke(folders[1], files[1:])
    assert read(first, (folders[1] / "crl.pem").read_bytes()) == set(serials)
    known = dict(newest)
    assert sorted(number for number, _ in known.values()) == [1, 3]
    with pytest.raises(CertificateError, match=r"\(number 1 of .* \(number 3 of "):
        read(first, older)
    with pytest.raises(CertificateError, match="lacks 1 of the lists in use"):
        read(first)
    assert newest == known
    assert read(first, trusted=[one]) == set()


def test_a_list_without_a_number_can_be_extended(authority: Authority) -> None:
    key = load_pem_private_key((authority.folder / "ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((authority.folder / "ca.pem").read_bytes()).subject
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer)
    builder = builder.last_update(now).next_update(now + datetime.timedelta(days=1))
    made = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path = authority.folder / "crl.pem"
    path.write_bytes(made.public_bytes(Encoding.PEM))
    certificate = authority.client("client-1").certificate or Path()
    revoke(authority.folder, [certificate])
    assert authority.server.revoked() == {serial(certificate)}
    assert number_of(path) == 1
    path.write_bytes(2 * made.public_bytes(Encoding.PEM))
    assert len(set(next_updates(path))) == 1


def number_of(path: Path) -> int:
    crl = x509.load_pem_x509_crl(path.read_bytes())
    return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def test_a_list_is_dated_back_and_valid_as_long_as_its_authority_or_a_day(tmp_path: Path) -> None:
    files = make_ca(tmp_path)
    certificate = make_client_certificate(tmp_path, "client-1").certificate
    path = tmp_path / "crl.pem"

    def dates(number: int) -> tuple[datetime.datetime, datetime.datetime]:
        assert revoke(tmp_path, [certificate]) == path
        assert number_of(path) == number
        crl = x509.load_pem_x509_crl(path.read_bytes())
        (due,) = next_updates(path)
        signer = crl.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
        assert (signer.value.key_identifier, signer.critical) == (own.digest, False)
        return crl.last_update_utc, due

    ca = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    made, due = dates(1)
    assert due == ca.not_valid_after_utc
    # The list was made at most a minute after the authority, whose dates begin as long ago.
    assert datetime.timedelta(0) <= made - ca.not_valid_before_utc < datetime.timedelta(minutes=1)
    key = load_pem_private_key(files.key.read_bytes(), None)
    day = datetime.timedelta(days=1)
    expired = x509.CertificateBuilder(ca.subject, ca.subject, ca.public_key(), 1)
    expired = expired.not_valid_before(made - 9 * day).not_valid_after(made - day)
    signed = expired.add_extension(own, critical=False).sign(key, hashes.SHA256())  # type: ignore[arg-type]
    files.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    made, due = dates(2)
    assert due - made == day + datetime.timedelta(minutes=10)


def test_a_revoked_client_may_join_with_a_new_certificate(authority: Authority) -> None:
    authority.client("client-2")
    revoke(authority.folder, [authority.folder / "client-2.pem"])
    for kind in ("pem", "key"):
        (authority.folder / f"client-2.{kind}").rename(authority.folder / f"old.{kind}")
    with joined("client-2", tls=authority) as (listener, _):
        assert listener.peers == {"client-2"}


def test_revocations_accumulate_and_errors_leave_the_list_unchanged(
    authority: Authority, strangers: Certificates
) -> None:
    paths = [authority.client(f"client-{n}").certificate or Path() for n in (1, 2, 3)]
    revoke(authority.folder, paths[:1])
    revoke(authority.folder, paths)
    assert authority.server.revoked() == {serial(path) for path in paths}
    crl = x509.load_pem_x509_crl((authority.folder / "crl.pem").read_bytes())
    number = crl.extensions.get_extension_for_class(x509.CRLNumber)
    assert (number.value.crl_number, number.critical) == (3, False)  # as RFC 5280, 5.2.3 demands
    before = (authority.folder / "crl.pem").read_bytes()
    foreign = strangers.client("client-1").certificate or Path()
    for wrong in (foreign, authority.folder / "server.pem", authority.folder / "none.pem"):
        with pytest.raises(CertificateError, match=r"\.pem"):
            revoke(authority.folder, [paths[0], wrong])
    assert (authority.folder / "crl.pem").read_bytes() == before
    with pytest.raises(CertificateError, match="exists already"):
        make_crl(authority.folder)


def test_concurrent_revocations_are_all_kept(authority: Authority) -> None:
    paths = [authority.client(f"client-{n}").certificate or Path() for n in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda path: revoke(authority.folder, [path]), paths))
    assert authority.server.revoked() == {serial(path) for path in paths}


def test_a_server_without_its_revocation_list_does_not_start(
    authority: Authority, tmp_path: Path
) -> None:
    (authority.folder / "crl.pem").unlink()
    with pytest.raises(CertificateError, match=r"crl\.pem cannot be read"):
        Listener("127.0.0.1:0", CODEC, tls=authority.server).start()
    shutil.copy(Authority(tmp_path / "others").folder / "crl.pem", authority.folder / "crl.pem")
    with pytest.raises(CertificateError, match="not signed by the CA"):
        Listener("127.0.0.1:0", CODEC, tls=authority.server).start()
