"""Pages of made-up runs, written as lines of text: their tables, sentences and drawn figures.

A change of what a report shows is a change of these files, which a person can read and compare.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from rich.console import Console
from typer.testing import CliRunner

from fedmx import RunFolder
from fedmx.cli.main import app
from fedmx.report import Comparison, partition, write_report
from fedmx.report import page as report_page
from fedmx.report.comparison import document
from fedmx.report.curves import plot_records
from layers.logic.algorithms.fedsso import Clustering, Stratum

CELLS = {"td", "th", "span", "a", "wbr", "b", "input", "label", "meta"}
FATES = ("rejected", "declined", "lost")
STARTED = "2026-01-31T09:30:00+00:00"
EXPERIMENT = """
name: {name}
seed: {seed}
rounds: {rounds}
clients: {clients}
stop: {{accuracy: 0.7, client_accuracy: 0.62}}
compute:
  model: 2nn
  data: digits
  partition: {{name: shards, per_client: 2}}
  train: {{learning_rate: {rate}, epochs: 2}}
logic: {{preset: {preset}}}
clock: {{deadline_s: 90}}
"""
FACTS = {
    "seed": 1,
    "mode": "simulation",
    "started": STARTED,
    "parameters": 1000,
    "buffers": 24,
    "chance": 0.1,
    "shape": [8, 8, 1],
    "builds": {"mxnet": "1.9.1", "numpy": "2"},
    "code": {"own.py": "0123456789abcdef" * 4},
}


def make(parent: Path, name: str, facts: dict[str, Any] | None = None, **of: Any) -> RunFolder:
    """Return a run without records."""
    settings = {"seed": 1, "rounds": 8, "clients": 9, "rate": 0.1, "preset": "fedavg"} | of
    text = EXPERIMENT.format(name=name, **settings)
    return RunFolder.create(parent, name, text, FACTS | {"seed": settings["seed"]} | (facts or {}))


def waiting(run: RunFolder, rounds: int, drawn: random.Random, virtual: bool = True) -> RunFolder:
    """Add rounds that wait for five of nine clients; some clients fail."""
    for number in range(1, rounds + 1):
        accuracy = None if number % 4 == 2 else 1 - 0.8 / number - drawn.uniform(0, 0.05)
        clients = []
        for client in drawn.sample(range(9), 5):
            times = [0.5 * client]
            for longest in (40, 1, 5, 20):
                times.append(times[-1] + drawn.uniform(0.1, longest))
            row = {
                "round": number,
                "client": client,
                "status": drawn.choice(["accepted", "accepted", "rejected", "lost", "declined"]),
                "samples": 100 + client,
                "up_bytes": 4100,
                "down_bytes": 2**20 + client,
                "liar": client == 3,
                **dict(
                    zip(
                        ("asked_s", "trained_s", "decided_s", "sending_s", "ended_s"),
                        times,
                        strict=True,
                    )
                ),
            }
            if row["status"] == "accepted":
                row["share"] = 0.0 if client == 3 and number % 2 else drawn.uniform(0.1, 0.5)
            elif row["status"] in ("rejected", "lost"):
                row["reason"] = f"reason {drawn.randrange(13)}"
                row["traceback"] = "a traceback" if client == 4 else ""
            clients.append(row)
        updates = sum(row["status"] == "accepted" for row in clients)
        clock_s = max(row["ended_s"] for row in clients)
        run.append_clients(clients)
        run.append_round(
            {
                "round": number,
                "accuracy": accuracy,
                "loss": None if accuracy is None else 2.5 * (1 - accuracy),
                "train_loss": 2 / number,
                "participants": [r["client"] for r in clients if r["status"] == "accepted"],
                **{fate: sum(r["status"] == fate for r in clients) for fate in FATES},
                "updates": updates,
                "tasks": 5,
                "up_bytes": 4100 * updates,
                "down_bytes": 5 * 4200,
                "control_bytes": 700,
                "file_bytes": 0,
                "seconds": 1.5,
                "clock_s": clock_s,
                "virtual": virtual,
                "client_accuracy_mean": accuracy and accuracy - 0.05,
                "client_accuracy_variance": accuracy and 0.01 / number,
                "personal_accuracy_mean": accuracy and accuracy + 0.02,
                "personal_accuracy_variance": accuracy and 0.02 / number,
                "personal_accuracy_worst_tenth": accuracy and accuracy - 0.2,
                "newcomer_accuracy_mean": accuracy and accuracy - 0.1,
                "epsilon": 0.5 * number,
            }
        )
    return run


def not_waiting(run: RunFolder, rounds: int, slowest_s: float = 27.0) -> RunFolder:
    """Add rounds that end with their third update, while other clients go on."""
    began, versions = dict.fromkeys(range(6), 0.0), dict.fromkeys(range(6), 0)
    begin_s = 0.0
    for number in range(1, rounds + 1):
        took_s = {one: (slowest_s if one == 5 else 7.0 + 4 * one) for one in began}
        ends = sorted((began[one] + took_s[one] + number % 2, one) for one in began)[:3]
        end_s = ends[-1][0]
        clients = [
            _task(number, one, versions[one], began[one] - begin_s, at_s - begin_s, "accepted")
            for at_s, one in ends
        ]
        staleness = [number - 1 - versions[one] for _, one in ends]
        for at_s, one in ends:
            began[one], versions[one] = at_s + 0.25, number
        clients += [
            _task(number, one, versions[one], began[one] - begin_s, None, "in-flight")
            for one in began
            if began[one] < end_s
        ]
        run.append_clients(clients)
        run.append_round(
            {
                "round": number,
                "accuracy": 0.9 - 0.5 / number,
                "loss": 1 / number,
                "participants": [one for _, one in ends],
                **dict.fromkeys(FATES, 0),
                "up_bytes": 3 * 4100,
                "down_bytes": 3 * 4200,
                "updates": 3,
                "tasks": 3,
                "seconds": 0.5,
                "clock_s": end_s - begin_s,
                "clock_elapsed_s": end_s,
                "virtual": True,
                "staleness": staleness,
                "in_flight": 3,
            }
        )
        begin_s = end_s
    run.finish("done")
    return run


def _task(
    round: int, client: int, version: int, asked_s: float, ended_s: float | None, status: str
) -> dict[str, Any]:
    times = {"asked_s": asked_s, "trained_s": asked_s + 5, "sending_s": asked_s + 6}
    return {
        "round": round,
        "client": client,
        "status": status,
        "version": version,
        "samples": 50,
        "up_bytes": 4100 if ended_s else 0,
        "down_bytes": 4200,
        **(times if ended_s else {"asked_s": asked_s}),
        "ended_s": ended_s,
    }


def failed_run(parent: Path) -> str:
    """A run that failed, with liars, lost clients, personal models and privacy."""
    run = waiting(make(parent, "failed", rounds=12), 9, random.Random(1))
    run.finish("failed", "the disk is full")
    return page([run], target=0.75, round=4)


def running_run(parent: Path) -> str:
    """A run that goes on, in machine time; its own page reloads itself."""
    run = waiting(make(parent, "running"), 5, random.Random(2), virtual=False)
    with run.lock():
        return page([run])


def asynchronous_run(parent: Path) -> str:
    """A run whose rounds do not wait, and one with a task that takes very many of them."""
    short = not_waiting(make(parent, "asynchronous", preset="fedbuff", rounds=11), 11)
    long = not_waiting(make(parent, "long", preset="fedbuff", rounds=40), 26, slowest_s=400.0)
    return "\n".join([page([short]), page([long], round=26)])


def clusters(parent: Path) -> str:
    """A run of a stratified selector."""
    run = make(parent, "clusters", preset="fedsso", clients=12)
    labels = np.array([0, 0, 1, 1, 2, 2, -1, -1, 1, 0, 2, 2])
    points = np.stack([labels, np.arange(12)], axis=1).astype(np.float64)
    points[7] = np.nan
    found = Clustering(np.arange(12), labels, np.full(12, 5), points, {"0": Stratum(4, 20)})
    run.save_checkpoint(1, {"server": {"memory": {"selector": found.memory()}}})
    run.finish("stopped", "its caller left the loop")
    return page([run])


def fork(parent: Path) -> str:
    """A fork after round 3, with its parent run."""
    whole = waiting(make(parent, "parent"), 6, random.Random(4))
    whole.finish("done")
    origin = {
        "run": whole.name,
        "folder": str(whole.path),
        "round": 3,
        "overrides": ["logic.preset=fedprox"],
        "without": [2],
        "kept": ["selector"],
        "dropped": ["hook stc"],
        "empty": ["trainer"],
        "exact": False,
        "note": "A note.",
    }
    run = waiting(make(parent, "fork", {"fork": origin}, preset="fedprox"), 5, random.Random(5))
    run.finish("done")
    return page([run], target=0.8)


def other_forks(parent: Path) -> str:
    """A fork from the initial model without other settings, and one whose parent run is gone."""
    whole = measured(make(parent, "whole"), [0.5, 0.6])
    whole.finish("done")
    origin = {"run": whole.name, "folder": str(whole.path), "round": 0}
    begin = measured(make(parent, "whole", {"fork": origin}), [0.4, None, 0.7])
    lost = {"run": "gone", "folder": str(parent / "gone"), "round": 2, "dropped": ["a hook"]}
    left = measured(make(parent, "left", {"fork": lost}), [0.3, 0.5, 0.8])
    return "\n".join([page([begin]), page([begin, left], target=0.75)])


def compared_runs(parent: Path) -> list[RunFolder]:
    """Return three algorithms over six, six and two seeds; one run has fewer rounds."""
    runs = []
    for preset, rate, seeds in (("fedavg", 0.1, 6), ("fedprox", 0.1, 6), ("fedprox", 0.5, 2)):
        for seed in range(1, seeds + 1):
            name = f"{preset}-{seed}"
            run = make(parent / f"{rate}", name, preset=preset, rate=rate, seed=seed)
            drawn = random.Random(100 * seed + int(10 * rate) + len(preset))
            waiting(run, 3 if preset == "fedavg" and seed == 2 else 5, drawn)
            run.finish("done")
            runs.append(run)
    return runs


def side_by_side(parent: Path) -> str:
    """Groups of runs on one page."""
    return page(compared_runs(parent), target=0.8)


def two_runs(parent: Path) -> str:
    """Two runs with their clients and timelines on one page."""
    first = waiting(make(parent, "first", {"mode": "server"}), 4, random.Random(6))
    other = not_waiting(make(parent, "other", preset="fedbuff"), 9)
    return page([first, other], round=3)


def tables(parent: Path) -> str:
    """The same groups of runs for a terminal, LaTeX, CSV and scripts."""
    runs = compared_runs(parent)
    compared = Comparison.of(runs, 0.8)
    console = Console(width=100, file=None, color_system=None)
    with console.capture() as captured:
        console.print(compared.text())
    latex = []
    for columns in ("single", "double"):
        compared.write_latex(parent / "table.tex", columns)
        latex.append((parent / "table.tex").read_text())
    compared.write_csv(parent / "table.csv")
    points = [",".join(map(_short, row.values())) for row in compared.curves()[:10]]
    record = document(runs[:1], 0.8)["runs"][0]
    del record["points"][1:]
    texts = (captured.get(), *latex, (parent / "table.csv").read_text(), "\n".join(points))
    return "\n".join((*texts, json.dumps(record, indent=1, ensure_ascii=False)))


def plots(parent: Path) -> str:
    """Return the lines that a notebook draws of the records of two runs."""
    runs = [
        waiting(make(parent, "long"), 6, random.Random(9)),
        not_waiting(make(parent, "late"), 3),
    ]
    figure = Figure()
    for place, (measure, against) in enumerate(
        (("accuracy", "rounds"), ("loss", "bytes"), ("accuracy", "virtual time")), start=1
    ):
        axes = figure.add_subplot(3, 1, place)
        for run in runs:
            plot_records(run.rounds(), measure, against, axes=axes, label=run.experiment_yaml[:11])
    return "\n".join(drawn_lines(figure))


def commands(parent: Path) -> str:
    """Return what `fedmx runs`, `status` and `report` print about such runs."""
    failed = waiting(make(parent, "failed"), 6, random.Random(7))
    failed.finish("failed", "the disk is full")
    ended = waiting(make(parent, "interrupted", rounds=20), 3, random.Random(8))
    late = not_waiting(make(parent, "late", preset="fedbuff"), 4)
    make(parent, "empty")
    names = [str(run.path) for run in (failed, ended, late)]
    lines = []
    for words in (["runs", str(parent)], *(["status", name] for name in names), ["report", *names]):
        words += ["--output", str(parent / "all.html")] * (words[0] == "report")
        result = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
        lines += [f"$ fedmx {' '.join(words)}", result.output, f"exit code {result.exit_code}"]
    return "\n".join(lines)


def measured(
    run: RunFolder, accuracies: list[float | None], losses: list[float | None] | None = None
) -> RunFolder:
    """Add rounds with little more than these measures, in machine time."""
    losses = [None if one is None else 2 - one for one in accuracies] if losses is None else losses
    for number, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), start=1):
        run.append_round(
            {
                "round": number,
                "accuracy": accuracy,
                "loss": loss,
                "up_bytes": 300_000 * number,
                "down_bytes": 200_000_000 * number,
                "file_bytes": 4_000_000_000 if number == 1 else 0,
                "updates": 3,
                "tasks": 7,
                "seconds": 400.0 * number,
            }
        )
    return run


def new_runs(parent: Path) -> str:
    """Runs without a round, without an evaluation, and whose model never learns."""
    nothing = make(parent, "nothing", {"chance": None, "classes": 10, "code": {}, "shape": None})
    unseen = measured(make(parent, "unseen"), [None, None])
    unseen.finish("failed", "no client is left")
    guessing = measured(make(parent, "guessing", rounds=3), [0.0, 0.12, 0.11], [2.0, 3.0, 9.0])
    guessing.finish("done", "all rounds are done")
    return "\n".join([page([nothing]), page([unseen]), page([guessing], target=0.5)])


def different_runs(parent: Path) -> str:
    """Single runs of many kinds: a row each, on the page and in a terminal."""
    long, user = "x" * 30 + "y" * 31, {"code": {"own.py": "f" * 64, "other.py": "e" * 64}}
    runs = [
        measured(make(parent, "reached"), [0.5, 0.9, 0.8]),
        measured(make(parent, "missed", rate=0.025), [0.3, 0.4, None]),
        measured(make(parent, "left", preset="null"), [0.45, 0.95], [None, None]),
        measured(make(parent, "own", user, preset=f"/a/b/{long}.py"), [0.6, 0.1, 0.1]),
        waiting(make(parent, "going", {"mode": "server"}, rounds=30), 3, random.Random(10)),
    ]
    for run, status, reason in zip(
        runs,
        ("done", "failed", "stopped", "done"),
        ("", "no <b>disk</b>", "left", ""),
        strict=False,
    ):
        run.finish(status, reason)
    records = runs[1].path / "rounds.jsonl"
    first, _, last = records.read_text("utf-8").splitlines()
    records.write_text(f"{first}\na damaged line\n{last}\n", "utf-8")
    runs[1] = RunFolder.open(runs[1].path, salvage=True)
    compared = Comparison.of(runs, 0.85)
    console = Console(width=100, file=None, color_system=None)
    with console.capture() as captured:
        console.print(compared.text())
    compared.write_csv(parent / "table.csv")
    return "\n".join(
        [page(runs, target=0.85), captured.get(), (parent / "table.csv").read_text("utf-8")]
    )


def many_groups(parent: Path) -> str:
    """Groups of two seeds, more than a page has columns for, and more pairs than it draws."""
    runs = []
    for place in range(8):
        for seed in (3, 4):
            run = make(parent, f"run-{place}-{seed}", rate=0.5 + place, seed=seed)
            best = 0.6 + place / 50 + seed / 100
            if place > 5:  # the mean of their differences is 0
                best = 0.75 if (place == 6) == (seed == 3) else 0.625
            accuracies = [0.5, best, 0.55 + 0.01 * place * (seed - 3)]
            measured(run, list(accuracies[: 3 - (place == 2 and seed == 4)]))
            if (place, seed) != (5, 4):
                run.finish("done" if place != 3 else "stopped", f"because of {place}, {seed}")
            runs.append(run)
    compared = Comparison.of(runs, 0.7)
    latex = []
    for target in (0.7, None):
        replace(Comparison.of(runs[:6]), target=target).write_latex(parent / "table.tex")
        latex.append((parent / "table.tex").read_text("utf-8"))
    console = Console(width=100, file=None, color_system=None)
    with console.capture() as captured:
        console.print(compared.text())
    return "\n".join([page(runs, target=0.7), captured.get(), *latex])


def participants(parent: Path) -> str:
    """Clients that failed for more reasons than a page lists, with and without known shares."""
    pages = []
    for name, liars in (("known", True), ("unknown", False)):
        run = measured(make(parent, name, clients=40), [0.5, 0.8])
        rows = []
        for number in range(1, 3):
            for client in range(36):
                row = {"round": number, "client": client, "status": "accepted", "liar": client > 33}
                row |= {"up_bytes": 2_000_000 * client, "down_bytes": 1100 * number}
                row["samples"] = None if client == 2 else 1000 * client
                if liars:
                    row["share"] = 0.0 if client % 5 == 4 else 0.01 * client
                if client < 28:
                    row["status"] = "lost" if client % 3 else "rejected"
                    row["reason"] = f"reason {number}.{client}" if client else None
                    row["traceback"] = f"line {client}" * (client % 2)
                    row.pop("share", None)
                rows.append(row)
        run.append_clients(rows)
        run.finish("done")
        pages.append(page([run]))
    run = measured(make(parent, "refused"), [0.5])
    run.append_clients([{"round": 1, "client": one, "status": "declined"} for one in range(2)])
    equal = measured(make(parent, "equal"), [0.5])
    equal.append_clients([{"round": 1, "client": one, "status": "accepted"} for one in range(2)])
    return "\n".join([*pages, page([run]), page([equal])])


def timelines(parent: Path) -> str:
    """Rounds of real servers and of many clients, failed rounds, and deadlines far away."""
    server = {"mode": "server"}
    many = _with_times(make(parent, "many", server, clients=80), 75, offers=True)
    few = _with_times(make(parent, "few", server), 3, offers=False)
    machine = _with_times(make(parent, "machine"), 2, offers=False)
    return "\n".join(
        [
            page([many], round=2),
            page([few]),
            page([few], round=3),
            page([machine]),
            page([machine], round=2),
            page([few, machine], round=3),
        ]
    )


def _with_times(run: RunFolder, clients: int, *, offers: bool) -> RunFolder:
    """Add two rounds in machine time and a third one that failed; some clients have no task."""
    statuses = ("accepted", "rejected", "lost", "declined", "accepted", "odd")
    for number in range(1, 4):
        rows: list[dict[str, Any]] = []
        for client in range(clients):
            asked_s, status = 0.5 * client, statuses[(client + number) % 6]
            row = {"round": number, "client": client, "status": status, "asked_s": asked_s}
            if offers:
                row |= {"trained_s": asked_s + 20 * number, "decided_s": asked_s + 23 * number}
                if status in ("accepted", "rejected"):
                    row["sending_s"] = asked_s + 25 * number
                if client % 7 == 3:
                    del row["decided_s"]
            if status not in ("lost", "odd"):
                row["ended_s"] = asked_s + 30 * number
            rows.append(row)
        for client in range(clients, clients + number - 1):
            rows.append({"round": number, "client": client, "status": "lost"})
        run.append_clients(rows)
        if number < 3:
            measures = {"accuracy": 0.4 * number, "loss": 1 / number, "seconds": 1.0}
            clock = {"clock_s": 20.0 + 45 * number, "virtual": False}
            run.append_round({"round": number, **measures, **clock})
    run.finish("failed", "too few clients")
    return run


def stale_updates(parent: Path) -> str:
    """Updates of many different ages, in two runs on one page."""
    runs = []
    for name, oldest in (("old", 90), ("young", 3)):
        run = make(parent, name, preset="fedbuff", rounds=12)
        for number in range(1, 13):
            staleness = [(7 * number * place) % (oldest + 1) for place in range(number % 4 + 1)]
            run.append_round(
                {
                    "round": number,
                    "accuracy": number / 20,
                    "loss": 1.0,
                    "seconds": 1.0,
                    "staleness": staleness if number % 5 else [],
                    "in_flight": number + 3,
                }
            )
        run.finish("done")
        runs.append(run)
    return page(runs)


def kinds_of_clusters(parent: Path) -> str:
    """One cluster, none, and more clusters than a figure has numbers for, on one page."""
    runs = []
    for name, labels, data in (
        ("one", [0] * 12, "digits"),
        ("none", [-1] * 5, "digits"),
        ("two", [0, 0, 1, -1, 1], "digits"),
        ("many", [one % 41 - (one % 13 == 0) for one in range(50)], "no-such-data"),
    ):
        run = make(parent, name, preset="fedsso", clients=len(labels))
        run.experiment_yaml = run.experiment_yaml.replace("data: digits", f"data: {data}")
        clients = np.arange(len(labels))
        points = np.stack([np.array(labels) * 1.0, clients % 7], axis=1)
        if name == "none":
            points[:] = np.nan
        kept = Clustering(
            clients, np.array(labels), np.full(len(labels), 5), points, {"0": Stratum(4, 20)}
        )
        run.save_checkpoint(1, {"server": {"memory": {"selector": kept.memory()}}})
        run.finish("done")
        runs.append(run)
    return page(runs)


def partitions(parent: Path) -> str:
    """The table and the figure of a small and of a large partition."""
    small = np.array([[1200, 0, 3], [0, 0, 0], [40, 50, 2]], np.int64)
    large = np.arange(22 * 14, dtype=np.int64).reshape(22, 14) * 7 % 50 * (np.arange(14) % 3 > 0)
    large[4], large[5, 6:] = 0, 0
    console = Console(width=80, file=None, color_system=None)
    lines = []
    for counts, title in ((small, "Small"), (large, "Large"), (small[:1], None)):
        with console.capture() as captured:
            console.print(partition.table(counts, title=title))
        lines += [captured.get(), *drawn_lines(partition._draw(counts, title or "Untitled"))]
    lines.append(partition.summary(small[:0]))
    return "\n".join(lines)


PAGES: tuple[Callable[[Path], str], ...] = (
    failed_run,
    running_run,
    asynchronous_run,
    clusters,
    fork,
    other_forks,
    side_by_side,
    two_runs,
    tables,
    plots,
    commands,
    new_runs,
    different_runs,
    many_groups,
    participants,
    timelines,
    stale_updates,
    kinds_of_clusters,
    partitions,
)
WITH_CURVES = (failed_run, fork, other_forks, side_by_side, new_runs)


def page(
    runs: list[RunFolder],
    target: float | None = None,
    round: int | None = None,
) -> str:
    """Return the lines of a page, then those of its figures."""
    figures: list[str] = []
    save = Figure.savefig

    def saved(figure: Figure, *given: Any, **named: Any) -> None:
        figures.extend(drawn_lines(figure))
        save(figure, *given, **named)

    path = runs[0].report_path if runs[0].status == "running" else runs[0].path / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", saved)
        write_report(runs, path, target, round)
    return "\n".join([*PageLines(path.read_text(encoding="utf-8")).lines, *figures])


def written(make_page: Callable[[Path], str], parent: Path) -> str:
    """Return a page without the times and places at which it was written."""
    with pytest.MonkeyPatch.context() as patch:
        if make_page not in WITH_CURVES:  # to draw them takes most of the time
            patch.setattr(report_page, "curves_section", lambda *given: None)
        text = make_page(parent).replace(str(parent), "FOLDER")
    text = re.sub(r"-20\d{6}-(\\n)?\d{6}(-\d+)?", "-TIME", text)
    text = re.sub(r"\d+ d$", "AGE", text, flags=re.MULTILINE)
    text = re.sub(r"Written at [\d :-]+ UTC", "Written at TIME UTC", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


class PageLines(HTMLParser):
    """The elements of a page with their text and attributes, a row of a table in each line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self._in_svg = self._in_style = 0
        self._in_title = self._in_sample = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self._in_svg += 1
            self.lines.append(f"svg {dict(attrs).get('aria-label')}")
            self._in_sample = ("class", "key") in attrs
        if tag == "path" and self._in_sample:
            self.lines[-1] += " ".join(f" {key}={value}" for key, value in attrs)
        self._in_style += tag == "style"
        self._in_title = tag == "title"
        if not self._in_svg and tag not in ("svg", "style"):
            shown = [f"{k}={v}" for k, v in attrs if k not in ("href", "rel") and v != ""]
            marks = [k for k, v in attrs if v == ""]
            words = " ".join([tag, *shown, *marks])
            if tag in CELLS or (tag == "div" and "class=value" in shown):
                self.lines[-1] += f" |{words if shown or marks else ''}"
            else:
                self.lines.append(words)

    def handle_endtag(self, tag: str) -> None:
        self._in_svg -= tag == "svg"
        self._in_style -= tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._in_style and (not self._in_svg or self._in_title):
            if self._in_svg:
                self.lines.append("  spot")
            self.lines[-1] += " " + " ".join(data.split())


