"""The records of the papers' runs for the tables and figures, in experiments/records.

    python experiments/records.py

updates the records from the runs in runs/papers. A group of cells.yaml has one
file, with a line of JSON per cell: its command, how the run ended or how far it is, and the
columns of ``rounds.jsonl`` that a table or a figure uses.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from cells import HERE, Cell, cells
from folders import end_of, run_folder

from fedmx import RunFolder

RECORDS = HERE / "records"
COLUMNS = (
    "accuracy",
    "loss",
    "train_loss",
    "client_accuracy_mean",
    "client_accuracy_variance",
    "updates",
    "up_bytes",
    "down_bytes",
)
# The clock only where devices are simulated; how often the global model has changed only where it
# stays in some rounds, as FedAIM's does without an exchange.
ALL_COLUMNS = (*COLUMNS, "clock_s", "exchanges")
DIGITS = 5  # significant ones of a loss; an accuracy of 10,000 samples needs four


@dataclass(frozen=True)
class Record:
    """What is kept of a run.

    Attributes:
        cell: its name in the group.
        command: the arguments of ``fedmx`` that began it, with file names relative to experiments.
        reason: why it ended; None if it has more rounds to give.
        hours: time of this machine that its rounds took.
        instructions: the vector instructions that it ran on.
        columns: values a round.
    """

    cell: str
    command: list[str]
    reason: str | None
    hours: float
    instructions: str
    columns: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How many rounds it has run."""
        return len(self.columns["accuracy"])

    def series(self, column: str) -> list[tuple[int, float]]:
        """Return (round, value) of all rounds that have a value."""
        values = enumerate(self.columns.get(column, ()), 1)
        return [(round, value) for round, value in values if value is not None]


def load(group: str) -> dict[str, Record]:
    """Return the records of a group by the cells' names; none if nothing was run."""
    path = RECORDS / f"{group}.jsonl.xz"
    return dict(_read(path, path.stat().st_mtime_ns)) if path.exists() else {}


@lru_cache(maxsize=8)
def _read(path: Path, written_ns: int) -> dict[str, Record]:
    """Return the records of a file as it was written at a time."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    records = (Record(**json.loads(line)) for line in lines)
    return {record.cell: record for record in records}


def save(group: str, records: dict[str, Record]) -> None:
    """Write the records of a group, in the order of their names."""
    lines = [json.dumps(asdict(records[name]), separators=(",", ":")) for name in sorted(records)]
    RECORDS.mkdir(exist_ok=True)
    path = RECORDS / f"{group}.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    """Update the records from the run folders."""
    chosen = cells()
    for group in dict.fromkeys(cell.group for cell in chosen):
        records = load(group)
        before = dict(records)
        for cell in chosen:
            if cell.group == group and (folder := run_folder(cell)) is not None:
                record = _record(cell, folder)
                known = records.get(cell.name)
                if record.columns["accuracy"] and (not known or known.rounds <= record.rounds):
                    records[cell.name] = record
        if records != before:
            save(group, records)
            print(f"{group}: {len(records)} cells")
    size = sum(path.stat().st_size for path in RECORDS.glob("*.xz"))
    print(f"{size / 1e6:.2f} MB in all")


def _record(cell: Cell, folder: RunFolder) -> Record:
    """Return the record of a run folder, even if the run is in progress."""
    rounds = folder.rounds()
    found = {one["round"]: one for one in rounds}
    # A round whose line is damaged has no values, and the others keep their places.
    by_round = [found.get(number, {}) for number in range(1, max(found, default=0) + 1)]
    columns = {name: [_short(one.get(name)) for one in by_round] for name in COLUMNS}
    if any(one["virtual"] for one in rounds):
        columns["clock_s"] = [_short(one.get("clock_elapsed_s")) for one in by_round]
    models = [None, *(one.get("model_sha256") for one in by_round)]
    changes = [int(before != after) for before, after in pairwise(models)]
    if 0 in changes:
        columns["exchanges"] = list(accumulate(changes))
    kept = {name: values for name, values in columns.items() if set(values) != {None}}
    command = cell.command()
    command[1] = cell.file
    return Record(
        cell.name,
        command,
        end_of(folder),
        round(sum(one["seconds"] for one in rounds) / 3600, 4),
        folder.facts["instructions"],
        {"accuracy": [], **kept},
    )


def _short(value: float | None) -> float | None:
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
