"""An archive is made once, and nobody else waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fedmx.federation import archives as module
from fedmx.federation.archives import Archives, archive_of
from fedmx.run.durable import sha256_of
from tests.fedmx.processes import until


def test_orders_for_an_archive_wait_for_one_thread_which_reads_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("000001", "000002")]
    for folder in folders:
        (folder / "runs" / "one").mkdir(parents=True)
        (folder / "runs" / "one" / "model").write_bytes(b"weights")
    goes_on, read = threading.Event(), []

    def reads(path: Path) -> str:
        assert goes_on.wait(60.0)
        read.append(path)
        return sha256_of(path)

    monkeypatch.setattr(module, "sha256_of", reads)
    archives, answers = Archives(), dict[tuple[str, str], Any]()
    orders = [(folder, peer) for folder in folders for peer in ("anna", "otto", "anna")]
    assert [archives.ask(*order) for order in orders] == [None] * 6
    assert [*archives.made()] == []
    goes_on.set()

    def all_made() -> bool:
        for peer, made in archives.made():
            assert not isinstance(made, Exception)
            answers[peer, made["file"]] = made
        return len(answers) == 4

    until(all_made, lambda: str(answers))
    for folder in folders:
        found = answers["otto", f"{folder.name}.tar"]
        assert found["sha256"] == sha256_of(archive_of(folder))
        assert archives.ask(folder, "anna") == found
    assert len(read) == 2
