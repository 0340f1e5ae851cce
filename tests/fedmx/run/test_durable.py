"""A file is replaced whole or not at all, and nothing is left beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fedmx.run.durable import write_durably, write_text_durably


def test_a_write_that_fails_leaves_the_old_file_alone_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_text_durably(path, "old grün")

    def half(temporary: Path) -> None:
        temporary.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_durably(path, half)
    assert [one.name for one in tmp_path.iterdir()] == ["status.json"]
    assert path.read_text(encoding="utf-8") == "old grün"


def test_an_interruption_leaves_nothing_either(tmp_path: Path) -> None:
    def interrupted(temporary: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_durably(tmp_path / "x", interrupted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("folder", "private"), [(0o755, False), (0o710, False), (0o700, True)])
def test_a_file_may_be_read_by_whom_the_system_lets_into_its_folder(
    folder: int, private: bool, tmp_path: Path
) -> None:
    tmp_path.chmod(folder)

    def for_its_owner(temporary: Path) -> None:
        temporary.unlink()
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600))

    (tmp_path / "usual").touch()
    write_durably(tmp_path / "x", for_its_owner)
    usual, mode = (stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "x"))
    assert mode == (0o600 if private else usual)
