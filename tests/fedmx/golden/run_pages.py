"""What commands print about real small runs, and how their models are exported.

Its numbers are replaced: a sum may differ in its last bits on another processor.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from fedmx import Assembly, Experiment, RunFolder
from fedmx.export import _input_text
from fedmx.run.records import JsonLines
from fedmx.version import __version__
from tests.fedmx.golden.command_pages import said, trial
from tests.fedmx.golden.pack_pages import of_any_machine
from tests.fedmx.golden.pages import FACTS
from tests.fedmx.recorded_runs import no_page

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
logic: {hooks: ['hook_of_a_page:Same']}
executor: serial
run: {checkpoint: {every: 1}}
"""
HOOK = """
from dataclasses import dataclass

from fedmx import ClientSide, Hook


@dataclass(frozen=True)
class Same(Hook):
    def client(self):
        return Kept()


class Kept(ClientSide):
    def send(self, update, context):
        return update
"""


_HOOKS = "logic: {hooks: ['hook_of_a_page:Same']}"


def without_numbers(text: str) -> str:
    """Replace hashes and versions, and the numbers that differ with the processor or the time."""
    text = re.sub(r"  [\d.,]+ updates/s|  [\d.]+ (s|min \d+ s) left", "", of_any_machine(text))
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


def exports(parent: Path) -> str:
    """What `fedmx export` prints and writes, and which models it refuses."""
    with no_page(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(parent)
        lines = _exported(parent / "runs")
    for normalise in _NORMALISED:
        compute = {"model": "logistic", "data": "cifar-10", "engine": "numpy"}
        given = Experiment(rounds=1, clients=1, compute={**compute, "normalise": normalise})
        engine = Assembly(given, shape=(3, 8, 8), classes=4).engine
        lines.append(f"{normalise}: {_input_text(given, engine)}")
    return without_numbers("\n".join(lines))


def _exported(runs: Path) -> list[str]:
    text = SMALL.replace(_HOOKS, "logic: {preset: fedper}")
    Path("small.yaml").write_text(
        text.replace("logistic", "{name: 2nn, hidden: [4, 3], classes: 10}")
    )
    said("run", "small.yaml")
    (run,) = runs.iterdir()
    run = run.rename("whole")
    lines = []
    for kind in ("safetensors", "torch", "onnx"):
        lines += said("export", run, "--to", kind)
    (run / "status.json").unlink()
    (run / "checkpoints" / "round-000003.safetensors").unlink()
    lines += said("export", run, "--to", "safetensors", "--out", "of-two.safetensors")
    lines += said("export", run, "--to", "torch", "--client", "1", "--out", "own.safetensors")
    for path in sorted(Path().glob("*.safetensors")):
        with safe_open(path, "np") as file:
            lines.append(f"{path}: {json.dumps(file.metadata(), indent=1, sort_keys=True)}")
            lines += [f"  {one} {file.get_slice(one).get_shape()}" for one in sorted(file.keys())]
    return [*lines, *_not_exported(run)]


def _not_exported(run: Path) -> list[str]:
    """Return the refusals of models that cannot be exported."""
    text = trial().replace("model: 2nn", "engine: numpy\n  model: 2nn")
    served, words, other = (
        RunFolder.create(".", name, text, {**FACTS, "classes": 10}, files).path.rename(name)
        for name, files in (
            ("served", {}),
            ("words", {"words.json": b"no JSON"}),
            ("other", {}),
        )
    )
    RunFolder.open(served).save_checkpoint(1, {"server": {}, "clients": {}})
    shutil.copytree(run / "checkpoints", other / "checkpoints", dirs_exist_ok=True)
    untrained = Path(shutil.copytree(run, "untrained"))
    shutil.rmtree(untrained / "checkpoints")
    lines = []
    for given in (
        (run, "--to", "safetensors", "--client", "3"),
        (served, "--to", "safetensors", "--client", "1"),
        (words, "--to", "safetensors"),
        (other, "--to", "safetensors"),
        (untrained, "--to", "safetensors"),
        (untrained, "--to", "safetensors", "--client", "1"),
        (run, "--to", "torch", "--out", "a-model.safetensors"),
        (run, "--to", "torch", "--out", "a.pt"),
        (run, "--to", "safetensors", "--out", "none/a.safetensors"),
    ):
        lines += said("export", *given)
    return lines


_NORMALISED: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {},
    {"scale": 255},
    {"mean": 3},
    {"std": 2},
    {"scale": 16, "mean": 3, "std": 2},
    {"scale": 255, "mean": [1, 2, 3], "std": 4},
    {"mean": 1, "std": [4, 5, 6]},
)

RUNS: tuple[Callable[[Path], str], ...] = (commands_on_runs, exports)
