"""Pages of made-up runs, written as lines of text: their tables, sentences and drawn figures.

A change of what a report shows is a change of these files, which a person can read and compare.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from rich.console import Console

from fedmx import RunFolder
from fedmx.report import Comparison, write_report
from fedmx.report import page as report_page
from fedmx.report.comparison import document

CELLS = {"td", "th", "span", "a", "wbr", "b", "input", "label", "meta"}
UNSEEN = ("style", "script")
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
network: {{heartbeat_s: 4}}
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
    "variables": {"MXNET_ENGINE_TYPE": "NaiveEngine", "MXNET_MKLDNN_ENABLED": "1"},
    "code": {"own.py": "0123456789abcdef" * 4},
}


def make(parent: Path, name: str, facts: dict[str, Any] | None = None, **of: Any) -> RunFolder:
    """Return a run without records."""
    settings = {"seed": 1, "rounds": 8, "clients": 9, "rate": 0.1, "preset": "fedavg"} | of
    text = EXPERIMENT.format(name=name, **settings)
    return RunFolder.create(parent, name, text, FACTS | {"seed": settings["seed"]} | (facts or {}))


def waiting(run: RunFolder, rounds: int, drawn: random.Random) -> RunFolder:
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
                "virtual": True,
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


def not_waiting(run: RunFolder, rounds: int) -> RunFolder:
    """Add rounds that end with their third update, while other clients go on."""
    began, versions = dict.fromkeys(range(6), 0.0), dict.fromkeys(range(6), 0)
    begin_s = 0.0
    for number in range(1, rounds + 1):
        took_s = {one: 7.0 + 4 * one for one in began}
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


def asynchronous_run(parent: Path) -> str:
    """A run whose rounds do not wait."""
    return page([not_waiting(make(parent, "asynchronous", preset="fedbuff", rounds=11), 11)])


def compared_runs(parent: Path) -> list[RunFolder]:
    """Return an algorithm over three seeds, one of which has fewer rounds, and one over two."""
    runs = []
    for preset, rate, seeds in (("fedavg", 0.1, 3), ("fedprox", 0.5, 2)):
        for seed in range(1, seeds + 1):
            name = f"{preset}-{seed}"
            run = make(parent / f"{rate}", name, preset=preset, rate=rate, seed=seed)
            drawn = random.Random(100 * seed + int(10 * rate) + len(preset))
            waiting(run, 3 if preset == "fedavg" and seed == 2 else 5, drawn)
            run.finish("done")
            runs.append(run)
    return runs


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
    record = document(Comparison.of(runs[:1], 0.8))["runs"][0]
    del record["points"][1:]
    texts = (captured.get(), *latex, (parent / "table.csv").read_text(), "\n".join(points))
    return "\n".join((*texts, json.dumps(record, indent=1, ensure_ascii=False)))


PAGES: tuple[Callable[[Path], str], ...] = (failed_run, asynchronous_run, two_runs, tables)


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
        if make_page is not failed_run:  # to draw them takes most of the time
            patch.setattr(report_page, "curves_section", lambda *given: None)
        text = make_page(parent).replace(str(parent), "FOLDER")
    text = re.sub(r"-20\d{6}-(\\n)?\d{6}(-\d+)?", "-TIME", text)
    text = re.sub(r"'sha256-[^']*'", "SHA256", text)
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
        self._in_style += tag in UNSEEN
        self._in_title = tag == "title"
        if not self._in_svg and tag not in ("svg", *UNSEEN):
            shown = [f"{k}={v}" for k, v in attrs if k not in ("href", "rel") and v != ""]
            marks = [k for k, v in attrs if v == ""]
            words = " ".join([tag, *shown, *marks])
            if tag in CELLS or (tag == "div" and "class=value" in shown):
                self.lines[-1] += f" |{words if shown or marks else ''}"
            else:
                self.lines.append(words)

    def handle_endtag(self, tag: str) -> None:
        self._in_svg -= tag == "svg"
        self._in_style -= tag in UNSEEN

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
