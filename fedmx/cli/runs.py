"""Commands that show recorded runs: ``fedmx runs``, ``status``, ``report`` and ``export``."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedmx.cli.options import AsJson, Modules, OwnModules, RunPath, modules_of_run
from fedmx.cli.output import show_table, show_text
from fedmx.output_file import check_output

if TYPE_CHECKING:
    from fedmx.listing.rows import Listed
    from fedmx.sweeps.result import SweepResult

NARROW = 72  # narrower terminals show no age; a run's name ends with its time
WIDE = 100  # columns from which the settings have a column of their own


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The folder of the runs, or of a sweep.")
    ] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder."""
    from fedmx.listing.rows import listed

    found = listed(folder)
    if as_json:
        typer.echo(json.dumps([one.row for one in found]))
    elif found:
        _show(found)
    else:
        typer.echo(f"{folder}: no runs", err=True)


def _show(found: Sequence[Listed]) -> None:
    from rich.table import Table
    from rich.text import Text

    from fedmx.cli.output import one_line, show_table
    from fedmx.report.formats import NOTHING

    columns = shutil.get_terminal_size().columns
    wide, narrow = columns >= WIDE, columns < NARROW
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column("run", overflow="fold")
    table.add_column("state")
    table.add_column("round", justify="right", no_wrap=True)
    table.add_column("best", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("age", justify="right", no_wrap=True)
    if wide and any(one.words for one in found):
        table.add_column("settings that differ", overflow="fold")
    for one in found:
        settings = one_line(", ".join(one.words.values()))
        name, age_s = one_line(one.path.name), one.row["age_s"]
        table.add_row(
            Text(name if wide or not settings else f"{name}\n  {settings}"),
            one.row["state"],
            one.rounds,
            one.best,
            *([] if narrow else [NOTHING if age_s is None else age(age_s)]),
            *([Text(settings)] if wide and settings else []),
        )
    show_table(table)


def age(seconds: int) -> str:
    """Return an age in its largest unit: ``12 s``, ``5 min``, ``3 h`` or ``4 d``."""
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86400:,} d"


ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


