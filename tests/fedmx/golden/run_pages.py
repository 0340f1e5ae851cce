"""What commands print about real small runs, and what forks of them note.

Its numbers are replaced: a sum may differ in its last bits on another processor.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmx import Experiment
from fedmx.errors import FedmxError
from fedmx.history import fork
from fedmx.history.fork import first_rounds
from fedmx.run.records import JsonLines
from fedmx.version import __version__
from tests.fedmx.golden.command_pages import said
from tests.fedmx.recorded_runs import no_page, record

SMALL = """
name: small
rounds: 3
clients: 3
compute:
  engine: numpy
  model: logistic
  data: digits
  normalise: {scale: 16}
  train: {steps: 2}
logic: {selector: {name: uniform, count: 1}, hooks: ['hook_of_a_page:Same']}
executor: serial
run: {checkpoint: {every: 1}}
"""
HOOK = """
from dataclasses import dataclass

from fedmx import ClientSide, Hook


@dataclass(frozen=True)
class Same(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            return update
"""


def without_numbers(text: str) -> str:
    """Replace hashes and versions, and the numbers that differ with the processor or the time."""
    text = re.sub(r"  [\d.,]+ updates/s|  [\d.]+ (s|min \d+ s) left", "", text)
    text = re.sub("[0-9a-f]{64}", "HASH", text)
    text = re.sub(r'"bytes": \d+', '"bytes": LENGTH', text)
    text = text.replace(__version__, "VERSION")
    text = re.sub(r"BLAKE3 [0-9a-f]{16}", "BLAKE3 HASH", text)
    text = re.sub(r"[\d,]+ bytes", "LENGTH bytes", text)
    text = re.sub(r'("[a-z_]*(seconds|_s|_bytes)": )[\d.]+', r"\1...", text)
    text = re.sub(r"(?<![\w.])\d+\.\d+(e-\d+)?(?![\d.]| MiB)", "#", text)
    table = re.compile(r"^(?:end|server|client)  .*", re.MULTILINE)
    return table.sub(lambda line: re.sub(r" {2,}", "  ", line[0]), text)


def commands_on_runs(parent: Path) -> str:
    """What each command that runs something prints, and each that refuses to."""
    (parent / "hook_of_a_page.py").write_text(HOOK)
    (parent / "small.yaml").write_text(SMALL)
    with no_page(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(parent)
        return without_numbers("\n".join(_commands(parent / "runs")))


def _commands(runs: Path) -> list[str]:
    own = "--own-modules"
    lines = said("run", "small.yaml")
    lines += said("run", "small.yaml", own)
    (run,) = runs.iterdir()
    run = run.rename("whole")
    lines += said("run", "small.yaml", "--module", "hook_of_a_page", "--set", "seed=2", "--json")
    (other,) = runs.iterdir()
    other = other.rename("other")
    cut, changed, edited = (Path(shutil.copytree(run, name)) for name in ("cut", "bits", "edited"))
    for path in (*cut.glob("checkpoints/*3.*"), cut / "status.json", cut / "model.safetensors"):
        path.unlink()
    experiment = (edited / "experiment.yaml").read_text()
    (edited / "experiment.yaml").write_text(experiment.replace("rounds: 3", "rounds: 4"))
    (edited / "status.json").unlink()
    with_line(changed, 2, model_sha256="0" * 64)
    for words in (
        ("resume", run, own),
        ("resume", edited, own),
        ("resume", cut, "--patience", "3", own),
        ("resume", cut),
        ("pack", cut, "-o", "cut.fedmx", own),
        ("resume", cut, own),
        ("replay", run),
        ("replay", run, own),
        ("replay", run, "--round", "2", "--executor", "serial", own),
        ("replay", run, "--round", "2", "--client", "2", own),
        ("replay", run, "--round", "4", own),
        ("replay", run, "--json", own),
        ("replay", changed, own),
        ("diff", run, cut, own),
        ("diff", run, other, own),
        ("diff", run, other, "--json", own),
        ("fork", run, "--round", "1", "--set", "rounds=2", own),
        ("fork", run, "--without", "1", "--json", own),
        ("fork", run, "--round", "4", own),
        ("export", run, "--to", "safetensors", "--out", "whole.safetensors", own),
        ("pack", run, "-o", "own.fedmx", own),
        ("pack", run, "-o", "own.fedmx", "--json", own),
        ("unpack", "own.fedmx", "opened"),
        ("unpack", "own.fedmx", "opened"),
        ("verify", "own.fedmx"),
        ("verify", "own.fedmx", "--json"),
        ("verify", "small.yaml"),
    ):
        lines += said(*words)
    return lines


def with_line(run: Path, round: int, **changed: Any) -> None:
    """Change the record of a round."""
    file = JsonLines(run / "rounds.jsonl")
    lines = [{**one, **(changed if one["round"] == round else {})} for one in file.read()]
    file.path.unlink()
    file.append(lines)


FORKED: dict[str, Any] = {
    "name": "small",
    "rounds": 3,
    "clients": 6,
    "compute": {
        "engine": "numpy",
        "model": "logistic",
        "data": "digits",
        "normalise": {"scale": 16},
        "train": {"batch_size": 20, "learning_rate": 0.05},
    },
    "logic": {"selector": {"name": "uniform", "count": 2}, "hooks": ["fedavgm", "stc"]},
}
_WANTED: tuple[tuple[int | None, list[str], list[int]], ...] = (
    (0, [], []),
    (2, ["compute.train.learning_rate=0.01", "rounds=9", "name=other"], []),
    (1, ["logic.hooks=[{name: clip, norm: 5}, {name: fedavgm, momentum: 0.5}]"], []),
    (0, ["logic.hooks=[fedadam]"], []),
    (2, ["logic.hooks=[fedadam]", "logic.selector.count=3"], []),
    (1, ["logic.preset={name: ditto, fraction: 0.5}", "logic.hooks=[]"], []),
)


def forks(parent: Path) -> str:
    """The records and notes of forks of a run."""
    run = record(Experiment(**FORKED), parent)
    lines = [f"{one['round']}: client {one['client']} {one['status']}" for one in run.clients()]
    first = first_rounds(run, range(6))
    lines.append(f"{first}")
    came = {round: client for client, round in first.items()}
    never = max({*range(6)} - {*first})
    removed: list[tuple[int | None, list[str], list[int]]] = [
        (None, [], [came[1]]),
        (None, [], [came[2]]),
        (None, ["rounds=8"], [came[2], never]),
        (2, [], [came[2]]),
        (2, ["logic.selector.count=3"], [came[1], never]),
        (2, [], [never]),
        (None, [], [never]),
        (None, [], [never, came[1], came[2]]),
    ]
    for round, overrides, without in (*_WANTED, *removed):
        lines.append(f"{round} {overrides} {without}")
        try:
            made = fork(run, round, overrides, without)
        except FedmxError as error:
            lines.append(f"  refused: {error}")
            continue
        lines += [f"  {name}: {value}" for name, value in made.origin.record().items() if value]
        lines += [f"  {line}" for line in made.origin.lines()]
        numbers = [one["round"] for one in made.folder.rounds()]
        lines.append(f"  {made.folder.name} {numbers} {made.folder.checkpoint_rounds}")
    again = fork(run, 2)
    for round in (0, 1, 2):
        try:
            lines.append(f"fork of a fork {round}: {fork(again.folder, round).origin.round}")
        except FedmxError as error:
            lines.append(f"fork of a fork {round}: refused: {error}")
    return "\n".join(lines)


RUNS: tuple[Callable[[Path], str], ...] = (commands_on_runs, forks)
