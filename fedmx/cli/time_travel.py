"""Commands that run a recorded run again: ``replay``, ``diff``, ``fork``, ``pack``, ``verify``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.options import (
    AsJson,
    ExecutorName,
    Modules,
    Overrides,
    OwnModules,
    RunPath,
    executor_override,
    modules_of_run,
)
from fedmx.cli.output import one_line, say, show_text
from fedmx.cli.process import NOT_RUN, OTHER_BITS
from fedmx.shell_line import shell_line

if TYPE_CHECKING:
    from fedmx.cli.rounds import Result
    from fedmx.history import Verification
    from fedmx.history.replay import Part, ReplayedRound, Step


HEADS = ("end", "step", "values", "norm", "zeros", "largest", "NaN/inf", "bytes")


def replay(
    path: RunPath,
    round: Annotated[
        int | None,
        typer.Option("--round", metavar="R", help="Only this round, from the nearest checkpoint."),
    ] = None,
    client: Annotated[
        int | None,
        typer.Option("--client", metavar="C", help="Only this client's work, step by step."),
    ] = None,
    stop_at: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="MODULE:CLASS.METHOD",
            help="Stop in the debugger at a hook's method, as in own_hook:EightBit.send.",
        ),
    ] = None,
    executor: ExecutorName = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Replay a run, and compare it with its records."""
    from fedmx.run import RunError, RunFolder

    folder = RunFolder.open(path)
    if round is None and (client is not None or stop_at is not None):
        raise RunError("--client and --break need --round; give one")
    alone = client is not None or stop_at is not None
    if alone and executor is not None:
        raise RunError(
            "--executor is for whole rounds; a single client is replayed in this process"
        )
    modules = modules_of_run(folder, module, own_modules)

    from fedmx.cli.datasets import files_with_progress
    from fedmx.history import replay as run_again
    from fedmx.history.recorded import RecordedRun
    from fedmx.history.replay import SERIAL
    from fedmx.run.records import plain

    overrides = SERIAL if alone else executor_override(executor)
    with files_with_progress() as files:
        run = RecordedRun.open(folder, modules=modules, overrides=overrides, files=files)
        tell = None if as_json else _show_round
        report = run_again(run, round, client, stop_at=stop_at, on_round=tell)
    if as_json:
        typer.echo(json.dumps(plain(report.record(), "the result")))  # JSON has no infinity
    elif report.parts:
        # A deployed client's reason may have line breaks.
        show_text(map(one_line, part_lines(report.parts)))
    else:
        typer.echo(_result(report.rounds))
    if report.same is False:
        raise typer.Exit(OTHER_BITS)


