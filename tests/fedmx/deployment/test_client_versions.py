"""Clients with another version of fedmx than the server's: who takes part, and what is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmx import Server, version
from fedmx.deployment import join as join_module
from fedmx.deployment.join import join
from fedmx.protocol.messages import CODEC, Setup
from fedmx.version import FEATURE, __version__, fits, named_in, serves
from layers.network import Connector, GaveUp, Received
from tests.fedmx.command_line import fedmx
from tests.fedmx.journal.test_journal_of_scripts import assert_same
from tests.fedmx.processes import until
from tests.fedmx.scripted import Scripted, honest, listening
from tests.network.conftest import Certificates
from tests.network.wire_messages import QUICK

MAJOR, MINOR, *_ = __version__.split(".")
SAME_MINOR = f"{MAJOR}.{MINOR}.99"
OTHER_MINOR = f"{MAJOR}.{int(MINOR) + 1}.0"


def joining(server: Server, certificates: Certificates, *features: str) -> object:
    """The first thing that a client with these features is told: its setup, or why it gave up."""
    tls = certificates.client("client-1")
    connector = Connector(
        server.address, "client-1", CODEC, tls=tls, features=features, backoff=QUICK
    )
    told: list[Any] = []
    with connector:

        def look() -> bool:
            server.network._sessions.poll()  # type: ignore[attr-defined]
            event = connector.next_event(0.01)
            told.extend([event] if isinstance(event, Received | GaveUp) else [])
            return bool(told)

        until(look, lambda: "nothing was told")
    return told[0].message if isinstance(told[0], Received) else told[0]


@pytest.mark.parametrize("feature", [FEATURE, f"fedmx-{SAME_MINOR}"])
def test_one_of_the_same_minor_version_takes_part(certificates: Certificates, feature: str) -> None:
    with listening(certificates) as server:
        assert isinstance(joining(server, certificates, feature), Setup)
        noted = server.network._sessions.other_versions  # type: ignore[attr-defined]
        assert [SAME_MINOR in text for text in noted.values()] == [True] * (feature != FEATURE)


def test_one_of_another_version_is_told_both_and_stays_away(certificates: Certificates) -> None:
    with listening(certificates) as server:
        told = joining(server, certificates, f"fedmx-{OTHER_MINOR}")
        assert isinstance(told, GaveUp)
        assert told.final
        for word in (OTHER_MINOR, __version__, "--allow-version"):
            assert word in told.reason
        (noted,) = server.network._sessions.rejections.take()  # type: ignore[attr-defined]
        assert OTHER_MINOR in noted


def test_it_takes_part_if_the_server_allows_it(certificates: Certificates) -> None:
    with listening(certificates, any_version=True) as server:
        assert isinstance(joining(server, certificates, f"fedmx-{OTHER_MINOR}"), Setup)


class Versioned(Scripted):
    features = frozenset({f"fedmx-{SAME_MINOR}"})


def test_another_version_that_took_part_is_in_the_record(certificates: Certificates) -> None:
    server = listening(certificates, last=2)
    with server:
        client = Versioned(server.address, 1, certificates.client("client-1"), honest)
        rounds = list(server.rounds())
        client.stop()
    first, second = (one.record() for one in rounds)
    (noted,) = first["other_versions"]
    assert "client 1" in noted
    assert SAME_MINOR in noted
    assert "other_versions" not in second
    assert_same(server, rounds)


def test_a_client_names_its_version_when_it_joins_a_run(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_module, "FEATURE", f"fedmx-{SAME_MINOR}")
    with listening(certificates) as server:
        tls = certificates.client("client-1")
        with join(server.address, 1, tls=tls, memory=tmp_path) as client:
            sessions = server.network._sessions  # type: ignore[attr-defined]
            until(lambda: sessions.poll() or sessions.other_versions, lambda: client.reason)
            assert list(sessions.other_versions) == [1]


def test_the_command_has_the_option(tmp_path: Path) -> None:
    for command in ("server", "resume"):
        assert "--allow-version" in fedmx(command, "--help", cwd=tmp_path).out


@pytest.mark.parametrize(
    ("features", "version"),
    [
        ({"continue", "fedmx-0.1.0"}, "0.1.0"),
        ({"fedmx-1.2.dev3+g1a2b"}, "1.2.dev3+g1a2b"),
        ({"continue"}, None),
        ({"fedmx-0.1.0", "fedmx-0.2.0"}, None),
        ({"fedmx-0.1.0\nforged line"}, None),
        ({"fedmx-" + "9." * 500 + "9"}, None),
    ],
)
def test_a_version_is_read_from_the_features_if_there_is_one(
    features: set[str], version: str | None
) -> None:
    assert named_in(features) == version
    assert named_in({FEATURE}) == __version__
    assert fits(SAME_MINOR)
    assert not fits(OTHER_MINOR)


@pytest.mark.parametrize(
    ("client", "served"),
    [
        ("1.4.2", True),
        ("1.4.0.dev3+g1a2b", True),
        ("1.3.9", True),  # not upgraded yet
        ("1.2.0", False),
        ("1.5.0", False),
        ("0.3.0", False),
        ("2.3.0", False),
        ("1", False),
        ("", False),
    ],
)
def test_a_server_serves_its_minor_version_and_the_one_before(
    monkeypatch: pytest.MonkeyPatch, client: str, served: bool
) -> None:
    monkeypatch.setattr(version, "__version__", "1.4.0")
    assert serves(client) is served
