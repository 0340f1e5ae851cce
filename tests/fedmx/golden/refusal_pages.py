"""Pages of what the Python interface and every part refuse, and of unusable files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmx import Assembly, Experiment, FedmxError, Hook, RunFolder, sweep
from fedmx.assembly.logic import preset_of
from fedmx.components.component import plain
from fedmx.deployment.token import read_token
from fedmx.history.pack import MOST_MANIFEST_BYTES, Manifest
from fedmx.history.packing import own_modules
from fedmx.report import write_report
from fedmx.report.curves import plot_records
from fedmx.report.groups import Group
from fedmx.report.paper import write_figures, write_output
from fedmx.report.strata import label_shares
from fedmx.report.summary import RunSummary
from fedmx.run.checkpoint import write_checkpoint
from fedmx.run.durable import check_file, write_document
from fedmx.run.folder import kept_start
from fedmx.run.identity import FORMAT
from fedmx.run.secret_file import kept_key, read_key
from fedmx.sweeps.folder import FILE, SweepFolder
from fedmx.sweeps.result import SweepResult
from fedmx.sweeps.sweep import extend, go_on
from layers.logic.hooks.compressors import Stc
from tests.fedmx.golden.command_pages import a_sweep, run_in, trial
from tests.fedmx.golden.pages import make


def lines_of(cases: Mapping[str, Callable[[], object]]) -> list[str]:
    """Call each; return its error, or what it returns."""
    lines = []
    for what, call in cases.items():
        try:
            lines.append(f"{what}: returns {call()!r}")
        except (FedmxError, ValueError) as error:
            lines.append(f"{what}: {type(error).__name__}: {error}")
    return [*lines, ""]


def refusals(parent: Path) -> str:
    """One line for each call that cannot be right."""
    file = parent / "file"  # nothing can be written below it
    file.write_text("mine")
    lines = [
        *_settings(parent),
        *_experiments(parent),
        *_sweeps(parent, file),
        *_runs(parent, file),
        *_packs(parent),
        *_reports(parent, file),
    ]
    return "\n".join(lines)


def _settings(parent: Path) -> list[str]:
    class PartOfAFunction(Hook):
        pass

    nested: list[Any] = []
    for _ in range(200):
        nested = [nested]
    values = {
        "the largest": 2**64 - 1,
        "larger": 2**64,
        "the least": -(2**63),
        "less": -(2**63) - 1,
        "infinity": float("inf"),
        "no number": float("nan"),
        "half a character": "\ud800",
        "others": ("text", Path("a/b"), np.float32(0.5), np.int8(3), True, None),
        "an array": np.zeros(1),
        "a mapping": {"a": {"b": (1, 2)}},
        "numbers as keys": {"a": {1: 2}},
        "deep": nested,
        "a set": {1},
        "a part with its settings": [Stc()],
        "a part of a function": [PartOfAFunction()],
    }
    (parent / "short").write_text("  fifteen bytes..\n")
    (parent / "long").write_text("  sixteen bytes...\n")
    return [
        *lines_of({f"plain({name})": lambda of=value: plain(of) for name, value in values.items()}),
        *lines_of(
            {
                "no token": lambda: read_token(None),
                "a token": lambda: read_token(parent / "long"),
                "a short token": lambda: read_token(parent / "short"),
                "a missing token": lambda: read_token(parent / "missing"),
            }
        ),
    ]


def _experiments(parent: Path) -> list[str]:
    (parent / "own_parts.py").write_text(
        "from fedmx import Hook\n\nPART = type('Mine', (Hook,), {})()\n"
    )

    def parsed(*overrides: str) -> Experiment:
        return Experiment.parse(trial(), "it.yaml", overrides, folder=parent, modules=None)

    changes = (
        "rounds.least=1",
        "rounds.0=1",
        "compute.train=3",
        "compute.train.epochs.least=1",
        "compute.partition.per_client.least=1",
        "compute.model.0=1",
        "logic.hooks.0.mu=1",
        "logic.hooks.name=clip",
        "logic.aggregator.name=mean",
        "logic.preset.mu=1",
    )
    unlike = {
        "a device on MXNet": "compute.device=cuda",
        "a deviation of zero": "compute.normalise={scale: 16, mean: 0.5, std: 0}",
        "settings for an object": "logic.hooks=[{name: 'own_parts:PART', mu: 1}]",
    }
    assembled = {
        what: lambda change=change: (
            preset_of(parsed(change)),
            (one := Assembly(parsed(change))).data.normalise,
            one.engine,
        )
        for what, change in unlike.items()
    }
    return [
        *lines_of({change: lambda of=change: type(parsed(of)).__name__ for change in changes}),
        *lines_of(assembled),
    ]


def _sweeps(parent: Path, file: Path) -> list[str]:
    half = a_sweep(parent, "half", 3)
    for number in (0, 3):
        run_in(half, number)
    result = SweepResult.of(half)
    half.table_path.mkdir()
    cases: dict[str, Callable[[], object]] = {
        "sweep(FOLDER, vary)": lambda: sweep(half.path, {"rounds": [1, 2]}),
        "sweep(FOLDER, overrides)": lambda: sweep(half.path, overrides=["rounds=1"]),
        "no processes": lambda: go_on(half, at_once=0),
        "no seeds": lambda: extend(half, 0, None),
        "fewer seeds than begun": lambda: extend(half, 1, None),
        "no accuracy": lambda: extend(half, None, 61),
        "an accuracy above 1": lambda: extend(half, None, 1.01),
        "a table that is a folder": result.save_table,
        "below a file": lambda: a_sweep(file, "below", 1),
        "not a sweep": lambda: SweepFolder.open(parent),
    }
    lines = lines_of(cases)
    for what, text in (
        ("another experiment", trial(name="other")),
        ("a damaged experiment", "\udcff"),
    ):
        half.experiment_path.write_text(text, "utf-8", "surrogateescape")
        lines += lines_of({what: half.check_experiment})
    half.experiment_path.unlink()
    lines += lines_of({"no experiment": half.check_experiment})
    document = json.loads((half.path / FILE).read_text())
    for what, text in (
        ("cut off", json.dumps(document)[:30]),
        ("changed", json.dumps({**document, "target": 0.5})),
        ("without its checksum", json.dumps({"format": document["format"]})),
    ):
        (half.path / FILE).write_text(text)
        lines += lines_of({what: lambda: SweepFolder.open(half.path)})
    write_document(half.path / FILE, {"format": 99})
    lines += lines_of({"of a newer fedmx": lambda: SweepFolder.open(half.path)})
    return lines


def _runs(parent: Path, file: Path) -> list[str]:
    run = make(parent, "damaged")
    path = run.path / "run.json"
    whole = path.read_text()
    lines = []
    for what, content in (
        ("not JSON", b'{"format"\n:}'),
        ("not UTF-8", b'{\n\n"\xff"}'),
        ("no mapping", b"[1]"),
        ("a changed key", whole.replace('"seed"', '"sead"').encode()),
        ("whole", whole.encode()),
    ):
        path.write_bytes(content)
        lines += lines_of({f"run.json: {what}": lambda: RunFolder.open(run.path)})[:-1]
    for what, document in (
        ("of a newer fedmx", {"format": 99, "facts": {"fedmx": "9.8"}}),
        ("of an unknown fedmx", {"format": 99}),
        ("without a format", {"facts": {}}),
        ("without facts", {"format": FORMAT, "facts": []}),
    ):
        write_document(path, document)
        lines += lines_of({f"run.json: {what}": lambda: RunFolder.open(run.path)})[:-1]
    path.unlink()
    path.mkdir()
    key, beyond = parent / "secret.key", file / "beyond"
    cases: dict[str, Callable[[], object]] = {
        "run.json: a folder": lambda: RunFolder.open(run.path),
        "a resumed run that cannot be written": lambda: run.note_resumed(["fedmx 1 and 2"]),
        "a checkpoint below a file": lambda: write_checkpoint(beyond, 1, {}),
        "a missing key": lambda: read_key(key),
        "a key below a file": lambda: kept_key(beyond),
        "a new key": lambda: kept_key(key) == read_key(key) == kept_key(key),
        "a missing file": lambda: check_file(beyond, "00"),
        "another file": lambda: check_file(file, "00"),
        "an unknown file": lambda: check_file(file, None),
        "no start": lambda: kept_start(run),
    }
    lines += lines_of(cases)
    key.write_bytes(key.read_bytes()[:-1])
    run.facts["start"] = {"kept_sha256": "00"}
    lines += lines_of({"a cut key": lambda: read_key(key), "a gone start": lambda: kept_start(run)})
    run.start_path.write_bytes(b"others")
    return [*lines, *lines_of({"another start": lambda: kept_start(run)})]


def _packs(parent: Path) -> list[str]:
    def named(module: str, text: str) -> Callable[[], object]:
        folder = parent / f"folder-of-{module}"
        folder.mkdir()
        (folder / f"{module}.py").write_text(text)
        (folder / "it.yaml").write_text(
            trial().replace("logic: {", f"logic: {{hooks: ['{module}:Mine'], ")
        )
        return lambda: sorted(own_modules(folder / "it.yaml", folder).files)

    cases = {
        "a module": named("whole", "import json\nimport missing_one\n"),
        "a module that is not Python": named("broken", "1 +\n"),
        "a module with another letter": named("größe", ""),
        "a large manifest": lambda: Manifest.of_bytes(b" " * (MOST_MANIFEST_BYTES + 1)),
    }
    lines = lines_of(cases)
    (parent / "folder-of-whole" / "whole.py").unlink()
    return [*lines, *lines_of({"a missing module": cases["a module"]})]


def _reports(parent: Path, file: Path) -> list[str]:
    empty = make(parent, "empty")
    summary = RunSummary.of(empty)
    text = trial()
    return lines_of(
        {
            "figures of nothing": lambda: write_figures(
                parent / "figures", [Group.alone(summary, "empty")], (None, None), ""
            ),
            "a plot of nothing": lambda: plot_records([], "accuracy", "rounds"),
            "a table below a file": lambda: write_output(
                file / "a.csv", "", "it is CSV", (".csv",)
            ),
            "a page below a file": lambda: write_report([empty], file / "page.html"),
            "labels of other clients": lambda: label_shares(text, [0, 9]),
            "labels of no experiment": lambda: label_shares("rounds: 1", [0]),
        }
    )


REFUSALS = (refusals,)
