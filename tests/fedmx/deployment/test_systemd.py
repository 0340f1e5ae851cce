"""What systemd hears of a server: when it is ready, that it goes on, and that it ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fedmx.deployment.systemd import Watchdog, notify
from tests.fedmx.scripted import fleet, honest, listening
from tests.network.conftest import Certificates


def said(end: socket.socket) -> list[str]:
    """What has been said since the last call."""
    found = []
    while True:
        try:
            found.append(end.recv(4096, socket.MSG_DONTWAIT).decode())
        except BlockingIOError:
            return found


@pytest.mark.parametrize("abstract", [False, True])
def test_a_server_is_ready_when_it_listens_alive_while_it_waits_and_then_stops(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    path = f"@fedmx-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        server = listening(certificates, last=1, wait_for=1)
        assert said(systemd) == []
        with server:
            assert said(systemd) == ["READY=1"]
            with fleet(server, certificates, {0: honest}):
                assert len([*server.rounds()]) == 1
            assert set(said(systemd)) == {"WATCHDOG=1"}
        assert said(systemd) == ["STOPPING=1"]


def test_it_is_told_twice_in_the_time_of_the_watchdog_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "20000000")
        now_s = [100.0]
        monkeypatch.setattr("fedmx.deployment.systemd.time.monotonic", lambda: now_s[0])
        watchdog = Watchdog()
        for seconds in (0.0, 9.0, 1.0, 3.0, 9.0):
            now_s[0] += seconds
            watchdog.alive()
        assert said(systemd) == ["WATCHDOG=1"] * 3


def test_without_systemd_or_if_it_does_not_read_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "nobody"))
        for _ in range(1000):  # more than its queue takes
            notify("WATCHDOG=1")