def drawn_lines(figure: Figure) -> Iterator[str]:
    """Yield what a figure has drawn, in the coordinates of its data."""
    width, height = figure.get_size_inches()
    yield f"figure {width:.3g} x {height:.3g}"
    yield from _titles(figure.get_suptitle(), figure.legends)
    for axes in figure.axes:
        limits = _short([*axes.get_xlim(), *axes.get_ylim()])
        yield f" axes x={axes.get_xlabel()} y={axes.get_ylabel()} {axes.get_yscale()} {limits}"
        for line in axes.get_lines():
            xy = line.get_xydata()
            style = f"{line.get_color()} {line.get_linestyle()} {line.get_linewidth():g}"
            style += f" {line.get_alpha()} {line.get_marker()} {line.get_markersize():g}"
            style += f" {line.get_markerfacecolor()} {line.get_markevery()}"
            yield f"  line {style} {_short(np.asarray(xy)[:12])}"
        for patch in axes.patches:
            box = patch.get_path().get_extents(patch.get_patch_transform())
            yield f"  patch {_colour(patch.get_facecolor())} {_short(box.extents)}"
        for one in axes.collections:
            yield f"  {_collection(one)}"
        for image in axes.get_images():
            yield f"  image {_short(np.asarray(image.get_array()))}"
        texts = [text.get_text() for text in axes.texts]
        if texts:
            yield f"  texts {texts}"
        legend = axes.get_legend()
        yield from _titles(axes.get_title("left"), [] if legend is None else [legend])
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            yield f"  ticks {labels}"


def _titles(title: str, legends: Sequence[Legend]) -> Iterator[str]:
    if title:
        yield f"  title {title!r}"
    for legend in legends:
        yield f"  legend {[text.get_text() for text in legend.get_texts()]}"


def _collection(one: Collection) -> str:
    shapes = [_short(path.vertices[:12]) for path in one.get_paths()[:3]]
    offsets = _short(np.ma.filled(one.get_offsets().astype(float), np.nan)[:12])
    colours = [_colour(colour) for colour in one.get_facecolor()[:12]]
    return f"collection {one.get_alpha()} {colours} {shapes} at {offsets}"


def _colour(colour: Any) -> str:
    return ",".join(f"{value:.2g}" for value in colour)


def _short(value: Any) -> str:
    """Return numbers with four digits, which all processors agree on."""
    if isinstance(value, float | np.floating):
        return f"{float(value) + 0.0:.4g}"
    if isinstance(value, list | tuple | np.ndarray):
        return "[" + " ".join(map(_short, value)) + "]"
    return str(value)