def part_lines(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the lines about a client's work."""
    rows = [HEADS, *(_cells(step) for part in parts for step in part.steps)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for part in parts:
        if part.version is not None:
            yield f"task of {_version_of(part)}"
        if part.steps:
            yield _row(HEADS, widths)
        for step in part.steps:
            yield _row(_cells(step), widths)
            if step.notes:
                notes = (f"{name} {value:.6g}" for name, value in step.notes.items())
                yield f"{'':{widths[0]}}  {', '.join(notes)}"
        yield from _end_of(part)


def _version_of(part: Part) -> str:
    text = f"version {part.version}"
    if part.fate.staleness:
        text += f", staleness {part.fate.staleness}"
    sent_before = not any(one.step == "start" for one in part.steps)
    return f"{text}, sent in an earlier round" if sent_before else text


def _end_of(part: Part) -> Iterator[str]:
    """Yield the lines about the fate of a client's update, and whether it is the recorded one."""
    fate, record = part.fate, part.record
    if fate.status == "in-flight":
        yield "in flight: its update comes in a later round"
        return
    yield f"server  check: {fate.status}" + (f", {fate.reason}" if fate.reason else "")
    status = record.get("status")
    if status is not None and status != fate.status:
        reason = record.get("reason")
        yield f"in the run: {status}" + (f", {reason}" if reason else "")
    hashes = ", ".join(one[:16] for one in part.blake3)
    recorded = ", ".join(one[:16] for one in part.recorded_blake3 or ())
    if part.same:
        yield f"the recorded update, bit for bit: BLAKE3 {hashes}"
    elif part.same is None:
        yield "the run did not accept this update: none is recorded"
    else:
        yield f"the update differs from the record: BLAKE3 {hashes or 'none'}, recorded {recorded}"


def _cells(step: Step) -> tuple[str, ...]:
    numbers = step.numbers
    later = f", pass {step.pass_number}" if step.pass_number > 1 else ""
    return (
        step.end,
        f"{step.step}{later}",
        f"{numbers.values:,}",
        f"{numbers.norm:.4g}",
        f"{100 * numbers.zeros:.1f} %",
        f"{numbers.largest:.4g}",
        str(numbers.not_finite),
        f"{step.bytes:,}",
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells in columns; the first two columns are texts, the others numbers."""
    return "  ".join(
        f"{cell:<{width}}" if place < 2 else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def _show_round(round: ReplayedRound) -> None:
    if round.same:
        number = round.updates
        updates = f"{number} {'update' if number == 1 else 'updates'}"
        text = f"the same {'sum of masked' if round.masked else 'bits,'} {updates}"
    else:
        what = []
        if round.differing:
            clients = "client" if len(round.differing) == 1 else "clients"
            what.append(f"updates of {clients} {', '.join(map(str, round.differing))}")
        if round.model_sha256 != round.recorded_model_sha256:
            what.append("model")
        if not round.record_holds:
            what.append("record, which was edited later")
        text = f"other bits: {' and '.join(what) or 'record'}"
    typer.echo(f"round {round.round}: {text}")


def _result(rounds: tuple[ReplayedRound, ...]) -> str:
    other = [one.round for one in rounds if not one.same]
    number = len(rounds)
    if not other:
        return f"{number} {'round' if number == 1 else 'rounds'} replayed to the recorded bits"
    text = "the round differs" if number == 1 else f"{len(other)} of {number} rounds differ"
    return f"{text} from the records, first round {other[0]}"


def diff(
    path: RunPath,
    other: Annotated[Path, typer.Argument(metavar="RUN", help="The other run folder.")],
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Show where two runs first differ, down to client and step."""
    from fedmx.run import RunFolder

    folders = RunFolder.open(path), RunFolder.open(other)
    allowed = [modules_of_run(folder, module, own_modules) for folder in folders]

    from fedmx.cli.datasets import files_with_progress
    from fedmx.history import RecordedRun
    from fedmx.history import diff as told_apart
    from fedmx.history.replay import SERIAL

    with files_with_progress() as files:
        runs = [
            RecordedRun.open(folder, modules=modules, overrides=SERIAL, files=files)
            for folder, modules in zip(folders, allowed, strict=True)
        ]
        report = told_apart(*runs)
    if as_json:
        typer.echo(json.dumps(report.record()))
    else:
        show_text([one_line(report.sentence)])
    if not report.same:
        raise typer.Exit(OTHER_BITS)


def fork(
    path: RunPath,
    round: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The last round that both runs share. [default: the last one before a "
            "--without client took part]",
            show_default=False,
        ),
    ] = None,
    set_: Overrides = None,
    without: Annotated[
        list[int] | None,
        typer.Option(metavar="CLIENT", min=0, help="A client to leave out; may be repeated."),
    ] = None,
    executor: ExecutorName = None,
    as_json: AsJson = False,
    module: Modules = None,
    own_modules: OwnModules = False,
) -> None:
    """Start a new run from a round of an existing one."""
    from fedmx.run import RunFolder

    folder = RunFolder.open(path)
    overrides = [*(set_ or []), *executor_override(executor)]
    # The fork also needs the code of the run, even if its experiment no longer names it.
    modules = modules_of_run(folder, module, own_modules, overrides)

    from fedmx.cli.datasets import files_with_progress
    from fedmx.cli.rounds import run_loop
    from fedmx.history import fork as make
    from fedmx.report.summary import curve_of, document_of, read_settings
    from fedmx.run.records import plain

    with files_with_progress() as files:
        made = make(folder, round, overrides, without or (), modules=modules, files=files)
    origin = made.origin
    text = "\n".join([f"fork of {origin.run} after round {origin.round}", *origin.lines()])
    say("fork", text, **origin.record())

    def print_json(result: Result) -> None:
        settings = read_settings(result.folder.experiment_yaml)
        found = {
            **document_of(result.folder, settings, curve_of(result.folder)),
            "fork": made.origin.record(),
        }
        typer.echo(json.dumps(plain(found, "the result")))  # a loss may be NaN

    run_loop(made.server, made.folder, print_json if as_json else None)


PackPath = Annotated[
    Path, typer.Argument(metavar="PACK", help="The pack, as x.fedmx.", show_default=False)
]


def pack(
    path: RunPath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The file to write.", show_default=False),
    ],
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Pack a finished run into one file that anyone can verify."""
    from fedmx.run import RunFolder

    folder = RunFolder.open(path)
    modules = modules_of_run(folder, module, own_modules)

    from fedmx.cli.datasets import files_with_progress
    from fedmx.history import pack as make

    with files_with_progress() as files:
        made = make(folder, out, modules=modules, files=files)
    size = out.stat().st_size
    if as_json:
        typer.echo(json.dumps({"pack": str(out), "bytes": size, "sha256": made.sha256}))
        return
    typer.echo(f"pack:    {out}, {size:,} bytes")
    typer.echo(f"sha256:  {made.sha256}")
    typer.echo(f"data:    {made.manifest.data.name}, by its SHA-256; none of its samples")
    if made.modules:
        typer.echo(f"modules: {', '.join(made.modules)}, as text")


def verify(
    path: PackPath,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Also run the pack's own code, with all your rights."),
    ] = False,
    executor: ExecutorName = None,
    as_json: AsJson = False,
) -> None:
    """Check a pack, replay its run, and compare the bits."""
    from fedmx.history import verify as check

    def tell(round: int, rounds: int) -> None:
        say("verified", f"round {round}/{rounds}  the same bits", round=round, rounds=rounds)

    found = check(path, trust, overrides=executor_override(executor), on_round=tell)
    if as_json:
        typer.echo(json.dumps(found.record()))
    else:
        for line in verification_lines(found):
            typer.echo(line)
    if not found.same:
        raise typer.Exit(OTHER_BITS if found.outcome == "other bits" else NOT_RUN)


def unpack(
    path: PackPath,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The new run folder.", show_default=False)
    ],
) -> None:
    """Unpack a pack into a run folder; none of its code runs."""
    from fedmx.history.pack import PackFile

    made = PackFile.read(path).unpack(folder)
    typer.echo(f"run folder: {made.path}")


def verification_lines(found: Verification) -> list[str]:
    """Return the result of a verification as lines."""
    from fedmx.cli.output import one_line

    recorded = found.recorded
    rounds = f"{recorded.rounds} round{'s' if recorded.rounds != 1 else ''}"
    text = [
        f"pack:     {found.pack} is whole; SHA-256 {found.sha256}",
        f"records:  {found.run}: {rounds}, hashes match, up to {recorded.chain}",
        f"model:    the one after the last round; SHA-256 {recorded.model_sha256}",
    ]
    if found.versions:
        text.append(f"versions: pack and this machine differ: {', '.join(found.versions)}")
    else:
        text.append("versions: the same on this machine, and the same instructions")
    if found.code and found.outcome == "not run":
        text += [f"code:     {one}" for one in found.code]
    if found.shared:
        text.append(f"fork:     {found.shared}")
    if found.ended:
        text.append(f"ended:    {found.ended}")
    if found.same:
        every = "" if recorded.rounds == 1 else "all of "
        text.append(f"result:   the same bits, in {every}{rounds}")
    elif found.outcome == "other bits":
        text.append(f"result:   other bits: {found.reason}")
    else:
        text.append(f"result:   not run again: {found.reason}")
        if found.code:
            text.append(f"          read it: {shell_line('fedmx', 'unpack', found.pack)} FOLDER")
            trusted = shell_line("fedmx", "verify", found.pack, "--trust")
            text.append(f"          if you trust it: {trusted}")
    return [one_line(line) for line in text]  # text of the pack starts no new line
