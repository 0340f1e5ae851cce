"""``fedmx replay``: a run is run again, and compared with its records; or one client's part is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.terminal.error_text import one_line
from fedmx.cli.terminal.exit_codes import OTHER_BITS
from fedmx.cli.terminal.options import ExecutorName, executor_override
from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules
from fedmx.cli.terminal.restart import restart_on

if TYPE_CHECKING:
    from fedmx.replay.part import Part
    from fedmx.replay.part_watcher import Passage
    from fedmx.replay.rounds import ReplayedRound

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
COLUMNS = "{:<7} {:<24} {:>11} {:>10} {:>8} {:>10} {:>7} {:>12}"


def replay(
    path: RunPath,
    round: Annotated[
        int | None,
        typer.Option("--round", metavar="R", help="Only this round, from the nearest checkpoint."),
    ] = None,
    client: Annotated[
        int | None,
        typer.Option("--client", metavar="C", help="Only this client's part, station by station."),
    ] = None,
    stop_at: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="MODULE:CLASS.METHOD",
            help="Stop in the debugger at a hook's method, as in own_hook:Encode.send.",
        ),
    ] = None,
    executor: ExecutorName = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Run a run again, and compare it with its records."""
    from fedmx.run import RunError, RunFolder

    folder = RunFolder.open(path)
    if round is None and (client is not None or stop_at is not None):
        raise RunError("--client and --break need --round; give one")
    alone = client is not None or stop_at is not None
    if alone and executor is not None:
        raise RunError("--executor is for whole rounds; a client's part is replayed here")
    source = folder.path / "experiment.yaml"
    modules = allowed_modules(source, (), module, own_modules, folder.modules_path)

    # Not before: this imports MXNet, and a wrong folder should be shown at once.
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.replay.recorded_run import RecordedRun
    from fedmx.replay.replaying import SERIAL
    from fedmx.replay.replaying import replay as run_again
    from fedmx.run.json_lines import plain

    overrides = SERIAL if alone else executor_override(executor)
    with LogLines(), files_with_progress() as files:
        run = RecordedRun.open(folder, modules=modules, overrides=overrides, files=files)
        restart_on(run.experiment.compute.bits)
        tell = None if as_json else _tell
        report = run_again(run, round, client, stop_at=stop_at, on_round=tell)
    if as_json:
        typer.echo(json.dumps(plain(report.record(), "the result")))  # infinity is no JSON
    elif report.part is not None:
        for line in part_lines(report.part):
            typer.echo(one_line(line))  # a deployed client gave its reason
    else:
        typer.echo(_result(report.rounds))
    if report.same is False:
        raise typer.Exit(OTHER_BITS)


def part_lines(part: Part) -> Iterator[str]:
    """Yield the lines that show a client's part."""
    heads = ("end", "station", "values", "norm", "zeros", "largest", "NaN/inf", "bytes")
    yield COLUMNS.format(*heads).rstrip()
    for one in part.passages:
        yield _row(one)
    fate, record = part.fate, part.record
    if fate is not None:
        yield f"server  check: {fate.status}" + (f", {fate.reason}" if fate.reason else "")
    status = record.get("status")
    if status is not None and (fate is None or status != fate.status):
        yield f"in the run: {status}, {record.get('reason', '')}"
    hashes = ", ".join(one[:16] for one in part.sha256)
    recorded = ", ".join(one[:16] for one in part.recorded_sha256 or ())
    if part.same:
        yield f"the recorded update, bit for bit: SHA-256 {hashes}"
    elif part.same is None:
        yield "no update of this client counted in this round, so that none is recorded"
    else:
        yield f"another update than recorded: SHA-256 {hashes or 'none'}, recorded {recorded}"


def _row(passage: Passage) -> str:
    numbers = passage.numbers
    station = passage.station
    if passage.pass_number > 1:
        station += f", pass {passage.pass_number}"
    row = COLUMNS.format(
        passage.end,
        station,
        f"{numbers.values:,}",
        f"{numbers.norm:.4g}",
        f"{100 * numbers.zeros:.1f} %",
        f"{numbers.largest:.4g}",
        numbers.not_finite,
        f"{passage.bytes:,}",
    )
    notes = ", ".join(f"{name} {value:.6g}" for name, value in passage.notes.items())
    return f"{row}  {notes}".rstrip()


def _tell(round: ReplayedRound) -> None:
    if round.same:
        number = round.updates
        text = f"the same bits, {number} {'update' if number == 1 else 'updates'}"
    else:
        what = []
        if round.differing:
            what.append(f"updates of clients {', '.join(map(str, round.differing))}")
        if round.model_sha256 != round.recorded_model_sha256:
            what.append("model")
        if not round.record_holds:
            what.append("record, which was changed afterwards")
        text = f"other bits: {' and '.join(what) or 'record'}"
    typer.echo(f"round {round.round}: {text}")


def _result(rounds: tuple[ReplayedRound, ...]) -> str:
    other = [one.round for one in rounds if not one.same]
    number = len(rounds)
    if not other:
        return f"{number} {'round' if number == 1 else 'rounds'} replayed to the recorded bits"
    return f"{len(other)} of {number} rounds parted from the records, the first is {other[0]}"