def status(
    where: Annotated[
        str,
        typer.Argument(
            metavar="RUN|ADDRESS",
            help="A run folder, or HOST:PORT of a server's metrics (network.metrics).",
            show_default=False,
        ),
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="File with the secret of ADDRESS (network.metrics_token_file)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the current state of a run and of its clients."""
    from fedmx.deployment.token import read_token
    from fedmx.monitoring.reading import status_of_address, status_of_run

    is_address = ADDRESS.fullmatch(where) is not None and not Path(where).exists()
    token = read_token(token_file)
    found = status_of_address(where, token) if is_address else status_of_run(where)
    if as_json:
        typer.echo(json.dumps(found))
        return
    show_text(f"{label + ':':12} {text}" for label, text in status_lines(found, time.time()))


def status_lines(status: dict[str, Any], now: float) -> list[tuple[str, str]]:
    """Return a status as labels and texts; `now` is seconds since 1970."""
    from fedmx.cli.output import one_line
    from fedmx.deployment.membership import listing
    from fedmx.quantities import metrics_in
    from fedmx.report.formats import SHOW, duration, mebibytes, plain

    state = status["state"]
    process = f", process {status['pid']}" if status["pid"] is not None else ""
    reason = f": {status['reason']}" if status["reason"] else ""
    paused = " (paused)" if status["paused"] and state == "running" else ""
    found = [("run", f"{status['run']}"), ("state", f"{state}{paused}{process}{reason}")]
    done, last = status["rounds_done"], status["rounds"]
    text = f"{done} of {last} done"
    in_flight = status["in_flight"]
    unit = "round" if in_flight is None else "version"
    if status["round"] is not None and state == "running":
        text += f", {unit} {status['round']} is under way"
    found.append((f"{unit}s", text))
    metric = metrics_in(status)[0]
    if status.get(metric.key) is not None:
        text = f"{metric.words} {SHOW[metric.unit](status[metric.key])}"
        found.append(("model", f"{text}, loss {status['loss']:.4f}"))
    if status["epsilon"] is not None:
        found.append(("privacy", f"epsilon {status['epsilon']:.4f} is spent"))
    if state == "interrupted" and status["time"] is not None:
        found.append(("last seen", f"{status['time']}; the lines below are from that time"))
    if status["clients"] is not None or status["ready"]:
        of = "" if status["clients"] is None else f" of {status['clients']}"
        ready = set(status["ready"]) - set(status["excluded"])
        who = f": {listing(ready)}" if ready else ""
        found.append(("clients", f"{len(ready)}{of} are ready{who}"))
    if status["excluded"]:
        found.append(("excluded", f"clients {listing(set(status['excluded']))}"))
    for client, since in status["away"].items():
        found.append(("away", f"client {client}, since {_since(since, now)}"))
    for client, left_s in status["suspended"].items():
        text = f"client {client} is not asked for {duration(left_s)} after round {done}"
        found.append(("suspended", text))
    waiting = status["waiting"]
    if waiting is not None:
        what = (waiting["for"] == "updates" and status["awaits"]) or waiting["for"]
        text = f"for {what} of {listing(set(waiting['clients']))}"
        if waiting["for"] == "clients":
            text = f"for clients {listing(set(waiting['clients']))}"
        found.append(("waiting", f"{text}, since {_since(waiting['since'], now)}"))
    updates = ", ".join(f"{number} {fate}" for fate, number in status["updates"].items())
    found.append(("updates", updates))
    if in_flight is not None:
        parts = [f"{in_flight} tasks"]
        if status["staleness"] is not None:
            parts.append(f"staleness {status['staleness']:.1f} in the last version")
        if status["updates_per_s"] is not None:
            parts.append(f"{plain(status['updates_per_s'])} updates/s")
        found.append(("in flight", ", ".join(parts)))
    received, sent = mebibytes(status["received_bytes"]), mebibytes(status["sent_bytes"])
    found.append(("bytes", f"up {received}, down {sent}"))
    if status["refused_connections"] is not None:
        text = f"{status['refused_connections']} refused, {status['reconnections']} came back"
        found.append(("connections", text))
    for one in status["certificates"]:
        if one["warning"] is not None:
            found.append(("certificate", one["warning"]))
    if status["memory_bytes"] is not None:
        found.append(("memory", mebibytes(status["memory_bytes"])))
    return [(one_line(label), one_line(text)) for label, text in found]


def _since(timestamp: str, now: float) -> str:
    from fedmx.report.formats import duration

    moment = datetime.datetime.fromisoformat(timestamp)
    return f"{moment:%H:%M:%S} UTC ({duration(max(now - moment.timestamp(), 0.0))})"


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run folders, the folder of a sweep, or with --index of all runs."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="HTML",
            help="The page to write. [default: in the folder of a single run]",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="Count rounds, bytes and time until the metric has this value, e.g. 0.98.",
        ),
    ] = None,
    round: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The round whose timeline is drawn. [default: one of median duration]",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write the figures as PDF and SVG, one column wide."
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a row for each run, as CSV."),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a table of the groups, for booktabs."),
    ] = None,
    columns: Annotated[
        Literal["single", "double"],
        typer.Option(help="How many of a page's two columns the table of --latex may fill."),
    ] = "single",
    index: Annotated[
        bool,
        typer.Option("--index", help="Write a page that lists all runs in a folder, with links."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a page with figures about one run, or several together."""
    if index:
        given = {
            "--target": target,
            "--round": round,
            "--figures": figures,
            "--csv": csv,
            "--latex": latex,
        }
        _list_all(runs, output, [name for name, one in given.items() if one is not None], as_json)
        return
    from fedmx.cli.output import LogLines
    from fedmx.report import Comparison, write_page
    from fedmx.run import RunFolder

    if output is not None:
        check_output(output, "a report is HTML", (".html", ".htm"))
    if csv is not None:
        check_output(csv, "a table is CSV", (".csv",))
    if latex is not None:
        check_output(latex, "a table for LaTeX", (".tex",))
    with LogLines():  # it logs damage
        swept = _swept(runs, target)
        if swept is None:
            folders = [RunFolder.open(path, salvage=True) for path in runs]
            path = output or (folders[0].report_path if len(folders) == 1 else Path("report.html"))
            compared = Comparison.of(folders, target)
        else:
            path = output or swept.folder.report_path
            compared = swept.comparison()
        write_page(compared, path, round)
        written = [] if figures is None else compared.write_figures(figures)
        if csv is not None:
            compared.write_csv(csv)
        if latex is not None:
            compared.write_latex(latex, columns)
        if as_json:
            from fedmx.report.comparison import document

            found = document(compared)
            found |= {} if swept is None else swept.statistics()
            typer.echo(json.dumps({"report": str(path), **found}))
            return
    if swept is None:
        show_table(compared.text())
    else:
        from fedmx.cli.sweep_output import show_result

        show_result(swept)
    typer.echo(f"report: {path}")
    if written:
        typer.echo(f"figures: {len(written)} files in {figures}")
    for what, file in (("table", csv), ("table", latex)):
        if file is not None:
            typer.echo(f"{what}: {file}")


def _list_all(
    folders: Sequence[Path], output: Path | None, not_used: Sequence[str], as_json: bool
) -> None:
    """Write the page over all runs in a folder.

    Raises:
        FedmxError: there are several folders, or options that it does not use.
    """
    from fedmx.errors import FedmxError
    from fedmx.listing.page import write_index

    if not_used:
        raise FedmxError(f"{not_used[0]}: --index only lists the runs; leave it out")
    if len(folders) > 1:
        raise FedmxError(
            f"{folders[1]}: --index lists the runs in one folder; give the first alone"
        )
    page = str(write_index(folders[0], output))
    typer.echo(json.dumps({"report": page}) if as_json else f"report: {page}")


def _swept(paths: Sequence[Path], target: float | None) -> SweepResult | None:
    """Return the result of the sweep that is reported; None: it is about runs.

    Raises:
        RunError: there is something beside the sweep.
    """
    from fedmx.run import RunError
    from fedmx.sweeps.folder import SweepFolder
    from fedmx.sweeps.result import SweepResult

    sweeps = [path for path in paths if SweepFolder.is_one(path)]
    if not sweeps:
        return None
    if len(paths) > 1:
        raise RunError(
            f"{sweeps[0]}: is a sweep; report it alone, or its runs beside others: {sweeps[0]}/*-s*"
        )
    return SweepResult.read(sweeps[0], target)


NAMES = ("onnx", "torch", "safetensors")
"""The formats; `fedmx.export` has a function for each."""
_FILES = {
    "onnx": ("--to onnx writes ONNX", (".onnx",)),
    "torch": ("a state_dict is written as .safetensors, and not as a pickle", (".safetensors",)),
    "safetensors": ("--to safetensors writes safetensors", (".safetensors",)),
}


def export(
    path: RunPath,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="onnx, torch (a state_dict and its module) or safetensors.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to write. [default: the model's name, in this folder]",
        ),
    ] = None,
    client: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Export the personal model of this client, from a simulation.",
        ),
    ] = None,
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Export the model of this group of clients, where groups have their own.",
        ),
    ] = "",
    module: Modules = None,
    own_modules: OwnModules = False,
) -> None:
    """Export a run's model to ONNX, PyTorch or safetensors."""
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError
    from fedmx.output_file import check_module_name
    from fedmx.run import RunFolder

    if to not in NAMES:
        raise FedmxError(unknown("format", to, NAMES))
    if group and client is not None:
        raise FedmxError("--client and --group name two models; leave one of them out")
    if out is not None:
        check_output(out, *_FILES[to])
        if to == "torch":
            check_module_name(out)
    folder = RunFolder.open(path)
    modules = modules_of_run(folder, module, own_modules)

    from fedmx.export import FORMATS, TrainedModel
    from fedmx.run.durable import write_bytes_durably

    model = TrainedModel.of(folder, modules, client, group)
    ending, make = FORMATS[to]
    file = out or Path(f"{model.name}{ending}")
    check_output(file, *_FILES[to])
    exported = make(model, file)
    for one, content in exported.files.items():
        try:
            write_bytes_durably(one, content)
        except OSError as error:
            raise FedmxError(f"{one}: cannot write it ({error.strerror})") from None
    if not model.last:
        typer.echo(
            f"the run has not finished: this is its model after round {model.round}", err=True
        )
    of = f", of group {group}" if group else "" if client is None else f", of client {client}"
    typer.echo(f"model:  {file}, of round {model.round}{of}", err=bool(exported.source))
    if exported.source:
        typer.echo(f"module: {file.with_suffix('.py')}", err=True)
        typer.echo(exported.source, nl=False)
    else:
        typer.echo(f"input:  {model.notes['input']}")
        typer.echo(f"output: {model.notes['output']}")
