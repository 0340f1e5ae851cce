"""``fedmx clients``: what it says when its clients cannot take part; examples run it over TLS."""

from __future__ import annotations

from pathlib import Path

from tests.fedmx.command_line import fedmx


def test_a_folder_without_certificates_is_named(tmp_path: Path) -> None:
    found = fedmx("clients", "2", "127.0.0.1:1", "--certs", "pki", cwd=tmp_path)
    assert "pki" in found.error_text
    assert not (tmp_path / "runs").exists()


def test_a_client_that_fails_gives_its_exit_code_and_its_log_is_named(tmp_path: Path) -> None:
    assert fedmx("certs", "all", "pki", "--clients", "1", cwd=tmp_path).code == 0
    (tmp_path / "pki" / "client-0.key").unlink()
    words = "clients", "1", "127.0.0.1:1", "--certs", "pki", "--folder", "here"
    found = fedmx(*words, cwd=tmp_path)
    assert found.code == 2
    assert "here/client-0.log" in found.err
    assert "client-0.key" in (tmp_path / "here" / "client-0.log").read_text()
