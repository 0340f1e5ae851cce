"""Writes the golden files anew.

    python -m tests.fedmx.golden.write

Do this only when a format is meant to change. What was written before can then not be read any
more, so its number goes up: `FORMAT` of the checkpoint and the run folder, `VERSION` of the
protocol. `git diff --stat tests/fedmx/golden` shows which formats have changed. Only the pages may
change at any time: `git diff tests/fedmx/golden/pages` shows what readers see instead.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from fedmx.client.participant import ClientMemory
from fedmx.federation.messages import CODEC as FEDERATION_CODEC
from fedmx.protocol.messages import CODEC
from fedmx.run import RunFolder
from fedmx.run.checkpoint import write_checkpoint
from layers.network.control import CONTROL
from layers.network.frames import Kind, frame
from tests.fedmx.golden.command_pages import COMMAND_PAGES
from tests.fedmx.golden.pages import PAGES, written
from tests.fedmx.golden.run_pages import RUNS
from tests.fedmx.golden.values import (
    CHECKPOINT,
    CONTROL_WORDS,
    FACTS,
    FEDERATION,
    LEDGER,
    MESSAGES,
    ROUND,
)

FOLDER = Path(__file__).parent
RUN = "digits-20260131-093000"


EVERY_PAGE = (*PAGES, *COMMAND_PAGES, *RUNS)
GOLDEN_FILES = ("run.json", "experiment.yaml", "rounds.jsonl", "clients.jsonl", "journal.jsonl")


def write_all(folder: Path) -> None:
    """Write every golden file into a folder."""
    write_checkpoint(folder / "checkpoint.safetensors", 2, CHECKPOINT)
    ClientMemory(folder / "memory", RUN, 4).keep(LEDGER)
    with tempfile.TemporaryDirectory() as parent:
        run = RunFolder.create(parent, "digits", "name: digits\n", FACTS)
        run.append_round(ROUND.record())
        run.append_clients(ROUND.client_records())
        run.append_journal(ROUND.journal.record(None))
        (folder / "run").mkdir(exist_ok=True)
        for name in GOLDEN_FILES:
            shutil.copyfile(run.path / name, folder / "run" / name)
    for kind, codec, table in (
        ("messages", CODEC, MESSAGES),
        ("federation", FEDERATION_CODEC, FEDERATION),
        ("control", CONTROL, CONTROL_WORDS),
    ):
        (folder / kind).mkdir(exist_ok=True)
        for name, message in table.items():
            (folder / kind / f"{name}.bin").write_bytes(bytes(codec.encode(message)))
    (folder / "frames.bin").write_bytes(
        b"".join(frame(kind, 7, b"word" if kind.name != "PING" else b"") for kind in Kind)
    )


def write_pages(folder: Path) -> None:
    """Write each page of a report, and the outputs of commands, as text."""
    folder.mkdir(exist_ok=True)
    for page in EVERY_PAGE:
        with tempfile.TemporaryDirectory() as parent:
            text = written(page, Path(parent))
            (folder / f"{page.__name__}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_all(FOLDER)
    write_pages(FOLDER / "pages")
